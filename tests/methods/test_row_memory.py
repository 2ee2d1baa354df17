"""What has an entry for each row and travels between driver and workers takes no more than is planned for messages."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.data.readers import ingest
from streamsvm.engines.dask import ThreadedEngine
from streamsvm.methods.set_up import set_up
from streamsvm.requests import Scan
from streamsvm.training.train import TrainOptions, train

N_ROWS = 20_000
CASES = {
    "interior-point": {"solver": "interior-point"},
    "rank": {"task": "rank"},
    "roc-area": {"task": "roc-area"},
    "smo": {"solver": "smo", "kernel": "rbf", "gamma": 0.1, "resident_rows": 300},
    "irwls": {"solver": "irwls", "kernel": "rbf", "gamma": 0.1, "resident_rows": 300},
    "block ascent": {"options": {"acceleration": "block-ascent"}, "resident_rows": 300},
    "crammer-singer": {"task": "crammer-singer", "resident_rows": 300},
}


@pytest.mark.once
@pytest.mark.parametrize("case", CASES)
def test_messages_take_no_more_than_is_planned(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of three passes, arrays by row as they are sent, and the totals of all rows as they are packed."""
    random = np.random.default_rng(0)
    X = random.standard_normal((N_ROWS, 3), np.float32)
    y = np.where(X[:, 0] + random.standard_normal(N_ROWS) > 0, 1, -1)
    dataset = ingest(X, tmp_path / "rows", y, chunk_bytes=20_000)
    options = TrainOptions(max_passes=3, threads=1, **CASES[case])  # type: ignore[arg-type]
    sent, gathered, scan_all = [0], [0], ThreadedEngine.scan

    def record(engine: ThreadedEngine, scan: Scan) -> Any:
        totals = scan_all(engine, scan)
        sent.append(sum(array.nbytes for array in scan.by_row))
        gathered.append(len(pickle.dumps(totals)))
        return totals

    monkeypatch.setattr(ThreadedEngine, "scan", record)
    train(dataset, options)
    need = set_up(dataset, options).memory(1)
    assert max(sent) <= need.by_row_bytes + need.shared_bytes
    assert max(gathered) <= 1.1 * (need.totals_bytes + need.gathered_bytes) + 10_000
