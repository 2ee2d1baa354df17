"""Ingest in bounded memory, measured in a process of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.data.conftest import RunPython

PEAK = """
    import sys
    import numpy as np
    from scipy.sparse import csr_array
    from streamsvm.ingestion.ingest import write_dataset
    from streamsvm.ingestion.ingest import IngestOptions
    from streamsvm.data.rows.source import SourceRows
    from streamsvm.system.machine import peak_bytes, reset_peak, resident_bytes

    def dense():
        for block in range(50):
            X = np.random.default_rng(block).random((20_000, 100), np.float32)
            yield SourceRows(X, (X[:, 0] > 0.5).astype(float))

    def wide():
        for block in range(4):
            rng = np.random.default_rng(block)
            indices = rng.integers(0, 250_000, 1500).astype(np.int32)
            X = csr_array((np.ones(1500, np.float32), indices, np.arange(0, 1501, 20)), (75, 250_000))
            yield SourceRows(X, rng.integers(0, 2, 75).astype(float))

    def ingest(source, name, **options):
        write_dataset(source, f"{sys.argv[1]}/{name}", "rows", int(sys.argv[3]), IngestOptions(**options))

    ingest(iter([SourceRows(np.eye(2, dtype=np.float32))]), "first")  # what is loaded once only
    start = resident_bytes()
    reset_peak()
    if sys.argv[2] == "dense":
        ingest(dense(), "d.zarr", scale="standard", chunk_bytes=8 << 20)
    else:
        ingest(wide(), "d.zarr", layout="dense", shuffle=None, chunk_bytes=8 << 20, codec="lz4")
    print(peak_bytes() - start)
"""


def measure_peak(run_python: RunPython, folder: Path, source: str, expected_bytes: int) -> int:
    try:
        child = run_python(PEAK, folder, source, expected_bytes)
        shown, _ = child.communicate()
        assert child.returncode == 0
        return int(shown)
    finally:
        for file in folder.rglob("c/*"):
            if file.is_file():
                file.unlink()


@pytest.mark.slow("measures the memory of ingests of much data")
@pytest.mark.parametrize("expected_bytes", [400_000_000, 0])
def test_a_large_source_is_ingested_in_bounded_memory(
    expected_bytes: int, run_python: RunPython, tmp_path: Path
) -> None:
    """400 MB of rows. Held at once: a run (64 MiB by size, 128 at most), and small parts of it in work: a piece
    of 8 MB, one of 8 MiB being scaled in float64 (3 copies), a chunk of 8 MiB being encoded (4 copies); and
    32 MiB for the allocator."""
    peak_bytes = measure_peak(run_python, tmp_path, "dense", expected_bytes)
    assert peak_bytes < (128 + 8 + 3 * 8 + 4 * 8 + 32 << 20)


def test_sparse_rows_are_written_out_in_bounded_memory(run_python: RunPython, tmp_path: Path) -> None:
    """50 kB of sparse rows, 300 MB when they are dense: as above, without a run to speak of."""
    peak_bytes = measure_peak(run_python, tmp_path, "wide", 0)
    assert peak_bytes < (8 + 3 * 8 + 4 * 8 + 32 << 20)
