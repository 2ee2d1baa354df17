"""`streamsvm demo`: both parts hold what they claim, and nothing is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from argparse import Namespace
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from streamsvm.cli import demo
from streamsvm.cli.demo import BUDGET_BYTES, begin_writing, run_demo, show_larger_than_memory
from streamsvm.data.open import open_dataset
from streamsvm.system.errors import InputError
from tests.conftest import ROOT

DEMO = """
import sys
from streamsvm.cli import demo
from streamsvm.cli.main import main

demo.MOST_SECONDS = 600  # it shall converge, also on a machine that is busy
sys.exit(main())
"""


def start_demo(*arguments: str, **more: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", DEMO, "demo", *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT), **more},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, str]]:
    """The whole demo, once: its folder, and what it printed."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    with start_demo("--out", str(folder)) as process:
        printed, errors = process.communicate()
    assert (process.returncode, errors) == (0, "")
    yield folder, printed
    shutil.rmtree(folder)


def read_result(run: Path) -> dict[str, Any]:
    return json.loads((run / "result.json").read_text())  # type: ignore[no-any-return]


@pytest.mark.slow("runs the demo in processes of their own")
def test_training_stays_within_a_quarter_of_the_data(kept: tuple[Path, str]) -> None:
    folder, printed = kept
    data, result = open_dataset(folder / "generated.zarr"), read_result(folder / "generated-run")
    assert data.nbytes >= 4 * BUDGET_BYTES
    assert result["peak_memory_bytes"] <= result["projected_memory_bytes"] <= BUDGET_BYTES
    assert (result["status"], result["n_rows"]) == ("converged", data.n_rows)
    assert result["relative_gap"] <= 1e-3
    assert "4.0 times the memory budget" in printed
    assert f"{result['passes']} passes" in printed
    assert ": kept\n" in printed
    assert "converged" in (folder / "cancer-run" / "report.html").read_text()


@pytest.mark.slow("runs the demo in processes of their own")
def test_real_data_are_learnt(kept: tuple[Path, str]) -> None:
    folder, printed = kept
    result = read_result(folder / "cancer-run")
    assert result["status"] == "converged"
    assert result["n_rows"] == 569 - 143 == len((folder / "cancer.svm").read_text().splitlines())
    shown = float(printed.split("accuracy ")[1].split("%")[0])
    assert shown > 95


@pytest.mark.slow("runs the demo in processes of their own")
def test_what_it_suggests_works(kept: tuple[Path, str]) -> None:
    """Each in a process of its own, as its memory is."""
    folder, printed = kept
    assert len(printed.splitlines()) <= 20

    def run(*arguments: str) -> int:
        command, environment = [sys.executable, "-m", "streamsvm", *arguments], {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(command, cwd=folder, env=environment, check=False, capture_output=True).returncode

    suggested = [line.split("streamsvm ")[-1].split() for line in printed.splitlines()[-3:]]
    assert [words[0] for words in suggested] == ["info", "train", "predict"]
    assert [run(*suggested[0]), run(*suggested[2])] == [0, 0]
    assert run(*suggested[1], "--max-passes", "1") == 3
    assert len((folder / "predictions.csv").read_text().splitlines()) == 1 + 143


def test_little_disk_means_less_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    free_bytes = 40 * 10**6
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, free_bytes))
    with ThreadPoolExecutor(1) as pool:
        assert show_larger_than_memory(tmp_path, begin_writing(tmp_path, pool).result())
    assert "Only 40.0 MB are free here" in capsys.readouterr().out
    assert open_dataset(tmp_path / "generated.zarr").nbytes <= free_bytes / 2


def test_no_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(0, 0, 10**6))
    no_room = pytest.raises(InputError, match=r"only 1.0 MB are free; choose a larger disk with --out")
    with no_room, ThreadPoolExecutor(1) as pool:
        begin_writing(tmp_path, pool)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("broken", [{"peak_memory_bytes": BUDGET_BYTES + 1}, {"status": "stalled"}])
def test_a_claim_that_does_not_hold_is_told(
    broken: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = {"status": "converged", "peak_memory_bytes": 1, "projected_memory_bytes": BUDGET_BYTES, "relative_gap": 0.0}
    result = {**good, "passes": 1, "seconds": 1.0, "read_bytes": 1, **broken}
    monkeypatch.setattr(demo, "_run", lambda folder, command: result)
    monkeypatch.setattr(demo, "write_generated", lambda *_: type("Data", (), {"nbytes": 1, "n_rows": 1}))
    monkeypatch.setattr(demo, "show_real_data", lambda folder: True)
    assert run_demo(Namespace(out=tmp_path / "out")) == 1
    assert ("NOT KEPT" in capsys.readouterr().out) == ("peak_memory_bytes" in broken)


def test_a_folder_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="the folder is not empty; choose a new one"):
        run_demo(Namespace(out=tmp_path))
    with pytest.raises(InputError, match="cannot be used: File exists"):
        run_demo(Namespace(out=tmp_path / "file"))


def test_a_command_that_fails_ends_the_demo_with_its_status(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as failure:
        demo._run(tmp_path, "info nothing.zarr")
    assert failure.value.code == 2
    assert capsys.readouterr().err == "streamsvm info: nothing.zarr: no such dataset\n"


@pytest.mark.slow("runs the demo in a process of its own")
@pytest.mark.parametrize("keep", [True, False])
def test_ctrl_c_leaves_nothing_behind_that_was_not_asked_for(keep: bool, tmp_path: Path) -> None:
    out = tmp_path / "out"
    with start_demo(*(["--out", str(out)] if keep else []), TMPDIR=str(tmp_path)) as process:
        assert process.stdout is not None
        while not process.stdout.readline().startswith("$ streamsvm ingest"):
            assert process.poll() is None
        os.killpg(process.pid, signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "interrupted" in errors
    assert "Traceback" not in errors
    assert [file.name for file in tmp_path.iterdir()] == (["out"] if keep else [])
    if keep:
        assert (out / "cancer.svm").exists()
        assert f"the files made so far are in {out}" in errors
