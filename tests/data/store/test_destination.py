"""What is there already is not destroyed: two writers, inputs that are named as outputs, folders of others."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue

import numpy as np
import pytest
from zarr.core.sync import _get_loop

from streamsvm.data.open import open_dataset
from streamsvm.data.store.destination import _finish_writes, new_folder
from streamsvm.system.errors import InputError, WriteError
from streamsvm.system.files import Lock, open_atomically
from tests.commands import Run, data, run, text, trained  # noqa: F401
from tests.conftest import choose_examples

HOLDING = """
import os, sys
from pathlib import Path
from streamsvm.system.files import Lock
with Lock(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) > 2 else None):
    print(os.getpid(), flush=True)
    sys.stdin.readline()
"""


@contextmanager
def held_elsewhere(*arguments: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds a lock, until it is told to end."""
    command = [sys.executable, "-c", HOLDING, *map(str, arguments)]
    with subprocess.Popen(command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{process.pid}\n"
        try:
            yield process
        finally:
            process.communicate("\n")


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_lock_ends_with_its_process(tmp_path: Path) -> None:
    target = tmp_path / "run"
    with held_elsewhere(target) as holder:
        with pytest.raises(InputError, match=f"run: process {holder.pid} is writing to it; wait until"):
            Lock(target)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        assert (tmp_path / ".run.lock").exists()
        with Lock(target), pytest.raises(InputError, match=f"process {os.getpid()} is writing to it"):
            Lock(target)
    assert list(tmp_path.iterdir()) == []


def test_one_of_many_gets_the_lock_each_time(tmp_path: Path) -> None:
    """Eight processes take and release a lock many times; the file that they remove and make anew never serves two."""
    racing = """
import sys
from pathlib import Path
from streamsvm.system.errors import InputError
from streamsvm.system.files import Lock
folder, taken = Path(sys.argv[1]), 0
while taken < int(sys.argv[2]):
    try:
        with Lock(folder / "target"):
            (folder / "inside").mkdir()
            (folder / "inside").rmdir()
            taken += 1
    except InputError as error:
        assert "writing to it" in str(error)
"""
    command = [sys.executable, "-c", racing, str(tmp_path), str(choose_examples(50, 200, 1000))]
    processes = [subprocess.Popen(command, stderr=subprocess.PIPE, text=True) for _ in range(8)]
    assert [process.communicate()[1] for process in processes] == [""] * 8
    assert list(tmp_path.iterdir()) == []


def test_two_trainings_into_one_folder(run: Run, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    out.mkdir()
    with held_elsewhere(out, out / ".lock") as holder:
        ran = run("train", data, "--out", out)
        message = f"streamsvm train: {out}: process {holder.pid} is writing to it; wait until it has finished"
        assert (ran.code, ran.err.startswith(message)) == (2, True), ran.err
        assert [path.name for path in out.iterdir()] == [".lock"]
    assert run("train", data, "--out", out).code == 0
    assert {path.name for path in out.iterdir()} == {
        "settings.json",
        "history.jsonl",
        "checkpoint.npz",
        "model.npz",
        "result.json",
    }


def test_a_run_that_has_begun_and_ended_meanwhile_is_seen(run: Run, data: Path, trained: Path, tmp_path: Path) -> None:
    """Two trainings start at once: one sees an empty folder, and has to wait until the other one has ended."""
    from streamsvm.runs.folder import RunFolder

    late = RunFolder(tmp_path / "run", {"fingerprint": ""}, resume=False)
    assert run("train", data, "--out", tmp_path / "run").code == 0
    before = contents(tmp_path / "run")
    with pytest.raises(InputError, match="already holds a run"):
        late.begin(None)
    late.close()
    assert contents(tmp_path / "run") == before


def test_two_ingests_to_one_name(run: Run, text: Path, tmp_path: Path) -> None:
    with held_elsewhere(tmp_path / "d.zarr") as holder:
        ran = run("ingest", text, tmp_path / "d.zarr")
        assert (ran.code, f"d.zarr: process {holder.pid} is writing to it" in ran.err) == (2, True)
    (tmp_path / ".d.zarr.0123abcd.partial").mkdir()  # that of a killed process
    (tmp_path / ".d.zarr.x.0123abcd.partial").mkdir()  # that of somebody who writes d.zarr.x
    assert run("ingest", text, tmp_path / "d.zarr").code == 0
    assert {path.name for path in tmp_path.iterdir()} == {"d.zarr", ".d.zarr.x.0123abcd.partial"}


def test_two_predictions_to_one_name(run: Run, text: Path, trained: Path, tmp_path: Path) -> None:
    for name in ("p.csv", "p.npy", "p.zarr"):
        with held_elsewhere(tmp_path / name) as holder:
            ran = run("predict", trained, text, "--out", tmp_path / name)
            assert (ran.code, f"{name}: process {holder.pid} is writing to it" in ran.err) == (2, True)
        assert run("predict", trained, text, "--out", tmp_path / name).code == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.csv", "p.npy", "p.zarr"]


def test_two_writers_have_partial_files_of_their_own(tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    with open_atomically(file) as first, open_atomically(file) as second:
        first.write(b"first")
        second.write(b"second")
        assert len(list(tmp_path.iterdir())) == 2
    assert contents(tmp_path) == {"page.html": b"first"}


@pytest.mark.parametrize("name", ["rows.csv", "link.csv", "hard.csv"])
def test_predict_never_replaces_its_input(run: Run, trained: Path, text: Path, tmp_path: Path, name: str) -> None:
    rows = tmp_path / "rows.csv"
    np.savetxt(rows, np.ones((4, 6)), delimiter=",")
    (tmp_path / "link.csv").symlink_to(rows)
    (tmp_path / "hard.csv").hardlink_to(rows)
    before = contents(tmp_path)
    ran = run("predict", trained, rows, "--out", tmp_path / name)
    assert (ran.code, f"{tmp_path / name}: is read by this command, and would be replaced" in ran.err) == (2, True)
    assert contents(tmp_path) == before


def test_nor_standard_input_nor_the_model_nor_a_part_of_the_dataset(
    run: Run, trained: Path, data: Path, tmp_path: Path
) -> None:
    rows, model = tmp_path / "rows.csv", tmp_path / "model.npy"
    np.savetxt(rows, np.ones((4, 6)), delimiter=",")
    model.write_bytes((trained / "model.npz").read_bytes())
    assert run("predict", model, rows, "--out", model).code == 2
    assert run("predict", trained, data, "--out", data / "p.csv").code == 2
    command = [sys.executable, "-m", "streamsvm", "predict", trained, "-", "--format", "csv", "--out", rows]
    with rows.open() as stream:
        ran = subprocess.run(command, stdin=stream, capture_output=True, text=True, check=False)
    assert (ran.returncode, "is read by this command" in ran.stderr) == (2, True)
    assert rows.read_text().count("\n") == 4
    assert model.read_bytes() == (trained / "model.npz").read_bytes()


def test_predictions_in_a_folder_are_replaced_if_that_is_asked_for(
    run: Run, trained: Path, text: Path, data: Path, tmp_path: Path
) -> None:
    out = tmp_path / "p.zarr"
    assert run("predict", trained, text, "--out", out).code == 0
    before = contents(out)
    refused = run("predict", trained, data, "--out", out)
    assert (refused.code, "replace it with --overwrite" in refused.err) == (2, True)
    assert contents(out) == before
    assert run("predict", trained, data, "--out", out, "--overwrite").code == 0
    assert contents(out) != before
    foreign = tmp_path / "foreign.zarr"
    foreign.mkdir()
    (foreign / "mine").write_text("mine")
    assert run("predict", trained, data, "--out", foreign, "--overwrite").code == 2
    assert contents(foreign) == {"mine": b"mine"}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["foreign.zarr", "p.zarr"]


@pytest.mark.parametrize("name", ["settings.json", "history.jsonl", "checkpoint.npz", "model.npz", "result.json"])
def test_a_report_never_replaces_a_file_of_its_run(run: Run, trained: Path, name: str, tmp_path: Path) -> None:
    before = (trained / name).read_bytes()
    ran = run("report", trained, "--out", trained / name)
    assert (ran.code, "would be replaced" in ran.err) == (2, True)
    assert (trained / name).read_bytes() == before
    (tmp_path / "page.html").write_text("an older page")
    assert run("report", trained, "--out", tmp_path / "page.html").code == 0
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")


def test_train_leaves_the_folder_of_others_alone(run: Run, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "project"
    (out / "src").mkdir(parents=True)
    (out / "settings.json").write_text('{"editor.tabSize": 4}')
    (out / "src" / "main.py").write_text("print()")
    before = contents(out)
    for more in ([], ["--resume"]):
        ran = run("train", data, "--out", out, *more)
        assert (ran.code, f"{out}: is not empty and holds no run (settings.json)" in ran.err) == (2, True)
        assert contents(out) == before
    assert run("train", data, "--out", out, "--overwrite").code == 0
    assert (out / "src" / "main.py").read_text() == "print()"
    assert "fingerprint" in json.loads((out / "settings.json").read_text())


def test_a_finished_run_is_replaced_only_if_that_is_asked_for(run: Run, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    first = run("train", data, "--out", out, "--json").result
    run("report", out)
    before = contents(out)
    refused = run("train", data, "--out", out, "--C", "0.1")
    assert (refused.code, "already holds a run" in refused.err, "--overwrite" in refused.err) == (2, True, True)
    (out / "checkpoint.npz").rename(tmp_path / "checkpoint.npz")
    refused = run("train", data, "--out", out, "--C", "0.1")
    assert (refused.code, "a run has ended there (model.npz)" in refused.err) == (2, True)
    (tmp_path / "checkpoint.npz").rename(out / "checkpoint.npz")
    assert contents(out) == before
    second = run("train", data, "--out", out, "--C", "0.1", "--overwrite", "--json").result
    assert second["model_sha256"] != first["model_sha256"]
    assert json.loads((out / "result.json").read_text()) == second
    assert len((out / "history.jsonl").read_text().splitlines()) == second["steps"]
    assert not (out / "report.html").exists(), "the page of the run before"
    assert run("train", data, "--out", out, "--resume", "--overwrite").code == 2


def test_a_run_that_has_ended_before_its_first_checkpoint_is_begun_anew(run: Run, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run("train", data, "--out", out).code == 0
    for name in ("checkpoint.npz", "model.npz", "result.json"):
        (out / name).unlink()
    (out / ".checkpoint.npz.0123abcd.partial").write_bytes(b"half")
    (out / ".lock").write_text("1 elsewhere")
    assert run("train", data, "--out", out, "--C", "0.1").code == 0
    assert not [name for name in os.listdir(out) if name.startswith(".")]


def test_a_dataset_is_replaced_only_if_that_is_asked_for(run: Run, text: Path, tmp_path: Path) -> None:
    out, foreign = tmp_path / "d.zarr", tmp_path / "foreign"
    assert run("ingest", text, out).code == 0
    before = contents(out)
    refused = run("ingest", text, out, "--shuffle", "1")
    assert (refused.code, "d.zarr: already exists" in refused.err, "--overwrite" in refused.err) == (2, True, True)
    (out / "raw.svm").write_text(text.read_text())
    refused = run("ingest", out / "raw.svm", out, "--overwrite")
    assert (refused.code, "is read by this command" in refused.err) == (2, True)
    assert contents(out).items() >= before.items()
    (tmp_path / "bad.svm").write_text("1 1:x\n")
    assert run("ingest", tmp_path / "bad.svm", out, "--overwrite").code == 2
    assert contents(out).items() >= before.items(), "a failure has cost the dataset that was there"
    assert run("ingest", text, out, "--shuffle", "1", "--overwrite").code == 0
    assert open_dataset(out).meta["shuffle"] == 1
    foreign.mkdir()
    (foreign / "zarr.json").write_text('{"attributes": {}}')
    refused = run("ingest", text, foreign, "--overwrite")
    assert (refused.code, "is not a dataset" in refused.err) == (2, True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.svm", "d.zarr", "foreign"]


def test_a_dataset_that_was_being_replaced_is_found_again(run: Run, text: Path, tmp_path: Path) -> None:
    """Killed between the two names: whoever writes there next puts the old one back, and refuses as ever."""
    out = tmp_path / "d.zarr"
    assert run("ingest", text, out).code == 0
    before = contents(out)

    class Killed(BaseException):
        pass

    rename = os.replace

    def die(old: Path, new: Path) -> None:
        if new == out:
            raise Killed
        rename(old, new)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "replace", die)
        with pytest.raises(Killed), new_folder(out, overwrite=True) as folder:
            (folder / "zarr.json").write_text("{}")
    assert not out.exists()
    assert run("ingest", text, out).code == 2
    assert contents(out) == before


def test_a_folder_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    with pytest.raises(WriteError, match=r"missing/run: cannot be written: .*No such file"):
        Lock(tmp_path / "missing" / "run")
    (tmp_path / ".run.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WriteError, match="run: cannot be written"):
        Lock(tmp_path / "run")
    assert not (tmp_path / "elsewhere").exists()


def test_threads_that_end_at_once_do_not_wait_for_each_other() -> None:
    """Both wait for what Zarr's loop still writes, and for nothing else."""
    loop, written, ended = _get_loop(), [], Queue[asyncio.Task[None]]()

    async def write() -> None:
        await asyncio.sleep(0.01)
        written.append(True)

    def begin() -> None:
        for work in (write(), _finish_writes(), _finish_writes()):
            loop.create_task(work).add_done_callback(ended.put)

    loop.call_soon_threadsafe(begin)
    for _ in range(3):
        ended.get(timeout=10).result()
        assert written
