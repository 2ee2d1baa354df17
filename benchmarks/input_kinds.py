"""The kinds of rows that `ingest` accepts, and its memory for each, without imports: the table of docs/inputs.md.

python benchmarks/input_kinds.py [ROWS]

For each kind, a separate process ingests first a small array, then ROWS rows (default: 400,000) of 128 features. The
table has the growth of the peak of resident memory between the two, including pages of mapped files. Kinds whose
packages are not installed are left out.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

D = 128
BLOCK = 10_000


def open_array(folder: Path) -> Any:
    return np.load(folder / "X.npy")


def open_map(folder: Path) -> Any:
    return np.load(folder / "X.npy", mmap_mode="r")


def open_small_numbers(folder: Path) -> Any:
    return np.load(folder / "X8.npy", mmap_mode="r")


def open_zarr(folder: Path) -> Any:
    import zarr

    return zarr.open_array(folder / "X.zarr", mode="r")


def open_hdf5(folder: Path) -> Any:
    import h5py

    return h5py.File(folder / "X.h5", "r")["X"]


def open_blocks(folder: Path) -> Any:
    X, y = open_map(folder), np.load(folder / "y.npy")
    return ((X[k : k + BLOCK], y[k : k + BLOCK]) for k in range(0, len(y), BLOCK))


def open_dask(folder: Path) -> Any:
    import dask.array

    return dask.array.from_zarr(str(folder / "X.zarr"))


def open_tensor(folder: Path) -> Any:
    import torch

    return torch.from_numpy(open_array(folder))


def open_arrow(folder: Path) -> Any:
    import pyarrow as pa

    return pa.ipc.open_file(pa.memory_map(str(folder / "X.arrow"))).read_all()


def open_polars(folder: Path) -> Any:
    import polars

    return polars.DataFrame(open_array(folder))


def open_hugging_face(folder: Path) -> Any:
    import datasets

    return datasets.Dataset.from_file(str(folder / "X.stream"))


def open_h5ad(folder: Path) -> Any:
    return str(folder / "X.h5ad")


KINDS: dict[str, tuple[str, Callable[[Path], Any], str | None]] = {
    "a NumPy array": ("in memory", open_array, None),
    "a NumPy memory map": ("streamed", open_map, None),
    "a memory map of int8": ("streamed", open_small_numbers, None),
    "an iterator of blocks": ("streamed", open_blocks, None),
    "zarr.Array": ("streamed", open_zarr, None),
    "h5py.Dataset": ("streamed", open_hdf5, "h5py"),
    "a Dask array": ("streamed", open_dask, None),
    "a tensor of PyTorch": ("in memory", open_tensor, "torch"),
    "pyarrow.Table, memory-mapped": ("streamed", open_arrow, "pyarrow"),
    "polars.DataFrame": ("in memory", open_polars, "polars"),
    "datasets.Dataset": ("streamed", open_hugging_face, "datasets"),
    ".h5ad, backed": ("streamed", open_h5ad, "anndata"),
}


def write_files(folder: Path, n_rows: int) -> None:
    """Write the same rows as files of all kinds whose packages are installed, a block at a time."""
    import zarr

    X = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float32, (n_rows, D))
    random = np.random.default_rng(0)
    for k in range(0, n_rows, BLOCK):
        X[k : k + BLOCK] = random.normal(size=(len(X[k : k + BLOCK]), D))
    np.save(folder / "X8.npy", np.clip(X * 30, -127, 127).astype(np.int8))
    np.save(folder / "y.npy", np.where(X[:, 0] > 0, 1, -1))
    zarr.create_array(folder / "X.zarr", data=np.asarray(X), chunks=(BLOCK, D))
    if has("h5py"):
        import h5py

        with h5py.File(folder / "X.h5", "w") as file:
            file.create_dataset("X", data=X, chunks=(min(BLOCK, n_rows), D))
    if has("pyarrow"):
        import pyarrow as pa

        table = pa.table({"x": pa.FixedSizeListArray.from_arrays(pa.array(X.ravel()), D)})
        for name, make in (("X.arrow", pa.ipc.new_file), ("X.stream", pa.ipc.new_stream)):
            with make(str(folder / name), table.schema) as writer:
                writer.write_table(table, BLOCK)
    if has("anndata"):
        import anndata
        import pandas as pd

        obs = pd.DataFrame({"kind": np.load(folder / "y.npy").astype(str)}, index=np.arange(n_rows).astype(str))
        anndata.AnnData(np.asarray(X), obs).write_h5ad(folder / "X.h5ad")


def has(package: str | None) -> bool:
    return package is None or importlib.util.find_spec(package) is not None


def ingest_one(name: str, folder: Path) -> int:
    """Ingest the rows of a folder, and return the number of rows."""
    from streamsvm import ingest

    source = KINDS[name][1](folder)
    given: dict[str, Any] = {"y": np.load(folder / "y.npy")}
    given = {} if isinstance(source, Iterator) or name == "datasets.Dataset" else given
    given = {"label": "kind"} if isinstance(source, str) else given
    return ingest(source, folder / f"{name.replace(' ', '-')}.zarr", **given).n_rows


def measure(name: str, small: Path, large: Path) -> float:
    """Return the bytes by which the memory peak exceeds the peak for a small array."""
    ingest_one(name, small)
    before = find_peak()
    ingest_one(name, large)
    return find_peak() - before


def find_peak() -> float:
    """Return the memory peak of this process alone, since getrusage may return the peak of the parent process."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return float(status["VmHWM"].split()[0]) * 1024


def main(n_rows: int) -> None:
    with TemporaryDirectory() as folder:
        small, large = Path(folder) / "small", Path(folder) / "large"
        for place, n in ((small, 1000), (large, n_rows)):
            place.mkdir()
            write_files(place, n)
        print(f"| rows | how | memory for {4 * n_rows * D / 1e6:.0f} MB |\n|---|---|---|")
        for name, (how, _, package) in KINDS.items():
            if not has(package):
                continue
            ran = subprocess.run(
                [sys.executable, __file__, "--one", name, str(small), str(large)],
                capture_output=True,
                text=True,
                check=False,
            )
            told = f"{json.loads(ran.stdout) / 1e6:.0f} MB" if ran.returncode == 0 else ran.stderr.splitlines()[-1]
            print(f"| {name} | {how} | {told} |", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(measure(sys.argv[2], Path(sys.argv[3]), Path(sys.argv[4]))))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 400_000)
