"""Runs whose folder lies in an object store: the files of a local run, checkpoints as one object, and `--resume`."""

from __future__ import annotations

import json
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamsvm
from streamsvm import LinearSVC
from streamsvm.data.store.dataset import Dataset
from streamsvm.models.model import load
from streamsvm.options import TrainOptions
from streamsvm.runs.folder import RemoteRun
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError
from tests.commands import Run, run
from tests.conftest import make_problem
from tests.object_server import ObjectServer, Request

__all__ = ["run"]
URL = "s3://bucket/run"
PLAIN: Any = {"C": 100.0, "tol": 1e-6, "options": {"acceleration": "none"}}


@pytest.fixture
def data(tmp_path: Path) -> Dataset:
    return make_problem(3, n=1000, d=7).store(tmp_path / "rows.zarr", chunk_bytes=3000)


def names(server: ObjectServer) -> set[str]:
    return {key.removeprefix("bucket/run/") for key in server.objects}


def test_a_run_leaves_the_files_of_a_local_run(server: ObjectServer, data: Dataset, tmp_path: Path, run: Run) -> None:
    for out in (URL, tmp_path / "run"):
        ran = run("train", data.path, "--out", out, "--keep-dual", "--json")
        assert ran.code == 0
    assert names(server) == {file.name for file in (tmp_path / "run").iterdir()}
    for name in ("model.npz", "dual.npz", "settings.json"):
        assert server.objects[f"bucket/run/{name}"] == (tmp_path / "run" / name).read_bytes()
    np.testing.assert_array_equal(load(URL).coef, load(tmp_path / "run").coef)  # type: ignore[union-attr]
    for model, out in ((URL, "there"), (f"{URL}/model.npz", "file"), (tmp_path / "run", "here")):
        assert run("predict", model, data.path, "--out", tmp_path / f"{out}.csv").code == 0
    assert len({(tmp_path / f"{out}.csv").read_bytes() for out in ("there", "file", "here")}) == 1
    for content in server.objects.values():
        assert b"the-secret-of-the-test" not in content
        assert b"the-key-of-the-test" not in content


def test_a_run_that_was_stopped_goes_on_to_the_same_bits(server: ObjectServer, data: Dataset, run: Run) -> None:
    whole = train(data, TrainOptions(**PLAIN))
    assert whole.steps > 6
    train(data, TrainOptions(**PLAIN, max_passes=4), URL)
    assert json.loads(server.objects["bucket/run/result.json"])["status"] == "pass_limit"
    with pytest.raises(InputError, match=f"^{URL}: already holds a run; resume it with --resume"):
        train(data, TrainOptions(**PLAIN), URL)
    resumed = train(data, TrainOptions(**PLAIN), URL, resume=True)
    assert resumed.model.to_bytes() == whole.model.to_bytes() == server.objects["bucket/run/model.npz"]
    assert len(server.objects["bucket/run/history.jsonl"].splitlines()) == whole.steps


