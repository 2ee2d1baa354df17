"""scikit-learn's own tests of its SVMs and of its logistic regression, run with streamsvm's estimators, as a table.

    python -m benchmarks.scikit_learn_tests [-k EXPRESSION]

The tests are those of the installed version (MODULES), with SKLEARN_TESTS_GLOBAL_RANDOM_SEED=42; the tests of
LogisticRegressionCV and of callbacks are left out (CHOSEN). WHY lists the tests that are expected to fail, and the
reasons. The exit status is 1 if another test fails.
"""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

import pytest
import sklearn.linear_model
import sklearn.svm

import streamsvm

REPLACED = {
    sklearn.svm: ("SVC", "NuSVC", "SVR", "NuSVR", "LinearSVC", "LinearSVR", "OneClassSVM"),
    sklearn.linear_model: ("LogisticRegression",),
}
MODULES = ("svm.tests.test_svm", "svm.tests.test_sparse", "linear_model.tests.test_logistic")
# pytest's expression; the tests after "callback" train LogisticRegressionCV, too
CHOSEN = (
    "not cv and not callback and not string_inputs and not solvers_multiclass[ and not scores_attribute and not "
    "l1_ratio_None and not lr_scoring and not default_scorer and not metadata_routing"
)
PRIVATE = (
    "the tests change private attributes of scikit-learn's LIBSVM wrapper; in streamsvm predictions come from `model_`"
)
KEPT = "streamsvm keeps `probability`, so scikit-learn's warning of its removal would be wrong here"
ONE_SOLVER = (
    'the names of scikit-learn\'s solvers mean `"auto"`, which has none of their limits: it takes several classes, '
    "`dual`, sparse rows with 64-bit indices, and does not depend on `random_state`"
)
ONE_READ = "one read solves these small problems with a proof, also with `max_iter=1`, and at least one read is needed"
MIXTURE = "no solver has the mixture of both penalties, so `fit` refuses it"
NO_CHANGE = "scikit-learn deprecates `penalty` and `n_jobs`; streamsvm keeps them, so a warning would be wrong here"
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
    "test_sparse_oneclasssvm[": "w = 0 is the optimum of these rows with the linear kernel (status `stalled`); the "
    "tests compare multipliers of 1e-9, which rounding determines",
    "test_logistic_glmnet": "the bias is penalised; `intercept_scaling=1e3` gives nearly the same as a free bias",
    "test_check_solver_option": ONE_SOLVER,
    "test_large_sparse_matrix": ONE_SOLVER,
    "test_liblinear_dual_random_state": ONE_SOLVER,
    "test_liblinear_multiclass_raises": ONE_SOLVER,
    "test_liblinear_with_large_values": "a value of 1e100 is refused with another message, since rows become float32",
    "test_newton_cholesky_fallback": "with `C=1e30` rounding errors exceed the gap; the status is `stalled`",
    "test_logreg_predict_proba_multinomial": "the test calls `_predict_proba_lr`, a private method of scikit-learn",
    "test_logreg_l1": "with a proved gap of 1e-10 the weights of dense and of sparse rows agree to six digits; "
    "the tests compare seven",
    "test_warm_start[": ONE_READ,
    "test_zero_max_iter": ONE_READ,
    "test_elastic_net": MIXTURE,
    "test_LogisticRegression_elastic_net": MIXTURE,
    "test_l1_ratio_non_elasticnet": MIXTURE,
    "test_dtype_match": "the weights are float64, also for float32 rows",
    "test_penalty_deprecated": NO_CHANGE,
    "test_logisticregression_warns_with_n_jobs": NO_CHANGE,
    "test_lr_penalty_l1ratio_incompatible": NO_CHANGE,
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
    replace_estimators()
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
        f"({CHOSEN}) and ({given.k})" if given.k else CHOSEN,
        "-c",
        os.devnull,
    ]
    unexpected: dict[str, str] = {}
    for module in MODULES:
        found.outcomes.clear()
        pytest.main(["--pyargs", f"sklearn.{module}", *options], plugins=[found])
        failed = {name.split("::")[-1]: text for name, (outcome, text) in found.outcomes.items() if outcome == "failed"}
        print_failed(module, failed)
        counts = Counter(outcome for outcome, _ in found.outcomes.values())
        print(f"\n{', '.join(f'{n} {outcome}' for outcome, n in sorted(counts.items()))}")
        unexpected |= {name: text for name, text in failed.items() if find_reason(name) is None}
    for name, text in unexpected.items():
        print(f"not expected to fail: {name}: {' '.join(text.split())}")
    raise SystemExit(1 if unexpected else 0)


def replace_estimators() -> None:
    """Put streamsvm's estimators in the places of scikit-learn's."""
    for module, names in REPLACED.items():
        for name in names:
            setattr(module, name, getattr(streamsvm, name))


def print_failed(module: str, failed: Iterable[str]) -> None:
    """Print a table of the failed tests of a module that are expected to fail, without their parameters."""
    print(f"\n| {module}: reason | tests |\n|---|---|")
    for why in dict.fromkeys(WHY.values()):
        numbers = Counter(name.split("[")[0] for name in failed if find_reason(name) == why)
        if numbers:
            print(f"| {why} | {', '.join(f'`{name}` ({n})' for name, n in numbers.items())} |")


def find_reason(name: str) -> str | None:
    """Return the reason why a test is expected to fail, or None if it is expected to pass."""
    return next((why for beginning, why in WHY.items() if name.startswith(beginning)), None)


if __name__ == "__main__":
    main()
