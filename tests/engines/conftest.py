"""The rows that engines are tested on: dense and sparse, raw and compressed, on disk and in memory."""

from __future__ import annotations

import pytest

from streamsvm.data.rows.source import RowSource
from streamsvm.data.sources import in_memory
from tests.conftest import Problem, make_problem

DENSE = make_problem(1, n=1100, d=7, weighted=True)
SPARSE = make_problem(2, n=1100, d=40, density=0.2)
WIDE = make_problem(3, n=3000, d=256)


def open_in_memory(problem: Problem, chunk_bytes: int) -> RowSource:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(in_memory, "CHUNK_BYTES", chunk_bytes)
        return problem.in_memory()


@pytest.fixture(scope="package")
def sources(tmp_path_factory: pytest.TempPathFactory) -> dict[str, RowSource]:
    """By name; some 16 chunks each. `tiles` has chunks of several tiles."""
    folder = tmp_path_factory.mktemp("sources")
    return {
        "dense": DENSE.store(folder / "dense", layout="dense", chunk_bytes=2000),
        "sparse": SPARSE.store(folder / "sparse", layout="sparse", chunk_bytes=5000),
        "dense-lz4": DENSE.store(folder / "dense-lz4", layout="dense", chunk_bytes=2000, codec="lz4"),
        "sparse-lz4": SPARSE.store(folder / "sparse-lz4", layout="sparse", chunk_bytes=5000, codec="lz4"),
        "dense-tiles": WIDE.store(folder / "dense-tiles", layout="dense", chunk_bytes=1_200_000),
        "sparse-tiles": WIDE.store(folder / "sparse-tiles", layout="sparse", chunk_bytes=1_200_000),
        "dense-memory": open_in_memory(DENSE, 2000),
        "sparse-memory": open_in_memory(SPARSE, 5000),
    }


PROBLEMS = {"dense": DENSE, "sparse": SPARSE, "dense-tiles": WIDE, "sparse-tiles": WIDE}
PROBLEMS |= {f"{form}-{how}": PROBLEMS[form] for form in ("dense", "sparse") for how in ("lz4", "memory")}
