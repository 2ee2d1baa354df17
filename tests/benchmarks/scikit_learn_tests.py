"""scikit-learn's own tests of its support-vector machines, run with the estimators of streamsvm, as a Markdown table.

    python -m tests.benchmarks.scikit_learn_tests [-k EXPRESSION]

The tests are those of the installed version (sklearn/svm/tests/test_svm.py), with SKLEARN_TESTS_GLOBAL_RANDOM_SEED=42.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from typing import Any

import pytest
import sklearn.svm

import streamsvm

REPLACED = ("SVC", "NuSVC", "SVR", "NuSVR", "LinearSVC", "LinearSVR", "OneClassSVM")
REASON_LENGTH = 110


class Collector:
    """A plugin of pytest that keeps the outcome of each test, with the last line of its error."""

    def __init__(self) -> None:
        self.outcomes: dict[str, tuple[str, str]] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep the outcome of the call, or of a set-up that failed."""
        if report.when == "call" or report.outcome != "passed":
            crash = getattr(report.longrepr, "reprcrash", None)
            self.outcomes[report.nodeid] = (report.outcome, crash.message if crash else "")


def main() -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-k", default="", metavar="EXPRESSION", help="run these tests only, as for pytest")
    given = parser.parse_args()
    os.environ["SKLEARN_TESTS_GLOBAL_RANDOM_SEED"] = "42"
    for name in REPLACED:
        setattr(sklearn.svm, name, getattr(streamsvm, name))
    found = Collector()
    options = [
        "-q",
        "--no-header",
        "--no-summary",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-k",
        given.k,
        "-c",
        os.devnull,
    ]
    pytest.main(["--pyargs", "sklearn.svm.tests.test_svm", *options], plugins=[found])
    print("\n| test | what it says |\n|---|---|")
    for name, (outcome, message) in found.outcomes.items():
        if outcome == "failed":
            line = " ".join(message.split())[:REASON_LENGTH].replace("|", "\\|")
            print(f"| {name.split('::')[-1]} | {line} |")
    counts = Counter(outcome for outcome, _ in found.outcomes.values())
    print(f"\n{', '.join(f'{n} {outcome}' for outcome, n in sorted(counts.items()))}")


if __name__ == "__main__":
    main()
