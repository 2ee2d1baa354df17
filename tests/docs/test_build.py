"""The pages are built, and every warning of Sphinx is an error."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

NEEDED = ("sphinx", "myst_parser", "numpydoc", "pydata_sphinx_theme")
MISSING = [name for name in NEEDED if importlib.util.find_spec(name) is None]


@pytest.mark.slow("builds all pages")
@pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (python -m pip install '.[docs]')")
def test_the_pages_build_without_warnings(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", tmp_path / "read"]
    ran = subprocess.run(
        [*command, "-b", "html", ROOT / "docs", tmp_path / "html"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    api = (tmp_path / "html" / "api.html").read_text()
    assert "Linear support-vector classifier" in api
