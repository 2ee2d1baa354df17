"""Features that are stopped, by Ctrl-C or a kill, and gone on with: the same dataset, and no finished pass twice."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm import InteriorPoint
from streamsvm.data.open import open_dataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.local import ThreadedEngine
from streamsvm.estimators import SVC
from streamsvm.options import TrainOptions
from streamsvm.runs.features import make_features
from streamsvm.runs.records import name_checkpoint
from streamsvm.solvers.options import FeatureOptions
from streamsvm.system.errors import InputError
from tests.commands import Run, run  # noqa: F401
from tests.conftest import make_problem
from tests.faults.instants import in_fork

KERNEL = TrainOptions(kernel="rbf", gamma=0.2)
N = 300
PASSES = {"cholesky": 11, "eigen": 12, "polynomial": 2, "nystrom": 1}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return make_problem(4, n=N).store(tmp_path_factory.mktemp("rows") / "rows.zarr", chunk_bytes=1200)


class Stop:
    """Counts the rows that are read, and stops after so many."""

    def __init__(self, after: int | None = None, how: str = "ctrl-c") -> None:
        self.after, self.how, self.n_rows = after, how, 0

    def __call__(self, n_rows: int) -> None:
        self.n_rows += n_rows
        if self.after is not None and self.n_rows >= self.after:
            if self.how == "kill":
                os._exit(9)
            raise KeyboardInterrupt


@pytest.mark.slow("stops and resumes in every pass")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the children begin with what they need
@pytest.mark.parametrize("how", ["ctrl-c", "kill"])
@pytest.mark.parametrize("name", PASSES)
def test_no_finished_pass_is_made_again(name: str, how: str, source: Dataset, tmp_path: Path) -> None:
    """Stopped in the middle of a pass: that pass is made again, and those after it."""
    options = FeatureOptions(name, 20)
    whole = make_features(source, tmp_path / "whole.zarr", options, KERNEL).dataset
    assert whole.meta["passes"] == PASSES[name]
    for at in sorted({0, 1, PASSES[name] // 2, PASSES[name] - 1} & set(range(PASSES[name]))):
        out = tmp_path / f"{at}.zarr"

        def carry_out(out: Path = out, at: int = at) -> None:
            make_features(source, out, options, KERNEL, Stop(at * N + N // 2, how))

        assert in_fork(carry_out) == {"ctrl-c": 2, "kill": 9}[how]
        assert not out.exists()
        counter = Stop()
        resumed = make_features(source, out, options, KERNEL, counter, resume=True).dataset
        assert resumed.fingerprint == whole.fingerprint
        assert counter.n_rows == (PASSES[name] - at) * N
        left = {path.name for path in tmp_path.iterdir()}
        assert not [name for name in left if name.startswith(f".{at}.")], left


@pytest.mark.parametrize(
    ("options", "kernel", "message"),
    [
        (FeatureOptions("cholesky", 21), KERNEL, "rank was 20, now 21"),
        (FeatureOptions("cholesky", 20, seed=1), KERNEL, "seed was 0, now 1"),
        (FeatureOptions("eigen", 20), KERNEL, "map was 'cholesky', now 'eigen'"),
        (FeatureOptions("cholesky", 20), replace(KERNEL, gamma=0.3), r"gamma was 0\.2, now 0\.3"),
    ],
)
def test_other_settings_are_refused(
    options: FeatureOptions, kernel: TrainOptions, message: str, source: Dataset, tmp_path: Path
) -> None:
    out = tmp_path / "f.zarr"
    with pytest.raises(KeyboardInterrupt):
        make_features(source, out, FeatureOptions("cholesky", 20), KERNEL, Stop(3 * N))
    kept = name_checkpoint(out).read_bytes()
    with pytest.raises(InputError, match=rf"\.f\.zarr\.passes\.npz: cannot be resumed with other settings: {message}"):
        make_features(source, out, options, kernel, resume=True)
    other = make_problem(5, n=N).store(tmp_path / "other.zarr")
    with pytest.raises(InputError, match="fingerprint was"):
        make_features(other, out, FeatureOptions("cholesky", 20), KERNEL, resume=True)
    assert name_checkpoint(out).read_bytes() == kept
    anew = make_features(source, out, options, kernel).dataset
    assert anew.fingerprint == make_features(source, tmp_path / "g.zarr", options, kernel).dataset.fingerprint
    assert not name_checkpoint(out).exists()


@pytest.mark.parametrize("content", [b"", b"PK damaged", None])
def test_what_was_kept_may_be_damaged(content: bytes | None, source: Dataset, tmp_path: Path) -> None:
    kept = name_checkpoint(tmp_path / "f.zarr")
    if content is None:
        with kept.open("wb") as file:
            np.savez(file, pivots=np.arange(3))
    else:
        kept.write_bytes(content)
    with pytest.raises(InputError, match=r"\.f\.zarr\.passes\.npz: damaged"):
        make_features(source, tmp_path / "f.zarr", FeatureOptions("cholesky", 20), KERNEL, resume=True)
    make_features(source, tmp_path / "f.zarr", FeatureOptions("cholesky", 20), KERNEL)


def test_from_the_command_line(run: Run, source: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, kept = tmp_path / "f.zarr", tmp_path / ".f.zarr.passes.npz"
    command = ["features", source.path, out, "--rank", "20", "--gamma", "0.2", "--json"]
    assert run("features", source.path, tmp_path / "whole.zarr", *command[3:]).code == 0
    stop = Stop(5 * N + 1)
    with monkeypatch.context() as patch:
        patch.setattr("streamsvm.cli.progress.RowCounter.add", lambda _, n_rows: stop(n_rows))
        ran = run(*command)
    message = f"continue with the same command and --resume (the results of the finished passes are in {kept})"
    assert (ran.code, ran.err) == (1, f"streamsvm features: interrupted; {message}\n")
    assert {path.name for path in tmp_path.iterdir()} == {"whole.zarr", kept.name}
    refused = run(*command, "--resume", "--seed", "1")
    told = f"; the results of the finished passes are in {kept}, for --resume"
    assert (refused.code, told in refused.err) == (2, True)
    assert run(*command, "--resume").code == 0
    assert open_dataset(out).fingerprint == open_dataset(tmp_path / "whole.zarr").fingerprint
    assert run(*command).code == 2
    assert run(*command, "--overwrite").code == 0
    assert run("features", out, out, "--overwrite").code == 2
    ran = run("features", source.path, source.path, "--overwrite")
    assert (ran.code, "is read by this command" in ran.err) == (2, True)
    assert {path.name for path in tmp_path.iterdir()} == {"whole.zarr", "f.zarr"}


def test_an_estimator_goes_on_with_its_features(
    source: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fit(checkpoint: Path | None) -> Any:
        return SVC(gamma=0.2, tol=1e-6, checkpoint=checkpoint, solver=InteriorPoint(n_components=20)).fit(source)

    passes: list[Any] = []
    scan = ThreadedEngine.scan

    def count(self: ThreadedEngine, request: Any) -> Any:
        if not request.of_states:  # numbers of rows are not read
            passes.append(request)
        if len(passes) == 5:
            raise KeyboardInterrupt
        return scan(self, request)

    whole = fit(None)
    monkeypatch.setattr(ThreadedEngine, "scan", count)
    with pytest.raises(KeyboardInterrupt):
        fit(tmp_path / "run")
    resumed = fit(tmp_path / "run")
    assert len(passes) == 1 + whole.n_passes_
    assert resumed.result_.model_sha256 == whole.result_.model_sha256
    assert resumed.n_passes_ == whole.n_passes_
