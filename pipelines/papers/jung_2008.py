"""Section 5 of Jung, O'Leary & Tits 2008: which rows an interior-point method needs. Prints Markdown tables.

    python pipelines/papers/jung_2008.py --data FOLDER [--out FOLDER] [--small]

FOLDER holds, itself or in subfolders: mushrooms, letter.scale and letter.scale.t of the LIBSVM site, ISOLET in
isolet1+2+3+4.csv and isolet5.csv, and a1a to a9a with their test files a1a.t to a9a.t; what is missing is left out.
--out keeps the tables. --small: at most 1,500 rows of each. Exit status: 0 if all variants of Figure 5.1 converged to
the same objective, to 1e-6, 1 if not, 2 without data.

Figure 5.1: the unreduced method and six variants, q_U = n (the non-adaptive ones: n / 4). Figures 5.2 to 5.4: q_U from
small to n. Figure 5.5: rows used and mu by iteration. Table 5.2: accuracy on test files with a Gaussian kernel of
sigma^2 = l / 2 (gamma = 1 / 123), C = 1, beside LIBSVM; its published figures are lost in the scan. All with a gap of
1e-8 (Table 5.2: 1e-3); seconds are of the processor, one thread. Published: with the omega rule, adaptive and balanced,
about as many iterations as without reduction, in a fraction of the time.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from jung_problems import PROBLEMS, Problem, find_file, read_problem
from sklearn.datasets import load_svmlight_file
from sklearn.svm import SVC as LIBSVM

from streamsvm import SVC
from streamsvm.data.in_memory import ArrayDataset
from streamsvm.train import Result, TrainOptions, train

Write = Callable[..., None]
SMALL_ROWS = 1500
VARIANTS = [(name, rule) for name in ("adaptive-balanced", "adaptive", "fixed") for rule in ("omega", "distance")]
SHARES = (0.1, 0.25, 0.5, 1.0)
ADULT = ("a1a", "a4a", "a7a", "a8a", "a9a")


def solve(
    rows: ArrayDataset, reduction: str, rule: str = "omega", most_rows: int | None = None
) -> tuple[Result, float]:
    """Train to a gap of 1e-8; return the result and its processor seconds."""
    options = {"reduction": reduction, "rule": rule} | ({} if most_rows is None else {"most_rows": str(most_rows)})
    began = time.process_time()
    result = train(rows, TrainOptions(solver="interior-point", tol=1e-8, threads=1, options=options))
    return result, time.process_time() - began


def share_of_rows(result: Result) -> float:
    """Mean share of the rows that the equations were made of."""
    return float(np.mean([line["chosen_rows"] for line in result.history])) / result.n_rows


def compare_variants(problem: Problem, rows: ArrayDataset, write: Write) -> bool:
    """Write a block of Figure 5.1; return whether all found the same optimum."""
    whole, seconds = solve(rows, "none")
    about = [problem.name, f"{rows.n_rows:,}", rows.n_features]
    write(*about, "unreduced", "", whole.steps, "", f"{seconds:.2f}", "1", "100%", f"{whole.objective:.8g}")
    held = whole.status == "converged"
    for name, rule in VARIANTS:
        found, spent = solve(rows, name, rule, rows.n_rows // 4 if name == "fixed" else None)
        same = found.status == "converged" and abs(found.objective / whole.objective - 1) <= 1e-6
        held &= same
        write(
            *about, name, rule, found.steps, f"{found.steps / whole.steps - 1:+.0%}", f"{spent:.2f}",
            f"{spent / seconds:.2f}", f"{share_of_rows(found):.0%}",
            f"{found.objective:.8g}" + ("" if same else " (!)"),
        )  # fmt: skip
    return held


def sweep_most_rows(problem: Problem, rows: ArrayDataset, write: Write) -> None:
    """Write a block of Figures 5.2 to 5.4: iterations / seconds for every variant and q_U; (!): did not converge."""
    for name, rule in VARIANTS:
        cells = []
        for share in SHARES:
            found, spent = solve(rows, name, rule, max(2, int(share * rows.n_rows)))
            cells.append(f"{found.steps} / {spent:.2f}" + ("" if found.status == "converged" else " (!)"))
        write(problem.name, name, rule, *cells)


def show_iterations(problem: Problem, rows: ArrayDataset, write: Write) -> None:
    """Write a row of Figure 5.5."""
    whole, reduced = (solve(rows, name)[0].history for name in ("none", "adaptive-balanced"))
    for name, history in (("unreduced", whole), ("adaptive-balanced", reduced)):
        marks = history[:: max(1, len(history) // 7)]
        write(
            problem.name, name, *(f"{line['step']}: {line['chosen_rows']:,.0f}, {line['mu']:.0e}" for line in marks[:7])
        )


def compare_accuracies(data: Path, most_rows: int | None, write: Write) -> None:
    """Write Table 5.2."""
    for name in ADULT:
        files = find_file(data, name), find_file(data, f"{name}.t")
        if files[0] is None or files[1] is None:
            continue
        (X, y), (X_test, y_test) = (load_svmlight_file(str(file), n_features=123) for file in files)
        for part in (X, X_test):
            part.indices, part.indptr = part.indices.astype(np.int32), part.indptr.astype(np.int32)
        X, y = X[:most_rows], y[:most_rows]
        scores = [LIBSVM(gamma=1 / 123).fit(X, y).score(X_test, y_test)]
        for approximation, rank in (("eigen", 64), ("cholesky", 300)):
            model = SVC(gamma=1 / 123, solver="interior-point", approximation=approximation, rank=rank, n_jobs=1)
            scores.append(model.fit(X, y).score(X_test, y_test))
        write(name, f"{X.shape[0]:,}", *(f"{100 * score:.2f}" for score in scores))


def report(data: Path, most_rows: int | None, write: Write) -> bool | None:
    """Write all tables; return whether all that is checked held, None without data."""
    sources = [(problem, read_problem(problem, data, most_rows)) for problem in PROBLEMS]
    found = [(problem, rows) for problem, rows in sources if rows is not None]
    if not any(problem.files for problem, _ in found):
        return None
    head = ["data", "rows", "features", "variant", "rule", "iterations", "more", "seconds", "of unreduced", "rows used"]
    write("Figure 5.1: variants against the unreduced method\n")
    _begin_table(write, *head, "objective")
    held = True
    for problem, rows in found:
        held &= compare_variants(problem, rows, write)
    write("\nFigures 5.2 to 5.4: iterations / seconds by q_U, a share of the rows\n")
    _begin_table(write, "data", "variant", "rule", *(f"{share:.0%}" for share in SHARES))
    for problem, rows in found:
        sweep_most_rows(problem, rows, write)
    write("\nFigure 5.5: rows used and mu, by iteration\n")
    _begin_table(write, "data", "variant", *[""] * 7)
    for problem, rows in found:
        show_iterations(problem, rows, write)
    write("\nTable 5.2: percent of test rows correct\n")
    _begin_table(write, "data", "rows", "LIBSVM", "EIGS 64", "CHOL 300")
    compare_accuracies(data, most_rows, write)
    return held


def _begin_table(write: Write, *names: str) -> None:
    write(*names)
    write(*["---"] * len(names))


def main() -> int:
    """Run, print, keep."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=os.environ.get("STREAMSVM_DATA"))
    parser.add_argument("--out", type=Path)
    parser.add_argument("--small", action="store_true")
    options = parser.parse_args()
    if options.data is None or not Path(options.data).is_dir():
        print("no data: give --data FOLDER", file=sys.stderr)
        return 2
    lines: list[str] = []

    def write(*cells: object) -> None:
        lines.append(str(cells[0]) if len(cells) == 1 else "| " + " | ".join(map(str, cells)) + " |")
        print(lines[-1], flush=True)

    held = report(Path(options.data), SMALL_ROWS if options.small else None, write)
    if held is None:
        print(f"{options.data}: none of the files is there", file=sys.stderr)
        return 2
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        (options.out / "jung_2008.md").write_text("\n".join(lines) + "\n")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
