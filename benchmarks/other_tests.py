"""Tests of other projects, run with scikit-learn's estimators and again with streamsvm's in their place.

    python -m benchmarks.other_tests FILE... [-k EXPRESSION]

The files are tests for pytest, such as those of dask-ml, imbalanced-learn and mlxtend. Only tests that pass with
scikit-learn's estimators are compared. The script prints the counts, and each test that fails with streamsvm's
estimators, with the last line of its error. docs/estimators.md has the reasons. The exit status is 1 if a test failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.scikit_learn_tests import Collector, replace_estimators

WRITTEN = "STREAMSVM_OTHER_TESTS"  # the environment variable with the file for the outcomes
REPLACES = "STREAMSVM_REPLACES"  # the environment variable that is set if streamsvm's estimators replace scikit-learn's
PYTEST = [sys.executable, "-m", "pytest", "-q", "--no-header", "--no-summary", "-c", os.devnull]
PYTEST += ["-p", "no:cacheprovider", "-p", "benchmarks.other_tests"]


def pytest_configure(config: Any) -> None:
    """Replace the estimators, and collect the outcomes; this module is a plugin of the processes that it starts."""
    if os.environ.get(REPLACES):
        replace_estimators()
    config.pluginmanager.register(Collector(), "outcomes")


def pytest_unconfigure(config: Any) -> None:
    """Write the outcomes of the tests as JSON."""
    outcomes = config.pluginmanager.get_plugin("outcomes").outcomes
    Path(os.environ[WRITTEN]).write_text(json.dumps(outcomes), encoding="utf-8")


def main() -> None:
    """Run as a script."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("-k", default="", metavar="EXPRESSION", help="run these tests only, as for pytest")
    given = parser.parse_args()
    theirs, ours = (run_tests(given.files, given.k, replaces) for replaces in ("", "yes"))
    passed = [name for name, (outcome, _) in theirs.items() if outcome == "passed"]
    failed = {name: ours[name][1] for name in passed if ours.get(name, ("missing", ""))[0] != "passed"}
    print(f"{len(failed)} of {len(passed)} tests fail with streamsvm's estimators")
    print(f"({len(theirs) - len(passed)} others do not pass with scikit-learn's)")
    for name, text in failed.items():
        print(f"{name}: {' '.join(text.split())}")
    raise SystemExit(1 if failed else 0)


def run_tests(files: list[str], expression: str, replaces: str) -> dict[str, tuple[str, str]]:
    """Return the outcome of each test, and the message of its error."""
    with tempfile.TemporaryDirectory() as folder:
        written = Path(folder) / "outcomes.json"
        environment = os.environ | {WRITTEN: str(written), REPLACES: replaces}
        root = os.path.commonpath([Path(file).resolve().parent for file in files])
        command = [*PYTEST, f"--rootdir={root}", "-k", expression, *files]
        subprocess.run(command, env=environment, check=False)  # its status counts failures
        outcomes: dict[str, tuple[str, str]] = json.loads(written.read_text(encoding="utf-8"))
    return outcomes


if __name__ == "__main__":
    main()
