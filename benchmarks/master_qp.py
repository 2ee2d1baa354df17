"""CPU time and gaps of `solve_master`, PIQP and quadprog on master problems of cutting planes on real data.

    STREAMSVM_DATA=FOLDER python benchmarks/master_qp.py

FOLDER holds adult/a9a.xz and covtype/covtype.csv.xz. Prints a Markdown table. Algorithm 1 (Joachims 2006), and its
variant with a line search (OCAS, Franc & Sonnenburg 2008), run in plain NumPy, with one cut per pass. The last master
problems of up to 280 and of up to 1,000 cuts are then solved in four ways: by `solve_master` from the multipliers of
the previous master, with zero for the new cut ("warm"); by `solve_master` from zero; and by PIQP and quadprog, which
have no warm start. Times are medians of CPU milliseconds, with BLAS on one thread, over 10 masters (`solve_master`), 3
(PIQP) and 1 (quadprog). A gap is (M - D) / D at the returned point after making it feasible; the table has the worst of
the masters. `solve_master` and PIQP have a tolerance of 1e-6. quadprog needs a definite matrix: the diagonal shift with
the smallest gap is found before the timing.

"start's gap" is the median gap of the warm start. If it is below 1e-6, the start is already a solution, because the
cutting planes have converged and repeat their cuts. The warm time is then the time of one evaluation, and only "zero"
can be compared with the others.
"""

from __future__ import annotations

import io
import lzma
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
import numpy.typing as npt
import piqp
import quadprog
from sklearn.datasets import load_svmlight_file
from threadpoolctl import threadpool_limits

from streamsvm.solvers.cutting_plane.master import solve_master

F64 = npt.NDArray[np.float64]
SIZES = (280, 1000)
TOL = 1e-6  # relative to D
QUADPROG_MOST_CUTS = 280  # the time of quadprog grows with the cube of the number of cuts
CUT_SHARE = 0.1  # OCAS cuts at this fraction of the way from the best point to the master's minimiser


@dataclass(frozen=True)
class Master:
    """The cuts so far, the multipliers before the newest cut and their D, and the relative gap of the SVM."""

    gram: F64
    offsets: F64
    start: F64
    value: float
    svm_gap: float


def read(name: str) -> io.BytesIO:
    return io.BytesIO(lzma.decompress((Path(os.environ["STREAMSVM_DATA"]) / f"{name}.xz").read_bytes()))


def load_adult() -> F64:
    """Return the rows y_i (x_i, 1) of a9a."""
    X, y = load_svmlight_file(read("adult/a9a"), n_features=123)
    rows: F64 = y[:, None] * np.column_stack((X.toarray(), np.ones(len(y))))
    return rows


def load_covtype() -> F64:
    """Return 50,000 rows y_i (x_i, 1) of covtype: class 1 against the rest, with columns divided by their maxima."""
    table = np.loadtxt(read("covtype/covtype.csv"), delimiter=",", skiprows=1)
    X, y = table[:, :-1] / np.abs(table[:, :-1]).max(axis=0), np.where(table[:, -1] == 1, 1.0, -1.0)
    some = np.sort(np.random.default_rng(0).choice(len(y), 50_000, replace=False))
    rows: F64 = y[some, None] * np.column_stack((X, np.ones(len(y))))[some]
    return rows


def search_line(C: float, d: int, start: F64, move: F64) -> float:
    """Return the step in [0, 1] along `move` at which the SVM's objective is least, by bisection.

    A point is (w, margins of all rows), from which the objective's slope is computed.
    """
    low, high = 0.0, 1.0
    for _ in range(40):
        step = (low + high) / 2
        point = start + step * move
        slope = point[:d] @ move[:d] - C * move[d:][point[d:] < 1].sum()
        low, high = (step, high) if slope < 0 else (low, step)
    return low


def run_cutting_planes(rows: F64, C: float, line_search: bool) -> Iterator[Master]:
    """Yield the master problems in order. Without a line search, every cut is made at the minimiser of the master."""
    n, d = rows.shape
    most = SIZES[-1]
    cuts, offsets, gram = np.zeros((most, d)), np.zeros(most), np.zeros((most, most))
    best, cut_at, start = np.zeros(d + n), np.zeros(d + n), np.zeros(0)
    lower, objective = 0.0, float("inf")
    for m in range(1, most + 1):
        active = cut_at[d:] < 1
        cuts[m - 1], offsets[m - 1] = C * (active @ rows), C * active.sum()
        gram[m - 1, :m] = gram[:m, m - 1] = cuts[:m] @ cuts[m - 1]
        start = np.append(start, 0.0)
        yield Master(gram[:m, :m], offsets[:m], start, lower, 1 - lower / objective)
        solution = solve_master(gram[:m, :m], offsets[:m], start, TOL * lower)
        start, lower = solution.z, solution.value
        w = start @ cuts[:m]
        minimiser = np.concatenate((w, rows @ w))
        step = search_line(C, d, best, minimiser - best) if line_search else 1.0
        best = (1 - step) * best + step * minimiser
        cut_at = (1 - CUT_SHARE) * best + CUT_SHARE * minimiser
        objective = min(objective, best[:d] @ best[:d] / 2 + C * np.maximum(0, 1 - best[d:]).sum())


