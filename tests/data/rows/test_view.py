"""A view of the first chunks tells of these chunks alone, as a dataset of their rows would."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamsvm.data.rows.views import ChunkRange
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.options import TrainOptions
from streamsvm.solvers.set_up import set_up
from tests.conftest import make_problem


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("n_chunks", [1, 3])
def test_the_first_chunks_are_a_source_of_their_rows(tmp_path: Path, weighted: bool, n_chunks: int) -> None:
    dataset = make_problem(1, n=200, weighted=weighted).store(tmp_path / "rows", chunk_bytes=800)
    view = ChunkRange(dataset, 0, n_chunks)
    n = int(dataset.chunk_starts[n_chunks])
    assert 0 < n == view.n_rows < dataset.n_rows
    rows = dataset.take(np.arange(n))
    assert isinstance(rows.X, np.ndarray)
    alike = ArrayDataset(rows.X, rows.y, dataset.classes, rows.sample_weight)
    for name in ("y", "sample_weight", "qid"):
        np.testing.assert_array_equal(view.column(name), alike.column(name))
    np.testing.assert_array_equal(view.class_counts, alike.class_counts)
    np.testing.assert_array_equal(view.sum_weights(), alike.sum_weights())
    balanced = TrainOptions(class_weight="balanced", options={"acceleration": "line-search"})
    assert set_up(view, balanced).settings == set_up(alike, balanced).settings


def test_rows_without_labels_have_no_counts() -> None:
    view = ChunkRange(ArrayDataset(np.zeros((4, 2)), None, None), 0, 1)
    assert (view.column("y"), view.class_counts, view.sum_weights()) == (None, None, None)
