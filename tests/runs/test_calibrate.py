"""A model and its folds share their reads; stopped within the folds, a run goes on to the same bits."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.cli.main import main
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.local import ThreadedEngine
from streamsvm.ingestion.readers import ingest
from streamsvm.models.calibration import BLOCK_SCORES
from streamsvm.models.model import load
from streamsvm.options import TrainOptions
from streamsvm.passes import Scan
from streamsvm.runs import calibrate as fold_fits
from streamsvm.runs import folder
from streamsvm.runs import train as training
from streamsvm.runs.calibrate import (
    LABEL_BYTES,
    ROW_BYTES,
    SCORE_BYTES,
    calibrate_scores,
    make_folds,
    train_with_probabilities,
)
from streamsvm.runs.results import Result
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError
from tests.data.conftest import measure_peak
from tests.faults.instants import in_fork

RANDOM = np.random.default_rng(2)
X = RANDOM.normal(size=(600, 4)).astype(np.float32)
Y = np.where(X[:, 0] - X[:, 1] + X[:, 2] ** 2 + RANDOM.normal(size=600) > 0.7, "b", "a")
LINEAR = TrainOptions(threads=1)
LONG = TrainOptions(threads=1, tol=1e-6, options={"acceleration": "line-search"})
SMO = TrainOptions(
    threads=1, solver="smo", kernel="rbf", tol=1e-6, resident_rows=150, options={"working_rows": "40"}
)  # gamma="scale" is measured in a read before


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    return ingest(X, tmp_path_factory.mktemp("rows") / "rows.zarr", Y, chunk_bytes=1000)


def train_by(source: Dataset, options: TrainOptions, way: str, out: Path | None = None, resume: bool = False) -> Result:
    """Train a model with probabilities."""
    return train_with_probabilities(source, options, make_folds(source, options, way), out, resume)


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[Scan]:
    """The passes that engines carry out."""
    found: list[Scan] = []
    scan = ThreadedEngine.scan

    def note(engine: ThreadedEngine, request: Scan) -> Any:
        found.append(request)
        return scan(engine, request)

    monkeypatch.setattr(ThreadedEngine, "scan", note)
    return found


@pytest.mark.parametrize("options", [LINEAR, LONG, replace(LINEAR, loss="squared_hinge"), SMO])
def test_the_folds_take_one_read_more_than_the_model(
    options: TrainOptions, dataset: Dataset, reads: list[Scan]
) -> None:
    alone = train(dataset, options).passes
    assert len(reads) == alone
    reads.clear()
    result = train_by(dataset, options, "sigmoid")
    assert len(reads) == result.passes
    if options is not SMO:  # whose folds need more passes than the model, since active rows are chosen in each
        assert result.passes == alone + 1


def stop_at(event: int, stop: Callable[[], Any]) -> Callable[[Any], None]:
    seen = 0

    def listen(_: Any) -> None:
        nonlocal seen
        seen += 1
        if seen == event:
            stop()

    return listen


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.mark.slow("stops and resumes in every fold")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")  # the children begin with what they need
@pytest.mark.parametrize("options", [LONG, SMO], ids=["linear", "smo"])
@pytest.mark.parametrize("stopped_by", ["ctrl-c", "kill"])
def test_stopped_in_its_folds_a_run_goes_on_to_the_same_bits(
    options: TrainOptions, stopped_by: str, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[Any] = []
    monkeypatch.setattr(fold_fits, "_stay_silent", steps.append)
    whole = train_by(dataset, options, "isotonic", tmp_path / "whole")
    n_steps = len(steps)
    assert n_steps > 20
    if stopped_by == "kill":  # with a checkpoint after each step
        monkeypatch.setattr(folder, "CHECKPOINT_SECONDS", 0.0)
        monkeypatch.setattr(folder, "MOST_CHECKPOINT_SHARE", float("inf"))
    for at in (n_steps // 2, n_steps):
        out, stop = tmp_path / f"{at}", interrupt if stopped_by == "ctrl-c" else lambda: os._exit(9)

        def carry_out(out: Path = out, at: int = at, stop: Callable[[], Any] = stop) -> None:
            monkeypatch.setattr(fold_fits, "_stay_silent", stop_at(at, stop))
            assert train_by(dataset, options, "isotonic", out).status == "interrupted"

        assert in_fork(carry_out) == {"ctrl-c": 0, "kill": 9}[stopped_by]
        steps.clear()
        again = train_by(dataset, options, "isotonic", out, resume=True)
        assert len(steps) < n_steps - at // 2
        assert (out / "model.npz").read_bytes() == (tmp_path / "whole/model.npz").read_bytes()
        assert (again.status, again.passes) == (whole.status, whole.passes)
        assert json.loads((out / "result.json").read_text())["status"] == "converged"


def test_an_interrupted_run_has_a_model_without_probabilities(
    dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fold_fits, "_stay_silent", stop_at(5, interrupt))
    result = train_by(dataset, LINEAR, "sigmoid", tmp_path / "run")
    assert result.status == "interrupted"
    assert "sigmoids" not in load(tmp_path / "run").info
    assert not result.finished


@pytest.mark.parametrize("options", [LINEAR, SMO], ids=["linear", "smo"])
def test_a_run_that_was_begun_alone_gets_probabilities(
    options: TrainOptions, dataset: Dataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its resident rows had all of the memory, and so the folds cannot be trained beside it."""
    out, some = tmp_path / "run", replace(options, resident_rows=200)
    alone = train(dataset, some, out)
    monkeypatch.setattr(training, "share_memory", lambda options, *_: replace(options, resident_rows=100))
    result = train_by(dataset, some, "sigmoid", out, resume=True)
    assert load(out).info["sigmoids"]["A"][0] < 0
    assert (result.objective, json.loads((out / "result.json").read_text())["passes"]) == (
        alone.objective,
        result.passes,
    )
    assert result.passes > alone.passes + 1
    other = train_by(dataset, some, "temperature", out, resume=True)
    assert set(load(out).info) & {"sigmoids", "isotonic", "temperature"} == {"temperature"}
    assert other.passes == result.passes  # the folds are there already


