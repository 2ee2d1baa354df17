"""Joachims 2006, Figures 2, 5 and 8: iterations of Algorithm 1 and of line search against n, epsilon and C.

    STREAMSVM_DATA=FOLDER python benchmarks/iterations.py

C is the C of the paper, which is n times the C of streamsvm. Prints Markdown tables with the fitted exponent of each
column.
"""

from __future__ import annotations

import numpy as np
from optima import unpack
from scipy.sparse import csr_array
from sklearn.datasets import load_svmlight_file

from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train

PAPER = {"acceleration": "none", "epsilon": "0.001"}


def load(name: str) -> tuple[csr_array | np.ndarray, np.ndarray]:
    """Return rows and codes in a random order."""
    import io

    rng = np.random.default_rng(0)
    if name == "covtype":
        table = np.loadtxt(io.BytesIO(unpack("covtype/covtype.csv")), delimiter=",", skiprows=1, dtype=np.float32)
        X, y = table[:, :-1] / np.abs(table[:, :-1]).max(axis=0), table[:, -1] == 1
    else:
        X, y = load_svmlight_file(io.BytesIO(unpack(name)), dtype=np.float32)
        X, y = csr_array(X), y > 0
    order = rng.permutation(len(y))
    return X[order], y[order].astype(np.int32)


def iterate(X: csr_array | np.ndarray, y: np.ndarray, C: float, options: dict[str, str], tol: float = 1e-3) -> int:
    """Train, and return the number of passes. C: the C of the paper."""
    source = ArrayDataset(X, y, np.array([-1, 1]))
    return train(source, TrainOptions(C=C / len(y), tol=tol, max_passes=3000, options=options)).passes


def fit_exponent(x: list[float], passes: list[int]) -> float:
    """Return the slope of log passes against log x."""
    return float(np.polyfit(np.log(x), np.log(passes), 1)[0])


def print_table(what: str, x: list[float], columns: dict[str, list[int]]) -> None:
    """Print passes against x, with exponents."""
    print(f"\n| {what} | " + " | ".join(columns) + " |\n|---" * 1 + "|---" * len(columns) + "|")
    for k, value in enumerate(x):
        print(f"| {value:g} | " + " | ".join(str(passes[k]) for passes in columns.values()) + " |")
    print(
        "| exponent | " + " | ".join(f"{fit_exponent(x, passes):.2f}" for passes in columns.values()) + " |", flush=True
    )


def main() -> None:
    """Print the tables."""
    sets = {
        "a9a": (load("adult/a9a"), 0.05 * 32561),
        "w8a": (load("web/w8a"), 0.1 * 49749),
        "covtype": (load("covtype"), 1e4),
    }
    sizes = [2000.0, 4000.0, 8000.0, 16000.0, 32000.0]
    epsilons = [0.1, 0.03, 0.01, 0.003, 0.001, 0.0003]
    costs = [100.0, 1000.0, 10000.0, 100000.0]
    by_n: dict[str, list[int]] = {}
    by_epsilon: dict[str, list[int]] = {}
    by_cost: dict[str, list[int]] = {}
    for name, ((X, y), C) in sets.items():
        by_n[f"{name}, Algorithm 1"] = [iterate(X[: int(n)], y[: int(n)], C, PAPER) for n in sizes]
        by_n[f"{name}, line search"] = [iterate(X[: int(n)], y[: int(n)], C, {}) for n in sizes]
        few = (X[:50000], y[:50000])
        by_epsilon[name] = [iterate(*few, C, {**PAPER, "epsilon": str(epsilon)}) for epsilon in epsilons]
        by_cost[name] = [iterate(*few, cost, PAPER) for cost in costs]
    print_table("n (Figure 2)", sizes, by_n)
    print_table("1 / epsilon (Figure 5)", [1 / epsilon for epsilon in epsilons], by_epsilon)
    print_table("C (Figure 8)", costs, by_cost)


if __name__ == "__main__":
    main()
