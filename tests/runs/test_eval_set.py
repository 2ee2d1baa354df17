"""Held-out rows: measured after each step, without a read of the training's rows, and a reason to stop."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, mean_absolute_error

from streamsvm.cli.main import main
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.models.model import load
from streamsvm.options import TrainOptions
from streamsvm.runs.held_out import EvalSet
from streamsvm.runs.results import Event
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError, MemoryBudgetError

RANDOM = np.random.default_rng(5)
X = RANDOM.normal(size=(1500, 6)).astype(np.float32)
Y = X[:, 0] - X[:, 1] + RANDOM.normal(size=1500) > 0
PLAIN = TrainOptions(C=10.0, tol=1e-9, options={"acceleration": "none"}, max_passes=40)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[Dataset, Dataset]:
    folder = tmp_path_factory.mktemp("rows")
    return ingest(X[:1000], folder / "train.zarr", Y[:1000]), ingest(X[1000:], folder / "eval.zarr", Y[1000:])


@pytest.mark.parametrize("kernel", ["linear", "rbf"])
def test_the_model_of_each_step_is_measured(kernel: str, rows: tuple[Dataset, Dataset]) -> None:
    learned, held_out = rows
    options = TrainOptions(C=1.0, kernel=kernel, gamma=0.2, tol=1e-6)
    events: list[Event] = []
    result = train(learned, options, eval_set=EvalSet(held_out), listener=events.append)
    scores = [line["eval_score"] for line in result.history]
    expected = accuracy_score(Y[1000:], np.asarray(result.model.decide(X[1000:])) > 0)
    assert scores[-1] == pytest.approx(expected, abs=1e-12)
    assert [event.line["eval_score"] for event in events] == scores
    alone = train(learned, options)
    assert alone.model.to_bytes() == result.model.to_bytes()
    if kernel == "linear":  # the support vectors of a kernel are taken from the rows of the training
        assert alone.read_bytes == result.read_bytes


@pytest.mark.parametrize("task", ["regress", "multi-label"])
def test_the_measure_is_that_of_the_task(task: str, tmp_path: Path) -> None:
    """Minus the mean absolute error for numbers, and F1 over all decisions for sets of labels."""
    y = 10.0 + X[:, 0] if task == "regress" else np.stack((Y, X[:, 2] > 0.5), axis=1)
    parts = {name: X[rows] for name, rows in (("train", slice(1000)), ("eval", slice(1000, None)))}
    targets = {"train": y[:1000], "eval": y[1000:]}
    regression = task == "regress"
    learned, held_out = (
        ingest(parts[name], tmp_path / f"{name}.zarr", targets[name], regression=regression) for name in parts
    )
    result = train(learned, TrainOptions(task=task, threads=1), eval_set=EvalSet(held_out))
    f = result.model.decide(X[1000:])
    expected = -mean_absolute_error(y[1000:], f) if regression else f1_score(y[1000:], f > 0, average="micro")
    assert result.history[-1]["eval_score"] == pytest.approx(expected, rel=1e-9)


def test_patience_ends_a_training_and_is_told_apart(rows: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    learned, held_out = rows
    result = train(learned, PLAIN, tmp_path / "run", eval_set=EvalSet(held_out, patience=3))
    scores = [line["eval_score"] for line in result.history]
    assert result.status == "early_stop"
    assert "has not risen for 3 steps" in result.status_reason
    assert max(scores[:-3]) >= max(scores[-3:])
    assert all(max(scores[: k - 3]) < max(scores[k - 3 : k]) for k in range(4, len(scores)))
    assert result.relative_gap is not None
    assert result.relative_gap > 1e-9
    again = train(learned, PLAIN, tmp_path / "run", resume=True, eval_set=EvalSet(held_out, patience=3))
    assert (again.status, again.steps) == ("early_stop", result.steps)


def test_a_stopped_run_goes_on_with_its_patience(rows: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    learned, held_out = rows
    whole = train(learned, PLAIN, eval_set=EvalSet(held_out, patience=3))
    part = TrainOptions(**{**vars(PLAIN), "max_passes": whole.passes - 2})
    assert train(learned, part, tmp_path / "run", eval_set=EvalSet(held_out, patience=3)).status == "pass_limit"
    resumed = train(learned, PLAIN, tmp_path / "run", resume=True, eval_set=EvalSet(held_out, patience=3))
    assert (resumed.status, resumed.model_sha256) == ("early_stop", whole.model_sha256)


def test_the_command(rows: tuple[Dataset, Dataset], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    learned, held_out = (dataset.path for dataset in rows)
    asked = ["train", learned, "--C", "10", "--tol", "1e-9", "--option", "acceleration=none", "--out"]
    assert main([*asked, str(tmp_path / "run"), "--eval", held_out, "--patience", "3", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["status"] == "early_stop"
    model = load(tmp_path / "run")
    lines = [json.loads(line) for line in (tmp_path / "run" / "history.jsonl").read_text().splitlines()]
    assert lines[-1]["eval_score"] == accuracy_score(Y[1000:], np.asarray(model.decide(X[1000:])) > 0)
    for wrong, reason in (
        (["--patience", "3"], "--patience has no effect without --eval"),
        (["--eval", held_out, "--keep-ball"], "remove --start-from and --keep-ball"),
        (["--eval", str(tmp_path / "none.zarr")], "no such dataset"),
    ):
        assert main([*asked, str(tmp_path / "no"), *wrong]) == 2
        assert reason in capsys.readouterr().err
        assert not (tmp_path / "no").exists()


def test_rows_that_do_not_suit_are_refused_before_the_first_pass(rows: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    learned, held_out = rows
    narrow = ingest(X[:100, :3], tmp_path / "narrow.zarr", Y[:100])
    with pytest.raises(InputError, match="its rows have 3 features, but the training rows have 6"):
        train(learned, PLAIN, tmp_path / "run", eval_set=EvalSet(narrow))
    with pytest.raises(InputError, match="has no labels"):
        train(learned, PLAIN, tmp_path / "run", eval_set=EvalSet(ingest(X[:100], tmp_path / "bare.zarr")))
    with pytest.raises(InputError, match="patience is 0"):
        EvalSet(held_out, patience=0)
    assert not (tmp_path / "run").exists()


def test_its_memory_is_projected(rows: tuple[Dataset, Dataset], tmp_path: Path) -> None:
    learned, _ = rows
    many = ingest(np.ones((1_500_000, 6), np.float32), tmp_path / "many.zarr", np.arange(1_500_000) % 2)
    alone = train(learned, PLAIN).projected_memory_bytes
    tight = TrainOptions(**{**vars(PLAIN), "memory_bytes": alone + (8 << 20)})
    train(learned, tight)
    with pytest.raises(MemoryBudgetError):
        train(learned, tight, eval_set=EvalSet(many))
