"""Passes to a certified gap of 1e-3, guided by resident rows and by line search, as Markdown tables.

    python tests/benchmarks/guided.py --data FOLDER [--only few covtype text] [--rounds 3]

FOLDER: the unpacked data. `few`: a share of the rows resident; passes are what counts. Others: data in memory,
beside LIBLINEAR (scikit-learn's LinearSVC at falling tolerances, to the first that is as near the optimum), in turn,
medians of CPU and wall seconds; two threads. The text set is generated: 200,000 rows of 86 words among 47,000.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, csr_matrix, vstack
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction.text import TfidfTransformer
from sklearn.svm import LinearSVC

from streamsvm.data.generated import Truth
from streamsvm.data.in_memory import ArrayDataset
from streamsvm.numeric.rows import CsrRows, stack_rows
from streamsvm.training.train import Result, TrainOptions, train

FEW = (
    ("covtype", 0.01, "10%", 3), ("covtype", 1.0, "10%", 5), ("covtype", 1.9, "10%", 6), ("a9a", 0.05, "10%", 6),
    ("a9a", 0.05, "30%", 4), ("a9a", 1.0, "10%", None), ("ijcnn1", 1.0, "10%", 6), ("w8a", 0.1, "10%", 20),
    ("w8a", 0.1, "30%", 6), ("news20", 1.0, "10%", 0.5), ("news20", 1.0, "30%", 0.5), ("bydate", 1.0, "10%", 0.5),
    ("bydate", 1.0, "30%", 0.5),
)  # fmt: skip  # data, C, resident rows, passes at most: a number, or a share of those of line search
KINDS = ("few", "covtype", "text")
TEXT = Truth(n_features=47_000, row_items=86)


def load(folder: Path, name: str) -> ArrayDataset:
    """Rows and labels of two classes."""
    if name == "covtype":
        rows = np.loadtxt(folder / "covtype/covtype.csv", delimiter=",", dtype=np.float32, skiprows=1)
        return _make(rows[:, :-1] / np.maximum(1, np.abs(rows[:, :-1]).max(axis=0)), rows[:, -1] == 1)
    if name == "text":
        parts = list(TEXT.make_blocks(200_000))
        X: Any = stack_rows([part.X for part in parts])
        assert isinstance(X, CsrRows)
        y = np.concatenate([part.y for part in parts if part.y is not None])
        return _make(csr_array((X.data, X.indices, X.indptr.astype(np.int32)), shape=X.shape), y == 1)
    if name in ("news20", "bydate"):
        path = {"news20": "news20/news20", "bydate": "newsgroups_lda/news20bydate.train.svm"}[name]
        counts, labels = load_svmlight_file(str(folder / path))
        first_ten = np.isin(labels, np.unique(labels)[:10])
        return _make(csr_array(TfidfTransformer().fit_transform(counts)), first_ten)
    if name == "skin":
        rows = np.loadtxt(folder / "skin_nonskin/Skin_NonSkin.txt", delimiter=",", dtype=np.float32, skiprows=1)
        return _make(rows[:, :-1] / 255, rows[:, -1] == 1)
    paths = {
        "a9a": ["adult/a9a"], "w8a": ["web/w8a"], "ijcnn1": ["ijcnn1/ijcnn1.trn", "ijcnn1/ijcnn1.val"],
        "phishing": ["phishing/phishing"], "mushrooms": ["mushrooms/mushrooms"], "letter": ["letter/letter.scale"],
    }[name]  # fmt: skip
    loaded = [load_svmlight_file(str(folder / path)) for path in paths]
    X, y = csr_array(vstack([X for X, _ in loaded])), np.concatenate([y for _, y in loaded])
    return _make(X, y <= 13 if name == "letter" else y == np.max(y))  # A to M, or the second of two classes


def _make(X: Any, positive: npt.NDArray[np.bool_]) -> ArrayDataset:
    return ArrayDataset(X.astype(np.float32), positive.astype(np.int32), np.array([-1, 1]))


def compare_few(folder: Path) -> None:
    """Table of passes."""
    print("| data | C | resident | passes (asked) | line search | gap | CPU s | line search | ")
    print("|---|---|---|---|---|---|---|---|")
    for name, C, resident, asked in FEW:
        source = load(folder, name)
        lines = TrainOptions(C=C, threads=1, options={"acceleration": "line-search"})
        usual, usual_seconds, _ = _time(source, lines)
        found, seconds, _ = _time(source, TrainOptions(C=C, threads=1, resident_rows=resident))
        most = asked if asked is None or asked >= 1 else int(asked * usual.passes)
        print(
            f"| {name} | {C:g} | {resident} | {found.passes} ({'-' if most is None else most}) | {usual.passes} | "
            f"{found.relative_gap:.1e} | {seconds:.2f} | {usual_seconds:.2f} |",
            flush=True,
        )


def _time(source: ArrayDataset, options: TrainOptions) -> tuple[Result, float, float]:
    """Train; return CPU and wall seconds, without what is compiled the first time."""
    cpu, wall = time.process_time(), time.monotonic()
    result = train(source, options)
    assert result.status == "converged"
    return result, time.process_time() - cpu, time.monotonic() - wall


def compare_all(folder: Path, names: list[str], rounds: int) -> None:
    """Table of seconds, everything in memory."""
    print("| data | trainer | suboptimality | CPU s | wall s | passes |")
    print("|---|---|---|---|---|---|")
    for name in names:
        source = load(folder, name)
        bound = train(source, TrainOptions(tol=1e-5, threads=2)).lower_bound or 0.0
        fits: dict[str, Callable[[], tuple[float, float, float, int | None]]] = {
            "streamsvm": lambda source=source: _fit_ours(source, None),  # type: ignore[misc]
            "streamsvm, all resident": lambda source=source: _fit_ours(source, "100%"),  # type: ignore[misc]
        }
        target = max(fits[trainer]()[0] for trainer in fits) / bound - 1
        tol = next(tol for tol in (1.0, 0.3, 0.1, 0.03, 0.01) if _fit_liblinear(source, tol)[0] / bound - 1 <= target)
        fits[f"LIBLINEAR, tol {tol:g}"] = lambda source=source, tol=tol: _fit_liblinear(source, tol)  # type: ignore[misc]
        runs: dict[str, list[Any]] = {trainer: [] for trainer in fits}
        for _ in range(rounds):
            for trainer, fit in fits.items():
                runs[trainer].append(fit())
        for trainer, found in runs.items():
            objective, cpu, wall = (median(run[k] for run in found) for k in range(3))
            passes = "" if found[0][3] is None else found[0][3]
            figures = f"{objective / bound - 1:.1e} | {cpu:.2f} | {wall:.2f} | {passes}"
            print(f"| {name} | {trainer} | {figures} |", flush=True)


def _fit_ours(source: ArrayDataset, resident: str | None) -> tuple[float, float, float, int | None]:
    result, cpu, wall = _time(source, TrainOptions(threads=2, resident_rows=resident))
    return result.objective, cpu, wall, result.passes


def _fit_liblinear(source: ArrayDataset, tol: float) -> tuple[float, float, float, int | None]:
    assert source.y is not None
    X = csr_matrix(source.X, dtype=np.float64) if isinstance(source.X, csr_array) else source.X.astype(np.float64)
    cpu, wall = time.process_time(), time.monotonic()
    model = LinearSVC(loss="hinge", tol=tol, max_iter=10**6, random_state=0).fit(X, source.y)
    cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    w, b = model.coef_[0], float(model.intercept_[0])
    loss = np.maximum(0.0, 1.0 - np.where(source.y == 1, 1.0, -1.0) * (X @ w + b)).sum()
    return float((w @ w + b * b) / 2 + loss), cpu, wall, None


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--only", nargs="+", choices=KINDS, default=KINDS)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    if "few" in options.only:
        compare_few(options.data)
    if {"covtype", "text"} & set(options.only):
        compare_all(options.data, [name for name in ("covtype", "text") if name in options.only], options.rounds)


if __name__ == "__main__":
    main()
