"""Peptide rescoring by Percolator's method, with the LinearSVC of streamsvm and of scikit-learn, as a Markdown table.

    python pipelines/peptides.py [--spectra 20000] [--seed 0]

The matches are generated, so the right matches are known. The exit status is 0 if both estimators accept the same
number of matches to within 2%, at least one and a half times as many as the score of the search engine alone, and if
about the requested 1% of the accepted matches are wrong; otherwise it is 1.
"""

from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import sklearn.svm

from pipelines.peptides.matches import Matches, find_q_values, make_matches
from pipelines.peptides.percolator import ACCEPTED, rescore
from pipelines.report import Report
from pipelines.story import run_story
from streamsvm import LinearSVC
from streamsvm.system.errors import InputError

LEAST_SPECTRA = 2000
MOST_FALSE = 0.015  # the largest allowed share of wrong matches; 1% is only an estimate
LEAST_GAIN = 1.5


@dataclass(frozen=True)
class Outcome:
    """The number of accepted matches, and the share of wrong matches among them."""

    n_accepted: int
    false_share: float


def main() -> int:
    parser = argparse.ArgumentParser(prog="peptides.py", description="Peptide rescoring.")
    parser.add_argument("--spectra", type=int, default=20_000, help="spectra to generate (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the generated matches (default: %(default)s)")
    options = parser.parse_args()
    return run_story("peptides.py", lambda: compare(options.spectra, options.seed))


def compare(n_spectra: int, seed: int) -> int:
    """Rescore with both estimators, write the table, and return the exit status."""
    if n_spectra < LEAST_SPECTRA:
        raise InputError(f"--spectra {n_spectra}: at least {LEAST_SPECTRA:,} are needed for q-values of 1%")
    matches, report = make_matches(seed, n_spectra), Report()
    report.write(f"{n_spectra:,} spectra, {np.count_nonzero(matches.is_right):,} of them with a right match\n")
    report.begin_table("", "", "accepted at 1%", "of them wrong", "CPU s")
    raw = add_row(report, "score of the search engine", matches, matches.X[:, 0].astype(np.float64), 0.0)
    found = []
    for name, make_model in (("streamsvm", make_ours), ("scikit-learn", make_theirs)):
        began = time.process_time()
        scores = rescore(matches, make_model)
        found.append(add_row(report, name, matches, scores, time.process_time() - began))
    ours, theirs = found
    is_alike = abs(ours.n_accepted / max(1, theirs.n_accepted) - 1) <= 0.02
    gains = ours.n_accepted >= LEAST_GAIN * raw.n_accepted
    return 0 if is_alike and gains and ours.false_share <= MOST_FALSE else 1


def make_ours(decoy_cost: float, target_cost: float) -> Any:
    return LinearSVC(loss="squared_hinge", class_weight={-1: decoy_cost, 1: target_cost})


def make_theirs(decoy_cost: float, target_cost: float) -> Any:
    return sklearn.svm.LinearSVC(dual=False, tol=1e-4, class_weight={-1: decoy_cost, 1: target_cost})


def add_row(
    report: Report, name: str, matches: Matches, scores: npt.NDArray[np.float64], cpu_seconds: float
) -> Outcome:
    """Measure the scores, write a row of the table, and return the outcome."""
    accepted = matches.is_target & (find_q_values(scores, matches.is_target) <= ACCEPTED)
    n_accepted = int(np.count_nonzero(accepted))
    false_share = float(np.mean(~matches.is_right[accepted])) if n_accepted else 0.0
    report.add_row(name, f"{n_accepted:,}", f"{false_share:.2%}", f"{cpu_seconds:.1f}")
    return Outcome(n_accepted, false_share)


if __name__ == "__main__":
    sys.exit(main())
