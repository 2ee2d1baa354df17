"""Start-up: importing is fast and light."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from streamsvm import ingest

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


# Libraries and modules without which small fits on arrays, and facts about a dataset, are told.
UNUSED = {
    "fit": {"dask", "distributed", "matplotlib", "obstore", "pandas", "pyarrow", "zarr", "streamsvm.ingestion"},
    "info": {"dask", "distributed", "matplotlib", "obstore", "pandas", "pyarrow", "sklearn"},
}
# scikit-learn imports pandas and pyarrow itself: it is loaded first and does not find them, and later imports are seen.
WATCHED = """
import sys
class Hidden:
    seen = set()
    def find_spec(name, *_):
        if name in ("pandas", "pyarrow"):
            Hidden.seen.add(name)
            raise ImportError(name)
sys.meta_path.insert(0, Hidden)
if sys.argv[1] != "fit":
    from streamsvm.cli.main import main
    assert main(sys.argv[1:]) == 0
else:
    import numpy as np
    import sklearn.svm
    Hidden.seen.clear()
    import streamsvm
    X = np.random.default_rng(0).normal(size=(500, 10))
    getattr(streamsvm, sys.argv[2])().fit(X, X[:, 0] > 0).decision_function(X)
print()
print(*sys.modules, *Hidden.seen)
"""


OTHERS = pytest.mark.slow("trains in a process of its own, like LinearSVC")


@pytest.mark.parametrize(
    "use",
    ["fit LinearSVC", "info", *(pytest.param(f"fit {name}", marks=OTHERS) for name in ("SVC", "LogisticRegression"))],
)
def test_only_the_libraries_in_use_are_loaded(use: str, tmp_path: Path) -> None:
    what, *names = use.split()
    if what != "fit":
        ingest(np.eye(4, 2, dtype=np.float32), tmp_path / "rows.zarr", [0, 1, 0, 1])
    shown = run_python("-c", WATCHED, what, *names, tmp_path / "rows.zarr")
    assert not UNUSED[what] & set(shown.splitlines()[-1].split())


def test_the_garbage_collector_is_left_as_it_was() -> None:
    """Neither enabled for someone who has disabled it, nor are objects that someone has frozen collected again."""
    code = "import gc, streamsvm\ngc.disable()\nstreamsvm.SVC\nprint(gc.isenabled(), gc.get_freeze_count())\n"
    code += "gc.enable()\ngc.freeze()\nstreamsvm.LinearSVC\nprint(gc.isenabled(), gc.get_freeze_count() > 1000)"
    assert run_python("-c", code).splitlines() == ["False 0", "True True"]


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
        "PolynomialMap RankSVM SMO SVC SVR __version__ delete ingest load open split to_sklearn tune",
        " ".join(["True"] * 30),
        "module 'streamsvm' has no attribute 'nothing'",
    ]
