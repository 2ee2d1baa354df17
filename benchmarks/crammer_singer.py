"""Crammer-Singer compared with one against the rest and with LIBLINEAR (-s 4), as Markdown tables.

    python -m benchmarks.crammer_singer --data FOLDER [--only NAME ...] [--tol 1e-3]

FOLDER holds the unpacked data. Accuracy is measured on test rows. `reads`: the bytes read, divided by the bytes of the
dataset, if only a tenth of the rows is kept in memory. CPU seconds are measured on one thread with all rows in memory.
LIBLINEAR (scikit-learn's LinearSVC) is run with several tolerances, and the table shows the largest tolerance at which
the P of LIBLINEAR is within `tol` of the lower bound. If no tolerance suffices, the table shows the distance of P from
the bound.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.svm import LinearSVC

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.engines import open as opening
from streamsvm.engines.local import ThreadedEngine
from streamsvm.ingestion.readers import ingest
from streamsvm.models.evaluate import evaluate
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train

Split = tuple[Any, np.ndarray, Any, np.ndarray]
TOLERANCES = (0.1, 0.03, 0.01, 1e-3)
WAYS: list[dict[str, Any]] = [{}, {"loss": "squared_hinge"}, {"task": "crammer-singer"}]
MOST_FEATURES = 5000  # for Newton's method
CHUNKS = 64  # the number of chunks of a dataset, large enough that small data are read like large data


def load_letter(folder: Path) -> Split:
    """Return the training and test rows unchanged."""
    found: list[Any] = []
    for end in ("", ".t"):
        X, y = load_svmlight_file(str(folder / f"letter/letter.scale{end}"))
        found += [X.toarray().astype(np.float32), y - 1]
    return tuple(found)  # type: ignore[return-value]


def load_mnist(folder: Path) -> Split:
    """Return the first 10,000 training images and the test images, 0 to 1."""
    found: list[Any] = []
    for name in ("train", "t10k"):
        X = np.fromfile(folder / f"mnist/{name}-images-idx3-ubyte", np.uint8, offset=16).reshape(-1, 784)
        y = np.fromfile(folder / f"mnist/{name}-labels-idx1-ubyte", np.uint8, offset=8)
        found += [X[:10_000].astype(np.float32) / 255, y[:10_000]]
    return tuple(found)  # type: ignore[return-value]


def split_off(X: Any, y: np.ndarray, n_train: int, n_test: int) -> Split:
    """Draw training and test rows, and standardise both by the mean and variance of the training rows."""
    order = np.random.default_rng(0).permutation(len(y))
    own, other = order[:n_train], order[n_train : n_train + n_test]
    mean, deviation = X[own].mean(axis=0), X[own].std(axis=0)
    X = ((X - mean) / np.where(deviation > 0, deviation, 1)).astype(np.float32)
    return X[own], y[own], X[other], y[other]


def load_waveform(folder: Path) -> Split:
    """Return 4,000 training rows and 1,000 test rows."""
    rows = np.loadtxt(folder / "waveform/waveform.data", delimiter=",", skiprows=1, dtype=str)
    return split_off(rows[:, :-1].astype(np.float64), np.unique(rows[:, -1], return_inverse=True)[1], 4000, 1000)


def load_covtype(folder: Path) -> Split:
    """Return 100,000 training rows and 100,000 test rows."""
    rows = np.loadtxt(folder / "covtype/covtype.csv", delimiter=",", dtype=np.float32, skiprows=1)
    return split_off(rows[:, :-1], rows[:, -1] - 1, 100_000, 100_000)


def load_newsgroups(folder: Path) -> Split:
    """Return the texts of 20 newsgroups, split by date. Rows are weighted by tf-idf and scaled to length 1."""
    names = [str(folder / f"newsgroups_lda/news20bydate.{part}.svm") for part in ("train", "test")]
    (X, y), (X_test, y_test) = [load_svmlight_file(name, n_features=61_188, dtype=np.float32) for name in names]
    weigh = TfidfTransformer(sublinear_tf=True).fit(X)
    X, X_test = (csr_array(weigh.transform(rows).astype(np.float32)) for rows in (X, X_test))
    return X, y - y.min(), X_test, y_test - y.min()


SETS: dict[str, tuple[Callable[[Path], Split], float]] = {
    "letter": (load_letter, 1.0),
    "mnist": (load_mnist, 0.01),
    "waveform": (load_waveform, 0.1),
    "covtype": (load_covtype, 0.01),
    "20 newsgroups": (load_newsgroups, 1.0),
}


def make_source(X: Any, y: np.ndarray) -> ArrayDataset:
    """Return rows in memory."""
    return ArrayDataset(X, y.astype(np.int32), np.arange(int(y.max()) + 1))


def measure(call: Callable[[], Any]) -> tuple[Any, float]:
    """Return the result of a call, and its CPU seconds."""
    began = time.process_time()
    return call(), time.process_time() - began


def count_reads(source: ArrayDataset, options: TrainOptions) -> float:
    """Train from disk with a tenth of the rows in memory, and return the number of reads of the data."""
    with tempfile.TemporaryDirectory() as out:
        X: Any = source.X
        X = X if isinstance(X, np.ndarray) else csr_array((X.data, X.indices, X.indptr))
        data = ingest(X, Path(out) / "rows.zarr", source.y, chunk_bytes=source.nbytes // CHUNKS)
        result = train(data, options)
        print(f"    {result.status}, {result.passes} passes, {result.seconds:.0f} s", flush=True)
        return result.read_bytes / data.nbytes


def compute_objective(W: Any, X: Any, y: np.ndarray, C: float) -> float:
    """Return P of weights (K, d+1)."""
    scores, every = np.asarray(X @ W[:, :-1].T) + W[:, -1], np.arange(len(y))
    leads = 1 + scores - scores[every, y.astype(int)][:, None]
    leads[every, y.astype(int)] = 0
    return float(np.sum(W**2) / 2 + C * np.sum(leads.max(axis=1)))


def run_liblinear(X: Any, y: np.ndarray, C: float, limit: float) -> tuple[str, str]:
    """Return the CPU seconds and the tolerance of LIBLINEAR, or the distance of its P from the limit."""
    X, told = X.astype(np.float64), ("", "")
    if issparse(X):
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    for tol in TOLERANCES:
        model = LinearSVC(multi_class="crammer_singer", C=C, tol=tol, max_iter=1000, random_state=0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _, seconds = measure(lambda model=model: model.fit(X, y))
        P = compute_objective(np.column_stack((model.coef_, model.intercept_)), X, y, C)
        told = f"{seconds:.2f}", f"{tol:g}" if limit >= P else f"{tol:g}: {P / limit - 1:.0e} above"
        if limit >= P:
            break
    return told


def compare(name: str, folder: Path, tol: float) -> str:
    """Return a line of the table."""
    load, C = SETS[name]
    X, y, X_test, y_test = load(folder)
    source, test = make_source(X, y), make_source(X_test, y_test)
    accuracies, seconds = [], []
    for own in WAYS:
        if own.get("loss") and source.n_features > MOST_FEATURES:
            accuracies.append("-")
            seconds.append("-")
            continue
        train(make_source(X[:600], y[:600]), TrainOptions(C=C, threads=1, **own))  # compiles
        result, used = measure(lambda own=own: train(source, TrainOptions(C=C, tol=tol, threads=1, **own)))
        accuracies.append(f"{100 * evaluate(result.model, test)['accuracy']:.2f}")
        seconds.append(f"{used:.2f}")
        print(f"    {own}: {result.status}, {accuracies[-1]}, {used:.1f} s", flush=True)
    opening.ThreadedEngine = lambda source, threads, *_: ThreadedEngine(source, threads)  # type: ignore[misc, assignment]
    few = count_reads(source, TrainOptions(task="crammer-singer", C=C, tol=tol, threads=1, resident_rows="10%"))
    assert result.lower_bound is not None
    liblinear = run_liblinear(X, y, C, result.lower_bound * (1 + tol) / (1 - tol))
    figures = [f"{C:g}", *accuracies, f"{result.objective:.6g}", f"{result.lower_bound:.6g}", f"{few:.1f}"]
    return "| " + " | ".join([name, *figures, *seconds, *liblinear]) + " |"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--tol", type=float, default=1e-3)
    own = parser.parse_args()
    print(
        "| data | C | accuracy %, hinge | squared hinge | Crammer-Singer | P | D | reads | CPU s, hinge | squared hinge"
        " | Crammer-Singer | LIBLINEAR -s 4 | its tol |\n" + "|---" * 13 + "|",
        flush=True,
    )
    for name in own.only:
        print(compare(name, own.data, own.tol), flush=True)


if __name__ == "__main__":
    main()