def test_a_killed_run_goes_on(server: ObjectServer, data: Dataset, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process is killed while it puts a later checkpoint; the one before is whole."""
    script = (
        "import sys; from streamsvm.runs import folder as run_folder; run_folder.CHECKPOINT_SECONDS = 0.0; "
        "run_folder.MOST_CHECKPOINT_SHARE = 1e9; from streamsvm.cli.main import main; main(sys.argv[1:])"
    )
    options = ("--C", "100", "--tol", "1e-6", "--option", "acceleration=none")
    puts: list[str] = []

    def hold_the_third(request: Request) -> str | None:
        if request.method != "PUT" or not request.key.endswith("checkpoint.npz"):
            return None
        puts.append(request.key)
        return "held" if len(puts) == 3 else None

    server.fault = hold_the_third
    command = [sys.executable, "-c", script, "train", data.path, "--out", URL, *options]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        assert server.held.wait(60)
        process.send_signal(signal.SIGKILL)
    assert names(server) == {"settings.json", "history.jsonl", "checkpoint.npz"}
    assert len(server.objects["bucket/run/history.jsonl"].splitlines()) == 3  # and the checkpoint counts two
    server.fault = lambda _: None
    assert run("train", data.path, "--out", URL, *options, "--resume").code == 0
    assert server.objects["bucket/run/model.npz"] == train(data, TrainOptions(**PLAIN)).model.to_bytes()


def test_two_processes_do_not_write_to_one_run(server: ObjectServer, tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("one", "two")]
    for folder in folders:
        folder.mkdir()
        (folder / "checkpoint.npz").write_bytes(folder.name.encode())
    one, two = (RemoteRun(URL, folder, False) for folder in folders)
    one.put(["checkpoint.npz"])
    (folders[0] / "checkpoint.npz").write_bytes(b"one, later")
    one.put(["checkpoint.npz"])
    with pytest.raises(InputError, match=f"^{URL}/checkpoint.npz: another process has changed it"):
        two.put(["checkpoint.npz"])
    assert server.objects["bucket/run/checkpoint.npz"] == b"one, later"


def test_a_run_is_replaced_if_it_is_asked_for(server: ObjectServer, data: Dataset) -> None:
    train(data, TrainOptions(**PLAIN), URL, keep_dual=True)
    server.objects["bucket/run/notes.txt"] = b"mine"
    other = train(data, TrainOptions(**{**PLAIN, "C": 1.0}), URL, overwrite=True)
    assert server.objects["bucket/run/model.npz"] == other.model.to_bytes()
    assert "dual.npz" not in names(server)
    assert server.objects["bucket/run/notes.txt"] == b"mine"


def test_errors_name_the_url(server: ObjectServer, data: Dataset, run: Run) -> None:
    server.fault = lambda request: "500" if request.method == "PUT" else None
    ran = run("train", data.path, "--out", URL)
    assert ran.code == 2
    assert f"{URL}/settings.json: cannot be written: " in ran.err
    server.fault = lambda _: None
    assert run("train", data.path, "--out", URL).code == 0
    server.objects["bucket/run/checkpoint.npz"] = b"no checkpoint"
    ran = run("train", data.path, "--out", URL, "--resume")
    assert ran.code == 2
    assert f"{URL}/checkpoint.npz: damaged" in ran.err
    ran = run("train", data.path, "--out", "s3://bucket/none", "--resume")
    assert "there is no checkpoint in s3://bucket/none; everything starts again" in ran.err
    with pytest.raises(InputError, match=r"^s3://bucket/other/model\.npz: No such file"):
        load("s3://bucket/other")


def test_an_estimator_is_saved_and_loaded_by_url(server: ObjectServer, data: Dataset, tmp_path: Path) -> None:
    fitted = LinearSVC().fit(data)
    fitted.save(tmp_path / "model.npz")
    fitted.save("s3://bucket/models/model.npz")
    assert server.objects["bucket/models/model.npz"] == (tmp_path / "model.npz").read_bytes()
    for url in ("s3://bucket/models/model.npz", "s3://bucket/models", f"file://{tmp_path}/model.npz"):
        loaded = streamsvm.load(url)
        np.testing.assert_array_equal(loaded.predict(data), fitted.predict(data))
    server.objects["bucket/models/model.npz"] = pickle.dumps(fitted)
    with pytest.raises(InputError, match=r"s3://bucket/models/model\.npz: "):
        streamsvm.load("s3://bucket/models/model.npz")  # a pickle would run code


def test_what_a_store_does_not_take_is_refused(server: ObjectServer, data: Dataset, run: Run) -> None:
    ran = run("train", data.path, "--out", URL, "--keep-ball")
    assert ran.code == 2
    assert "local disk only" in ran.err
    ran = run("train", data.path, "--out", "https://host/run")
    assert ran.code == 2
    assert "can be read only" in ran.err
