"""Reads of the data until a gap of 1e-3 is proved, with a tenth of the rows in memory. Prints a Markdown table.

    python -m benchmarks.few_reads FOLDER --data ../shared/data [--only WORD] [--share 10%] [--acceleration NAME]

The datasets are made once and kept in FOLDER. `reads`: the bytes read, divided by the bytes of the dataset. No rows are
kept in memory besides the resident rows. CPU seconds are measured within `train`, on one thread. Every fit runs in a
process of its own. FOLDER/unpacked holds the data unpacked by ../shared/data/unpack.py.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array

import streamsvm
from benchmarks import crammer_singer, two_classes
from benchmarks.defaults import make_dense, with_targets

FIT = """
import json, sys, time
from streamsvm.data.open import open_dataset
from streamsvm.engines import open as opening
from streamsvm.engines.local import ThreadedEngine
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
opening.ThreadedEngine = lambda source, threads, *_: ThreadedEngine(source, threads)  # keeps no more rows
data, options = open_dataset(sys.argv[1]), TrainOptions(**{"threads": 1, **json.loads(sys.argv[2])})
began = time.process_time()
result = train(data, options)
print(json.dumps({
    "cpu": time.process_time() - began, "reads": result.read_bytes / data.nbytes, "passes": result.passes,
    "status": result.status, "gap": result.relative_gap, "P": result.objective,
}))
"""
CHUNKS = 64  # the number of chunks of a dataset, large enough that small data are read like large data
Made = tuple[Any, Any]


def read_first(name: str) -> Callable[[Path], Made]:
    """Return a function that reads the training rows of a set of benchmarks/crammer_singer.py."""
    return lambda folder: crammer_singer.SETS[name][0](folder)[:2]


def read_mnist(folder: Path) -> Made:
    """Return the 60,000 training images, 0 to 1."""
    X = np.fromfile(folder / "mnist/train-images-idx3-ubyte", np.uint8, offset=16).reshape(-1, 784)
    return X.astype(np.float32) / 255, np.fromfile(folder / "mnist/train-labels-idx1-ubyte", np.uint8, offset=8)


def read_news(folder: Path) -> Made:
    """Return the texts of news20, weighted by tf-idf, with the first ten classes as one class."""
    source = two_classes.load(folder, "news20")
    return csr_array((source.X.data, source.X.indices, source.X.indptr)), source.y


def read_covtype(folder: Path) -> Made:
    """Return Covertype, class 1 against the rest."""
    source = two_classes.load(folder, "covtype")
    return source.X, source.y


def read_table(path: Path, target: int, delimiter: str = ",") -> Made:
    """Return the rows of a CSV file, whose column `target` is predicted. Features and targets are standardised."""
    rows = np.loadtxt(path, delimiter=delimiter, skiprows=1)
    rows = (rows - rows.mean(axis=0)) / np.maximum(rows.std(axis=0), 1e-6)
    return np.delete(rows, target, axis=1).astype(np.float32), rows[:, target]


SETS: dict[str, Callable[[Path], Made]] = {
    "letter": read_first("letter"),
    "mnist 10,000": read_first("mnist"),
    "waveform": read_first("waveform"),
    "20 newsgroups": read_first("20 newsgroups"),
    "covtype, 7 classes": read_first("covtype"),
    "mnist 60,000": read_mnist,
    "wine, targets": lambda folder: read_table(folder / "wine/winequality-white.csv", -1, ";"),
    "covtype, targets": lambda folder: read_table(folder / "covtype/covtype.csv", 0),
    "2,000,000 x 30, targets": lambda _: with_targets(*make_dense(2_000_000, 30)),
    "400,000 x 20, targets": lambda _: with_targets(*make_dense(400_000, 20)),
    "100,000 x 40, 20 classes": lambda _: make_dense(100_000, 40, classes=20),
    "50,000 x 100, 5 classes": lambda _: make_dense(50_000, 100, classes=5),
    "covtype": read_covtype,
    "news20, ten against ten": read_news,
}
ALL_CLASSES = {"task": "crammer-singer"}
REGRESSION = {"task": "regress", "loss": "epsilon_insensitive"}
BY_CUTS = {**REGRESSION, "solver": "cutting-plane", "resident_rows": None}  # the solver for any convex loss
PROBLEMS: list[tuple[str, float, dict[str, Any]]] = [
    ("letter", 1.0, ALL_CLASSES),
    ("letter", 0.1, ALL_CLASSES),
    ("mnist 10,000", 0.01, ALL_CLASSES),
    ("mnist 60,000", 0.001, ALL_CLASSES),
    ("waveform", 0.1, ALL_CLASSES),
    ("20 newsgroups", 1.0, ALL_CLASSES),
    ("covtype, 7 classes", 0.01, ALL_CLASSES),
    ("100,000 x 40, 20 classes", 0.1, ALL_CLASSES),
    ("50,000 x 100, 5 classes", 0.1, ALL_CLASSES),
    *((name, C, REGRESSION) for name in SETS if name.endswith("targets") for C in (0.01, 1.0)),
    *(("covtype, targets", C, BY_CUTS) for C in (0.01, 1.0)),
    *(("mnist 60,000", C, {}) for C in (0.001, 0.01)),
    *(("news20, ten against ten", C, {}) for C in (0.01, 1.0)),
    *(("covtype", 1.0, {"loss": loss}) for loss in ("logistic", "squared_hinge")),
]


def make(name: str, folder: Path) -> Path:
    """Return the dataset with this name. Make it if it does not exist."""
    path = folder / f"{name}.zarr"
    if not path.exists():
        X, y = SETS[name](folder / "unpacked")
        size = X.nbytes if isinstance(X, np.ndarray) else X.data.nbytes + X.indices.nbytes
        streamsvm.ingest(X, path, y, chunk_bytes=size // CHUNKS, regression=name.endswith("targets"))
    return path


def fit(path: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """Train in a process of its own, and return its measurements."""
    command = [sys.executable, "-c", FIT, str(path), json.dumps(settings)]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"}
    )
    if done.returncode:
        raise SystemExit(done.stderr[-2000:])
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--only", default="", help="only problems whose data and settings contain this word")
    parser.add_argument("--share", default="10%")
    parser.add_argument("--acceleration", help="the acceleration, if not the default")
    given = parser.parse_args()
    given.folder.mkdir(exist_ok=True)
    subprocess.run([sys.executable, str(given.data / "unpack.py"), str(given.folder / "unpacked")], check=True)
    print("| data | C | problem | reads | passes | CPU s | status | gap | P |")
    print("|---|---:|---|---:|---:|---:|---|---:|---:|")
    for name, C, settings in PROBLEMS:
        told = " ".join(str(value) for value in settings.values() if value) or "hinge"
        if given.only not in f"{name} {C:g} {told}":
            continue
        own = {"options": {"acceleration": given.acceleration}} if given.acceleration else {}
        found = fit(make(name, given.folder), {"C": C, "resident_rows": given.share, **settings, **own})
        cells = [name, f"{C:g}", told, f"{found['reads']:.1f}", str(found["passes"]), f"{found['cpu']:.2f}"]
        cells += [str(found["status"]), f"{found['gap']:.1e}", f"{found['P']:.8g}"]
        print(f"| {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
