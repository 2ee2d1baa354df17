"""What has an entry for each row and travels between driver and workers takes no more than is planned for messages."""

from __future__ import annotations

import pickle
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.engines.local import SerialEngine, ThreadedEngine
from streamsvm.engines.merge import answer
from streamsvm.ingestion.readers import ingest
from streamsvm.options import TrainOptions
from streamsvm.passes import All, Scan, Step
from streamsvm.runs.train import train
from streamsvm.solvers.set_up import set_up

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


@pytest.mark.slow("measures memory")
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


FREE_OF_ROWS: dict[str, dict[str, Any]] = {
    "line search": {"options": {"acceleration": "line-search"}},
    "one read": {"options": {"acceleration": "one-read"}, "resident_rows": 300},
    "regression, cutting planes": {"task": "regress", "solver": "cutting-plane"},
    "regression, newton": {"task": "regress", "resident_rows": 300},
    "newton": {"loss": "logistic", "resident_rows": 300},
    "interior-point": {"solver": "interior-point"},
    "rank": {"task": "rank"},
}
# Already the fewer are more than the rows that any of these solvers looks at singly. The sample of a ranking, every
# 16th or every 32nd query, has as many rows of both; so has a random sample, nearly.
FEW, MANY = 524_288, 1_048_576


@pytest.mark.slow("measures memory")
@pytest.mark.parametrize("case", FREE_OF_ROWS)
def test_what_the_driver_sends_receives_and_saves_does_not_grow_with_the_rows(case: str) -> None:
    """One byte more for each row that is added would be noticed in what is planned, and in what is counted."""
    (few, planned_few), (many, planned_many) = (_count_bytes(n_rows, FREE_OF_ROWS[case]) for n_rows in (FEW, MANY))
    assert few > 0
    assert many - few < MANY - FEW
    assert planned_many - planned_few < MANY - FEW


def _count_bytes(n_rows: int, case: dict[str, Any]) -> tuple[int, int]:
    """Return the bytes of three steps' largest request, answer or state, and those that are planned for the driver."""
    random = np.random.default_rng(0)
    X = random.standard_normal((n_rows, 3), np.float32)
    scores = X[:, 0] + random.standard_normal(n_rows)
    source = ArrayDataset(X, (scores > 0).astype(np.int32), np.arange(2))
    if case.get("task") == "regress":
        source = ArrayDataset(X, None, None, target=scores)
    if case.get("task") == "rank":
        source = ArrayDataset(X, (scores > 0).astype(np.int32), np.arange(2), qid=np.arange(n_rows) // 50)
    fit = set_up(source, TrainOptions(C=100 / n_rows, tol=1e-9, **case))
    solver, engine, largest, steps = fit.solve(fit.start()), SerialEngine(source), 0, 0
    request = next(solver)
    while steps < 3:
        if isinstance(request, Step):
            steps += 1
            state = {part.name: getattr(request.state, part.name) for part in fields(request.state)}
            largest = max(largest, len(pickle.dumps(state)))
            if request.status is not None:
                break
            request = solver.send(None)
            continue
        found = answer(engine, request)
        largest = max(largest, len(pickle.dumps(found)), _count_sent(request))
        request = solver.send(found)
    need = fit.memory(1)
    return largest, need.driver_bytes + need.gathered_bytes + need.by_row_bytes + need.shared_bytes


def _count_sent(request: Any) -> int:
    """Return the bytes of the arrays that go out with a request, with those of the changes of rows' numbers."""
    if isinstance(request, All):
        return sum(map(_count_sent, request.requests))
    if not isinstance(request, Scan):
        return 0
    given = [change.given for state in request.states for change in state.changes]
    return len(pickle.dumps((request.shared, request.by_row, given)))
