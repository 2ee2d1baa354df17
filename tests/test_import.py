"""Start-up: importing is fast and light."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

HEAVY = ("dask", "distributed", "numba", "numpy", "pandas", "pyarrow", "scipy", "sklearn", "zarr")


def run_python(*arguments: object, **environment: str) -> str:
    """Return the standard output of Python in a new process; it must succeed and warn of nothing."""
    command = [sys.executable, "-W", "error", *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})
    assert ran.returncode == 0, ran.stderr
    return ran.stdout


@pytest.mark.parametrize(
    "statement",
    [
        "import streamsvm",
        "from streamsvm.cli.main import main\ntry: main(['train', '--help'])\nexcept SystemExit: pass",
    ],
)
def test_nothing_heavy_is_imported(statement: str) -> None:
    shown = run_python("-c", f"{statement}\nimport sys\nprint('\\n', *(n for n in {HEAVY} if n in sys.modules))")
    assert shown.splitlines()[-1].split() == []


def test_import_takes_less_than_a_second() -> None:
    measure = "from time import perf_counter\nt = perf_counter()\nimport streamsvm\nprint(perf_counter() - t)"
    assert min(float(run_python("-c", measure)) for _ in range(3)) < 1.0


def test_public_names_are_there_and_no_others() -> None:
    shown = run_python(
        "-c",
        "import streamsvm as s\nprint(*dir(s))\nprint(*(getattr(s, n) is not None for n in dir(s)))\n"
        "try: s.nothing\nexcept AttributeError as error: print(error)",
    )
    assert shown.splitlines() == [
        "BudgetedSGD BudgetedSVC BudgetedSVR CuttingPlane Eigenmap IRWLS IncompleteCholesky InteriorPoint "
        "LinearOneClassSVM LinearSVC LinearSVR LogisticRegression Newton NuSVC NuSVR Nystroem OneClassSVM "
        "PolynomialMap RankSVM SMO SVC SVR __version__ delete ingest load open to_sklearn tune",
        " ".join(["True"] * 29),
        "module 'streamsvm' has no attribute 'nothing'",
    ]
