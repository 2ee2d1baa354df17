"""From a file to a dataset: `ingest` compared with pyarrow, which only reads, and with another version of streamsvm.

    python benchmarks/ingest.py [--rows 1000000] [--features 28] [--rounds 5] [--before FOLDER] [FILE ...]

Prints Markdown tables of medians: CPU seconds of all threads, and wall seconds, which depend on the other programs that
run. The stages take turns (A B C A B C ...), each in a separate process. The files are generated (dense rows as CSV,
Parquet and svmlight) or given. The labels are the column named `label`, or else the last column. FOLDER is a checkout
of another version.

    pyarrow   pyarrow reads the file in batches, whose columns are copied side by side into float32
    read      the reader of streamsvm, whose rows are discarded
    ingest    the whole command: read, survey, spool, shuffle, checksums, write
    floor     a file as large as the dataset, with checksums, written and synced to the disk
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

BLOCK_BYTES = 8 << 20


def make_files(folder: Path, n_rows: int, n_features: int) -> list[Path]:
    """Write the same dense rows as CSV, Parquet and svmlight text."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    rng = np.random.default_rng(0)
    X = rng.standard_normal((n_rows, n_features), dtype=np.float32)
    y = (X[:, 0] > 0).astype(np.int64)
    table = pa.table({f"f{j}": X[:, j] for j in range(n_features)} | {"label": y})
    paths = [folder / f"dense.{suffix}" for suffix in ("csv", "parquet", "svm")]
    pyarrow.csv.write_csv(table, paths[0])
    pyarrow.parquet.write_table(table, paths[1])
    with paths[0].open() as rows, paths[2].open("w") as text:
        next(rows)
        for row in rows:
            *values, label = row.rstrip("\n").split(",")
            text.write(f"{label} {' '.join(f'{j}:{value}' for j, value in enumerate(values, 1))}\n")
    return paths


def read_by_pyarrow(path: Path) -> int:
    """Read a table by pyarrow in batches, and copy each batch into one array."""
    import pyarrow.csv
    import pyarrow.parquet

    n_rows = 0
    is_csv = path.suffix == ".csv"
    options = pyarrow.csv.ReadOptions(block_size=BLOCK_BYTES)
    file = None if is_csv else pyarrow.parquet.ParquetFile(path)
    for batch in pyarrow.csv.open_csv(path, options) if file is None else file.iter_batches(1 << 16):
        X = np.empty((batch.num_rows, batch.num_columns), np.float32)
        for j in range(batch.num_columns):
            X[:, j] = batch.column(j).to_numpy(zero_copy_only=False)
        n_rows += len(X)
    return n_rows


def read_by_us(path: Path) -> int:
    """Read a file by streamsvm, and discard the rows."""
    from streamsvm.data.tables.columns import Columns
    from streamsvm.ingestion.readers import open_files

    return sum(rows.n_rows for rows in open_files([path], None, Columns(label=find_label(path))))


def ingest(path: Path) -> int:
    """Ingest a file. The dataset is written next to it."""
    import streamsvm

    out = path.with_suffix(f".{os.getpid()}.zarr")
    try:
        return streamsvm.ingest(path, out, label=find_label(path)).n_rows
    finally:
        shutil.rmtree(out, ignore_errors=True)


def write_floor(path: Path) -> int:
    """Write as many bytes as the dense dataset of a table has."""
    import google_crc32c
    import pyarrow.parquet

    table = pyarrow.parquet.ParquetFile(path).metadata
    chunk, n_bytes = np.ones(BLOCK_BYTES, np.uint8), 4 * table.num_rows * table.num_columns
    out = path.with_suffix(f".{os.getpid()}.floor")
    with out.open("wb", buffering=0) as file:
        for _ in range(-(-n_bytes // BLOCK_BYTES)):
            file.write(google_crc32c.value(chunk).to_bytes(4, "little"))
            file.write(chunk.data)
        os.fsync(file.fileno())
    out.unlink()
    return int(table.num_rows)


def find_label(path: Path) -> str | None:
    """Return the name or number of the column of labels; None for svmlight text."""
    if path.suffix == ".csv":
        with path.open() as file:
            names = file.readline().strip().replace('"', "").split(",")
    elif path.suffix == ".parquet":
        import pyarrow.parquet

        names = pyarrow.parquet.ParquetFile(path).schema_arrow.names
    else:
        return None
    return "label" if "label" in names else str(len(names))


STAGES = {"pyarrow": read_by_pyarrow, "read": read_by_us, "ingest": ingest, "floor": write_floor}


def measure(stage: str, path: Path) -> None:
    """Carry out a stage twice; print rows, CPU and wall seconds of the second time, when everything is loaded."""
    for _ in range(2):
        began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
        n_rows = STAGES[stage](path)
        after, seconds = resource.getrusage(resource.RUSAGE_SELF), time.perf_counter() - began
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    print(json.dumps({"rows": n_rows, "cpu": cpu, "wall": seconds}))


def measure_elsewhere(stage: str, path: Path, checkout: Path) -> dict[str, Any]:
    """Measure a stage in a separate process, with the package of a checkout."""
    command = [sys.executable, __file__, "--stage", stage, str(path)]
    ran = subprocess.run(command, env={**os.environ, "PYTHONPATH": str(checkout)}, capture_output=True, check=True)
    found: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return found


def compare(path: Path, before: Path | None, rounds: int) -> None:
    """Print the rows of the table for one file."""
    here = Path(__file__).resolve().parents[1]
    jobs = {("pyarrow", here): "pyarrow", ("read", here): "read", ("ingest", here): "ingest", ("floor", here): "floor"}
    if before is not None:
        jobs |= {("read", before): "read, before", ("ingest", before): "ingest, before"}
    if path.suffix not in (".csv", ".parquet"):
        del jobs["pyarrow", here]
    if path.suffix != ".parquet":
        del jobs["floor", here]
    times: dict[str, list[dict[str, Any]]] = {name: [] for name in jobs.values()}
    for _ in range(rounds):
        for (stage, checkout), name in jobs.items():
            times[name].append(measure_elsewhere(stage, path, checkout))
    if len({each["rows"] for found in times.values() for each in found}) > 1:
        raise AssertionError(f"{path}: not all read the same number of rows")
    megabytes = path.stat().st_size / 1e6
    cpu = {name: median(each["cpu"] for each in found) for name, found in times.items()}
    for name, found in times.items():
        wall = median(each["wall"] for each in found)
        base = "pyarrow" if "pyarrow" in cpu else "read"
        print(
            f"| {path.name} | {megabytes:.0f} | {name} | {cpu[name]:.2f} | {megabytes / cpu[name]:.0f} | "
            f"{cpu[name] / cpu[base]:.2f} | {wall:.2f} |",
            flush=True,
        )


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="*", metavar="FILE")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--features", type=int, default=28)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--before", type=Path, metavar="FOLDER")
    parser.add_argument("--stage", choices=STAGES, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.stage:
        measure(options.stage, options.files[0])
        return
    with tempfile.TemporaryDirectory() as folder:
        files = options.files or make_files(Path(folder), options.rows, options.features)
        print("| file | MB | stage | CPU s | MB per CPU s | over pyarrow (svmlight: over read) | wall s |")
        print("|---|---|---|---|---|---|---|", flush=True)
        for path in files:
            compare(path, options.before, options.rounds)


if __name__ == "__main__":
    main()
