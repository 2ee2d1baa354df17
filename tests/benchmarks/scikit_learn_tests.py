"""scikit-learn's own tests of its support-vector machines, run with the estimators of streamsvm, as a Markdown table.

    python -m tests.benchmarks.scikit_learn_tests [-k EXPRESSION]

The tests are those of the installed version (sklearn/svm/tests/test_svm.py), with SKLEARN_TESTS_GLOBAL_RANDOM_SEED=42.
Estimators that streamsvm does not have stay scikit-learn's, and the tests that use one are counted apart.
"""

from __future__ import annotations

import argparse
import inspect
import os
from collections import Counter
from typing import Any

import pytest
import sklearn.svm

import streamsvm

REPLACED = ("SVC", "NuSVC", "SVR", "NuSVR", "LinearSVC", "LinearSVR", "OneClassSVM")
MISSING = ()
REASON_LENGTH = 110


class Collector:
    """A plugin of pytest that keeps the outcome of each test, with the last line of its error."""

    def __init__(self) -> None:
        self.outcomes: dict[str, tuple[str, str]] = {}
        self.of_theirs: set[str] = set()

    def pytest_itemcollected(self, item: Any) -> None:
        """Note the tests that use an estimator which streamsvm does not have, unless it is another test's parameter."""
        given = item.callspec.params.values() if hasattr(item, "callspec") else ()
        is_of_ours = any(getattr(value, "__module__", "").startswith("streamsvm") for value in given)
        if not is_of_ours and any(name in inspect.getsource(item.function) + item.name for name in MISSING):
            self.of_theirs.add(item.nodeid)

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
    for kind, names in (("with ours", found.outcomes.keys() - found.of_theirs), ("with theirs", found.of_theirs)):
        counts = Counter(found.outcomes[name][0] for name in names if name in found.outcomes)
        print(f"\n{kind}: {', '.join(f'{n} {outcome}' for outcome, n in sorted(counts.items()))}")


if __name__ == "__main__":
    main()
