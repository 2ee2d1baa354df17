"""scikit-learn's own tests of its support-vector machines, run with the estimators of streamsvm, as a Markdown table.

    python -m benchmarks.scikit_learn_tests [-k EXPRESSION]

The tests are those of the installed version (sklearn/svm/tests/test_svm.py), with SKLEARN_TESTS_GLOBAL_RANDOM_SEED=42.
WHY lists the tests that are expected to fail, and the reasons. The exit status is 1 if another test fails.
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
PRIVATE = (
    "the tests change private attributes of scikit-learn's LIBSVM wrapper; in streamsvm predictions come from `model_`"
)
KEPT = "streamsvm keeps `probability`, so scikit-learn's warning of its removal would be wrong here"
WHY = {  # by the first part of a test's name
    "test_bad_input": "models of dense rows also accept sparse rows, and give them the same scores; the tests "
    "expect an error",
    "test_linear_svm_convergence_warnings": "`max_iter` of linear models counts reads of the data, not sweeps of "
    "LIBLINEAR. One read solves these small problems with a proof, so a warning would be wrong",
    "test_probability_raises_futurewarning": KEPT,
    "test_svc_raises_error_internal_representation": PRIVATE,
    "test_svr_errors": "`fit` refuses a kernel function that returns a wrong shape; scikit-learn trains on the "
    "returned values, and refuses it in `predict`",
    "test_tweak_params": PRIVATE,
}


class Collector:
    """A pytest plugin that keeps the outcome of each test, with the last line of its error."""

    def __init__(self) -> None:
        self.outcomes: dict[str, tuple[str, str]] = {}

    def pytest_runtest_logreport(self, report: Any) -> None:
        """Keep the outcome of a test, or of its set-up if that fails."""
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
    failed = {name.split("::")[-1]: text for name, (outcome, text) in found.outcomes.items() if outcome == "failed"}
    print("\n| reason | tests |\n|---|---|")
    for why in dict.fromkeys(WHY.values()):
        tests = ", ".join(f"`{name}`" for name in failed if find_reason(name) == why)
        if tests:
            print(f"| {why} | {tests} |")
    counts = Counter(outcome for outcome, _ in found.outcomes.values())
    print(f"\n{', '.join(f'{n} {outcome}' for outcome, n in sorted(counts.items()))}")
    unexpected = {name: text for name, text in failed.items() if find_reason(name) is None}
    for name, text in unexpected.items():
        print(f"not expected to fail: {name}: {' '.join(text.split())}")
    raise SystemExit(1 if unexpected else 0)


def find_reason(name: str) -> str | None:
    """Return the reason why a test is expected to fail, or None if it is expected to pass."""
    return next((why for beginning, why in WHY.items() if name.startswith(beginning)), None)


if __name__ == "__main__":
    main()
