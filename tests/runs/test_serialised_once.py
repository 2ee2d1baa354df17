"""What a run does once, however many steps and files it has."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamsvm.models import model
from streamsvm.models.model import load
from streamsvm.options import TrainOptions
from streamsvm.runs.calibrate import make_folds, train_with_probabilities
from streamsvm.runs.train import Training, train
from tests.conftest import make_problem

OPTIONS = TrainOptions(tol=1e-3)
WAYS: dict[str, tuple[int, Callable[..., Any]]] = {
    "in memory": (0, lambda source, _: train(source, OPTIONS)),
    "in a folder": (1, lambda source, out: train(source, OPTIONS, out)),
    "with its dual point": (1, lambda source, out: train(source, OPTIONS, out, keep_dual=True)),
    "with probabilities": (
        1,
        lambda source, out: train_with_probabilities(source, OPTIONS, make_folds(source, OPTIONS, "sigmoid"), out),
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_model_is_serialised_once(way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its bytes take as much memory as the model, and time; and its SHA-256 is that of the file."""
    pack, packed, (n_times, make) = model.pack_arrays, list[bytes](), WAYS[way]
    monkeypatch.setattr(model, "pack_arrays", lambda arrays: packed.append(pack(arrays)) or packed[-1])
    result = make(make_problem(1).store(tmp_path / "rows"), tmp_path / "run")
    assert len(packed) == n_times
    if n_times:
        assert load(tmp_path / "run/model.npz").sha256 == result.model_sha256


def test_the_history_is_not_copied_at_each_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """It grows by a line a step; a result has its own."""
    histories: list[list[Any]] = []
    monkeypatch.setattr(Training, "save", lambda self, now=True: None if now else histories.append(self.history))
    result = train(make_problem(1).in_memory(), TrainOptions(tol=1e-3, options={"acceleration": "line-search"}))
    assert len(result.history) == len(histories) > 2
    assert all(each is histories[0] for each in histories)
    assert result.history == histories[0]
    assert result.history is not histories[0]
