"""Runs of a second or so for every solver, to be stopped at random moments."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from scipy.sparse import random_array

from streamsvm.ingestion.readers import ingest
from streamsvm.solvers.registry import SOLVERS
from streamsvm.solvers.set_up import compile_all
from tests.class_problems import make_classes
from tests.conftest import make_problem


@dataclass(frozen=True)
class Case:
    """A training: its name, the dataset's name, and arguments."""

    name: str
    data: str
    arguments: tuple[str, ...]


RBF = ("--kernel", "rbf", "--gamma", "0.05")
CASES = (
    Case("one read", "long", ("--C", "1", "--tol", "1e-5", "--resident-rows", "2000")),
    Case("line search", "long", ("--C", "1", "--tol", "1e-4", "--option", "acceleration=line-search")),
    Case("block ascent", "wide", ("--C", "3", "--tol", "1e-4", "--resident-rows", "500")),
    Case("rank", "queries", ("--task", "rank", "--C", "100", "--tol", "1e-6")),
    Case("roc-area", "long", ("--task", "roc-area", "--C", "1", "--tol", "1e-4")),
    Case("smo", "short", ("--solver", "smo", *RBF, "--C", "10", "--tol", "1e-4", "--resident-rows", "500")),
    Case("irwls", "short", ("--solver", "irwls", *RBF, "--C", "1", "--tol", "1e-3", "--resident-rows", "500")),
    Case("platt", "short", ("--solver", "smo", "--option", "selection=platt", *RBF, "--C", "1")),
    Case("budgeted-sgd", "short", ("--solver", "budgeted-sgd", *RBF, "--option", "epochs=40")),
    Case("softmax", "classes", ("--multi-class", "multinomial", "--tol", "1e-7", "--resident-rows", "2%")),
    Case("interior-point", "long", ("--solver", "interior-point", "--C", "10", "--tol", "1e-8")),
)


def make_data(folder: Path, names: Collection[str], part: int = 1) -> None:
    """Write those datasets of the cases that are named, with one part of so many of their rows."""
    for name in names:
        _WRITERS[name](folder / name, part)


def load_kernels(cases: Iterable[Case]) -> None:
    """Compile what these cases need, or load it, for forks to begin with."""
    compile_all(sorted({name for case in cases for name in name_kernels(case)}))


def name_kernels(case: Case) -> set[str]:
    """Return the names by which the kernels of a case are compiled."""
    solver = dict(pairwise(case.arguments)).get("--solver", "cutting-plane")
    return {group for method in SOLVERS if method.name == solver for group in method.groups}


def _write_long(path: Path, part: int) -> None:
    make_problem(1, n=60_000 // part, d=40).store(path, layout="dense", chunk_bytes=1 << 20)


def _write_short(path: Path, part: int) -> None:
    make_problem(2, n=6000 // part, d=12).store(path, layout="dense", chunk_bytes=50_000)


def _write_wide(path: Path, part: int) -> None:
    random, n = np.random.default_rng(0), 3000 // part
    X = random_array((n, 4000), density=0.02, rng=random, dtype=np.float32).tocsr()
    y = np.where(X @ random.normal(size=4000) + 0.3 * random.normal(size=n) > 0, 1, -1)
    ingest(X, path, y, layout="sparse", chunk_bytes=200_000, shuffle=None)


def _write_classes(path: Path, part: int) -> None:
    make_classes(3, n=60_000 // part, d=20, n_classes=6).store(path, chunk_bytes=200_000)


def _write_queries(path: Path, part: int) -> None:
    random, n = np.random.default_rng(1), 40_000 // part
    ranks, rows = random.integers(0, 5, n), random.normal(size=(n, 20))
    rows[:, 0] += ranks
    qid = np.repeat(np.arange(n // 100), 100)
    ingest(rows.astype(np.float32), path, ranks, qid=qid, layout="dense", chunk_bytes=500_000)


_WRITERS = {
    "long": _write_long,
    "short": _write_short,
    "wide": _write_wide,
    "classes": _write_classes,
    "queries": _write_queries,
}