def test_folds_of_another_run_are_removed(dataset: Dataset, tmp_path: Path) -> None:
    out = tmp_path / "run"
    train_by(dataset, LINEAR, "sigmoid", out)
    other = replace(LINEAR, C=0.01, tol=1e-2)
    train(dataset, other, out, overwrite=True)
    assert not (out / "folds").exists()
    found = train_by(dataset, other, "sigmoid", out, resume=True)
    expected = train_by(dataset, other, "sigmoid")
    assert found.model_sha256 == expected.model_sha256


@pytest.mark.parametrize("what", ["weights", "scored rows"])
def test_a_class_that_cannot_be_calibrated_is_refused_before_the_first_pass(
    what: str, reads: list[Scan], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows of class b outside of some fold have no weight, or are not among those that are scored."""
    rare, weight = np.full(600, "a"), np.ones(600)
    rare[:9] = "b"
    if what == "weights":
        weight[:8] = 0.0
    else:
        monkeypatch.setattr(fold_fits, "MOST_SCORES", 3)
    dataset = ingest(X, tmp_path / "rows.zarr", rare, sample_weight=weight)
    for way in ("sigmoid", "isotonic"):
        with pytest.raises(InputError, match=f"by {way} need, for every fold, a row of the class b with a weight"):
            train_by(dataset, LINEAR, way)
    assert not reads
    assert train_by(dataset, LINEAR, "temperature").status == "converged"
    none = ingest(X, tmp_path / "none.zarr", Y, sample_weight=np.zeros(600))
    with pytest.raises(InputError, match="by temperature need, for every fold, a row with a weight above 0"):
        train_by(none, LINEAR, "temperature")


def test_an_update_is_refused_before_the_first_pass(dataset: Dataset, tmp_path: Path) -> None:
    rare = np.full(600, "a")
    rare[:3] = "b"
    ingest(X, tmp_path / "rows.zarr", rare, sample_weight=np.where(rare == "b", 0.0, 1.0))
    given = ["train", str(tmp_path / "rows.zarr"), "--keep-ball", "--probabilities", "sigmoid"]
    assert main([*given, "--out", str(tmp_path / "run")]) == 2
    assert not (tmp_path / "run").exists()


@pytest.mark.slow("measures memory")
@pytest.mark.parametrize("way", ["isotonic", "temperature"])
def test_scores_take_the_memory_that_is_counted(way: str) -> None:
    """Of many classes; a few scores are computed on at a time."""
    n_rows, K = 4_000 if way == "temperature" else 1_000, 100
    random, codes = np.random.default_rng(0), (np.arange(n_rows) // 5 % K).astype(np.int32)
    fold = (np.arange(n_rows) % 5).astype(np.uint8)
    scores = random.normal(size=(n_rows, K)) + (codes[:, None] == np.arange(K))

    def calibrate() -> None:
        calibrate_scores(way, scores, codes, np.ones(n_rows), fold)

    calibrate()  # whatever is made once only
    counted = n_rows * (ROW_BYTES + SCORE_BYTES * K)
    assert scores.nbytes + measure_peak(calibrate) <= counted + 6 * 8 * BLOCK_SCORES


@pytest.mark.slow("measures memory")
@pytest.mark.parametrize("way", ["sigmoid", "isotonic"])
def test_scores_of_labels_take_the_memory_that_is_counted(way: str) -> None:
    n_rows, L = 10_000, 100
    random, fold = np.random.default_rng(0), (np.arange(10_000) % 5).astype(np.uint8)
    scores = random.normal(size=(n_rows, L)) - 2
    has = scores + random.normal(size=(n_rows, L)) > 0

    def calibrate() -> None:
        calibrate_scores(way, scores, has, np.ones(n_rows), fold)

    calibrate()  # whatever is made once only
    assert scores.nbytes + has.nbytes + measure_peak(calibrate) <= n_rows * (ROW_BYTES + LABEL_BYTES * L)
