"""pipelines/papers/: what every paper's story says without data."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from runpy import run_module

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.slow("is about pipelines/, not about the package")

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
    """No folder is named; then one without any of the files is. Run as `python -m` would, but in this process."""
    monkeypatch.delenv("STREAMSVM_DATA", raising=False)
    for arguments in ([], ["--data", str(tmp_path)]):
        monkeypatch.setattr(sys, "argv", [name, *arguments])
        monkeypatch.delitem(sys.modules, f"pipelines.papers.{name}.__main__", raising=False)  # of another test
        with pytest.raises(SystemExit) as ended:
            run_module(f"pipelines.papers.{name}", run_name="__main__")
        out, told = capsys.readouterr()
        assert (ended.value.code, out) == (2, "")
        assert told.startswith(f"{name}: no data: ")
        assert PAPERS[name] in told


def test_without_data_in_a_process_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STREAMSVM_DATA", raising=False)
    ran = subprocess.run(
        [sys.executable, "-m", "pipelines.papers.platt_1998"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith("platt_1998: no data: ")