def solve_warm(master: Master) -> F64:
    return solve_master(master.gram, master.offsets, master.start, TOL * master.value).z


def solve_from_zero(master: Master) -> F64:
    return solve_master(master.gram, master.offsets, np.zeros(len(master.start)), TOL * master.value).z


def solve_piqp(master: Master) -> F64:
    m, scale = len(master.offsets), master.offsets.max()
    solver = piqp.DenseSolver()
    solver.settings.eps_abs = solver.settings.eps_rel = TOL
    solver.settings.check_duality_gap = True
    solver.settings.eps_duality_gap_abs = solver.settings.eps_duality_gap_rel = TOL
    solver.setup(
        np.asfortranarray(master.gram / scale),
        -master.offsets / scale,
        G=np.ones((1, m), order="F"),
        h_l=np.array([-1e30]),
        h_u=np.ones(1),
        x_l=np.zeros(m),
        x_u=np.ones(m),
    )
    solver.solve()
    return np.array(solver.result.x)


def solve_quadprog(master: Master, shift: float) -> F64:
    """Solve by Goldfarb & Idnani's method; return zeros if it finds the matrix indefinite."""
    m, scale = len(master.offsets), master.offsets.max()
    gram = (master.gram + shift * master.gram.max() * np.eye(m)) / scale
    constraints, bounds = np.column_stack((-np.ones(m), np.eye(m))), np.append(-1.0, np.zeros(m))
    try:
        return np.array(quadprog.solve_qp(gram, master.offsets / scale, constraints, bounds)[0])
    except ValueError:
        return np.zeros(m)


def relative_gap(master: Master, z: F64) -> float:
    z = np.nan_to_num(np.maximum(z, 0))
    z /= max(1.0, z.sum())
    products = master.gram @ z
    lower = master.offsets @ z - z @ products / 2
    if lower <= 0:
        return float("inf")
    return float((z @ products / 2 + max(0.0, np.max(master.offsets - products))) / lower - 1)


def measure(solve: Callable[[Master], F64], masters: list[Master]) -> str:
    """Solve each of the masters; return two cells: the median of the milliseconds, and the worst relative gap."""
    seconds, gaps = [], []
    for master in masters:
        begin = process_time()
        z = solve(master)
        seconds.append(process_time() - begin)
        gaps.append(relative_gap(master, z))
    return f"{1e3 * median(seconds):.2f} | {max(gaps):.0e}"


def measure_quadprog(master: Master) -> str:
    if len(master.offsets) > QUADPROG_MOST_CUTS:
        return "- | -"
    shifts = 10.0 ** np.arange(-14, -8)
    best = min(shifts, key=lambda shift: relative_gap(master, solve_quadprog(master, shift)))
    return measure(lambda master: solve_quadprog(master, best), [master])


def show(data: str, rows: F64, C: float, line_search: bool) -> None:
    """Print a row of the table for each number of cuts."""
    masters = list(run_cutting_planes(rows, C, line_search))
    loop = "OCAS" if line_search else "Algorithm 1"
    for size in SIZES:
        last = masters[size - 10 : size]
        start_gap = median(relative_gap(master, master.start) for master in last)
        case = (data, C, loop, size, f"{last[-1].svm_gap:.0e}", np.count_nonzero(last[-1].start), f"{start_gap:.0e}")
        times = (measure(solve_warm, last), measure(solve_from_zero, last), measure(solve_piqp, last[-3:]))
        print("| " + " | ".join(map(str, (*case, *times, measure_quadprog(last[-1])))) + " |", flush=True)


def main() -> None:
    solvers = ("warm, ms", "gap", "zero, ms", "gap", "PIQP, ms", "gap", "quadprog, ms", "gap")
    names = ("data", "C", "cuts by", "cuts", "SVM gap", "active", "start's gap", *solvers)
    print("| " + " | ".join(names) + " |\n" + "|---" * len(names) + "|", flush=True)
    for data, load, costs in (("a9a", load_adult, (0.05, 1, 100)), ("covtype", load_covtype, (0.01, 1, 100))):
        rows = load()
        for C in costs:
            for line_search in (False, True):
                show(data, rows, C, line_search)


if __name__ == "__main__":
    with threadpool_limits(1):
        main()
