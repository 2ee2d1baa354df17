"""pipelines/papers/: what every paper's story says without data."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from tests.conftest import ROOT

PAPERS = {
    "joachims_2006": "",
    "jung_oleary_tits_2008": "",
    "perez_cruz_2000": "LIBSVM Data: Classification (Binary Class)",
    "platt_1998": "LIBSVM Data: Classification (Binary Class)",
    "qaadan_glasmachers_2018": "LIBSVM Data: Classification (Binary Class)",
}


@pytest.mark.parametrize("name", PAPERS)
def test_without_data_it_says_where_they_are(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """By a process of its own no folder is named; then one without any of the files is."""
    monkeypatch.delenv("STREAMSVM_DATA", raising=False)
    ran = subprocess.run(
        [sys.executable, "-m", f"pipelines.papers.{name}"],
        env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    monkeypatch.setattr(sys, "argv", [name, "--data", str(tmp_path)])
    status = import_module(f"pipelines.papers.{name}.__main__").main()
    here = capsys.readouterr()
    for code, out, told in ((ran.returncode, ran.stdout, ran.stderr), (status, here.out, here.err)):
        assert (code, out) == (2, "")
        assert told.startswith(f"{name}: no data: ")
        assert PAPERS[name] in told
