"""Small problems, real data and a cluster, shared by many tests."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import dask
import numpy as np
import numpy.typing as npt
import pytest
import scipy.linalg  # noqa: F401  (it brings a BLAS of its own, which `one_blas_thread` shall find)
from distributed import Client
from distributed.security import Security
from distributed.utils import get_mp_context
from hypothesis import settings
from scipy.sparse import csr_array
from threadpoolctl import threadpool_limits

from streamsvm.data.rows import source
from streamsvm.data.sources.in_memory import ArrayDataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.cluster.workers import start_workers
from streamsvm.engines.open import MemoryPlan, plan_memory
from streamsvm.ingestion.readers import ingest
from streamsvm.models.model import LinearModel
from streamsvm.plan import predict
from streamsvm.solvers.registry import SOLVERS
from tests.covering import choose_first_tier
from tests.remote import server  # noqa: F401  (a fixture)

# Hundreds of processes import the package: they shall keep the bytecode of its sources, not make it anew.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
# A shell may start what runs in its background with Ctrl-C ignored, which the processes of the tests would inherit.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("streamsvm", deadline=None, derandomize=True)  # main does not turn red by chance
settings.register_profile("explore", deadline=None, print_blob=True)  # --hypothesis-profile explore
settings.load_profile("streamsvm")

F64 = npt.NDArray[np.float64]
ROOT = Path(__file__).parents[1]
WORKER_BYTES = 2 << 30
START_METHOD = "distributed.worker.multiprocessing-method"
COMPILE = """
import sys
from streamsvm.data.sources.parsing import PARSERS, compile_parser
from streamsvm.solvers.set_up import compile_all

list(map(compile_parser, PARSERS))
compile_all(sys.argv[1:])
"""
GROUPS = sorted({group for method in SOLVERS for group in method.groups})
BUDGETED = [group for group in GROUPS if group.startswith("budgeted")]  # half of the compiler's time
COMPILER = pytest.StashKey["subprocess.Popen[bytes]"]()


FEW = 20  # examples that a test draws in the first tier
_RUN = {"all": False}  # whether all tests run, with all their cases


def choose_examples(few: int, some: int, many: int) -> int:
    """Return how many examples a test tries: few in the first tier, some with `--all`, many if examples are explored.

    The first two numbers of examples are the same ones in each run.
    """
    if not settings.default.derandomize:
        return many
    return some if _RUN["all"] else few


def is_whole_suite(config: pytest.Config) -> bool:
    """Return whether pytest was called without the names of files or folders, and not by a process of the same run."""
    return config.args_source is pytest.Config.ArgsSource.TESTPATHS and not hasattr(config, "workerinput")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that runs all tests."""
    parser.addoption(
        "--all",
        action="store_true",
        dest="all_tests",
        help="run slow tests, too, and all cases of each test; the default if files or folders are named",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Keep whether all tests run, for test modules that ask for it while they are imported."""
    _RUN["all"] = config.option.all_tests


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect what is not in the first tier, unless all tests run."""
    if not config.option.all_tests:
        chosen = set(choose_first_tier(items))
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = [item for item in items if item in chosen]
        for item in items:
            draw_few(getattr(item, "obj", None))


def draw_few(test: Any) -> None:
    """Let a test of Hypothesis draw few examples. It keeps its settings in this attribute, which its plugin reads."""
    function = getattr(test, "__func__", test)
    own = getattr(function, "_hypothesis_internal_use_settings", None)
    if own is not None and own.derandomize:
        function._hypothesis_internal_use_settings = settings(own, max_examples=min(own.max_examples, FEW))


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> None:
    """Run the whole suite in two processes, unless `-n` is given, and a part of it in one process, with all tests."""
    if hasattr(config, "workerinput"):
        config.option.all_tests = config.workerinput["all_tests"]
    elif not is_whole_suite(config):
        config.option.all_tests = True
    elif getattr(config.option, "numprocesses", 0) is None and not config.option.usepdb:
        config.option.numprocesses, config.option.dist = 2, "worksteal"


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell a process of the run whether all tests run."""
    node.workerinput["all_tests"] = node.config.option.all_tests


def pytest_sessionstart(session: pytest.Session) -> None:
    """Compile kernels before the whole suite, so that the compiler's seconds are within no test's time limit.

    Those of budgeted SGD, which few tests need, are compiled meanwhile: one process compiles at a time, and two cores
    would wait for it.
    """
    if is_whole_suite(session.config) and not session.config.option.collectonly:
        compiled = run_python(COMPILE, *(group for group in GROUPS if group not in BUDGETED))
        assert compiled.returncode == 0, compiled.stderr
        session.stash[COMPILER] = subprocess.Popen([sys.executable, "-c", COMPILE, *BUDGETED], cwd=ROOT)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave no compiler behind."""
    if COMPILER in session.stash:
        session.stash[COMPILER].wait()


@dataclass(frozen=True)
class Problem:
    """Rows (float32, dense or CSR), labels -1 and +1, and perhaps weights."""

    X: npt.NDArray[np.float32] | csr_array
    y: npt.NDArray[np.int64]
    weight: F64 | None = None

    def dense(self) -> F64:
        """X as plain float64."""
        return np.asarray(self.X.toarray() if isinstance(self.X, csr_array) else self.X, np.float64)

    def costs(self, C: float, negative: float = 1.0, positive: float = 1.0) -> F64:
        """C_i = C * class_weight * sample_weight."""
        by_class = C * np.where(self.y > 0, positive, negative)
        return by_class if self.weight is None else by_class * self.weight

    def store(self, path: Path, **options: Any) -> Dataset:
        """Write the rows in their order as a dataset."""
        return ingest(self.X, path, self.y, sample_weight=self.weight, shuffle=None, **options)

    def in_memory(self) -> ArrayDataset:
        """The rows as they are."""
        codes = (self.y > 0).astype(np.int32)
        return ArrayDataset(self.X, codes, np.array([-1, 1]), self.weight)


def make_problem(seed: int, n: int = 300, d: int = 6, density: float = 1.0, weighted: bool = False) -> Problem:
    """Two overlapping classes; sparse below density 1."""
    random = np.random.default_rng(seed)
    X = random.normal(size=(n, d)) * (random.random((n, d)) < density)
    w = random.normal(size=d)
    noise = random.normal(size=n) * 0.5 * np.sqrt(d * density)
    y = np.where(X @ w + noise > 0.2, 1, -1)
    y[:2] = -1, 1
    weight = random.choice([0.0, 0.5, 1.0, 3.0], size=n) if weighted else None
    values = X.astype(np.float32)
    return Problem(csr_array(values) if density < 1 else values, y, weight)


def compute_objective(problem: Problem, model: LinearModel, costs: F64, intercept_scaling: float = 1.0) -> float:
    """P(w, b) = 1/2 |w|^2 + 1/2 (b / intercept_scaling)^2 + sum C_i max(0, 1 - y_i (w.x_i + b)), written out."""
    w, b = model.coef, model.intercept
    hinge = np.maximum(0.0, 1.0 - problem.y * (problem.dense() @ w + b))
    return float(0.5 * w @ w + 0.5 * (b / intercept_scaling) ** 2 + costs @ hinge)


@pytest.fixture(scope="session")
def thorough(request: pytest.FixtureRequest) -> bool:
    """Whether all tests run: then a test with this fixture tries all cases of a kind, and some in the first tier."""
    return bool(request.config.option.all_tests)


@pytest.fixture
def many_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut small data, too, into groups of chunks: the driver alone plans them, for workers as well."""
    monkeypatch.setattr(source, "SMALLEST_GROUP_BYTES", 1)
    monkeypatch.setattr(source, "GROUPS", 5)


@pytest.fixture
def without_pins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep no chunks in memory, so that every pass reads them."""

    def plan_without_pins(*arguments: Any, **named: Any) -> MemoryPlan:
        return replace(plan_memory(*arguments, **named), pin_bytes=0)

    monkeypatch.setattr("streamsvm.engines.open.plan_memory", plan_without_pins)


@pytest.fixture(scope="session")
def workers_import_tests() -> Iterator[None]:
    """Worker processes take sys.path from this one, and import the functions of tests by name."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(ROOT)
        yield


@pytest.fixture(scope="session", autouse=True)
def forked_workers() -> Iterator[None]:
    """Workers of this process are forks of a server, tests/worker_server.py.

    Those of commands start by themselves, as they do for users.
    """
    with dask.config.set({START_METHOD: "forkserver"}):
        get_mp_context()  # its first call asks for modules of its own
        multiprocessing.set_forkserver_preload(["tests.worker_server"])
        yield


@pytest.fixture(scope="session", autouse=True)
def one_blas_thread() -> Iterator[None]:
    """BLAS has one thread in this process, as it has within every run.

    Tests call solvers on small arrays. A second thread of BLAS mostly waits there, and keeps a core busy while it does:
    a test took 252 seconds of the processors with it, and 39 without. Tests of what runs do about BLAS ask for two.
    """
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """A file of this process is not written through to the disk, for which tests of small files mostly waited.

    The machine would have to lose its power for a test to see a difference. What is synced, and in which order, is the
    matter of tests/faults/test_power_failure.py. Commands in processes of their own sync as they do for users.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", os.fstat)  # an error for what is no open file, as before
        yield


@pytest.fixture(scope="session", autouse=True)
def samples_are_done() -> Iterator[None]:
    """A plan tries a sample to the end, and not for some seconds: these are too few on a machine that is busy."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(predict, "SAMPLE_SECONDS", 600.0)
        yield


@pytest.fixture(scope="module")
def spawned_workers() -> Iterator[None]:
    """The workers of a module's tests start by themselves, too."""
    with dask.config.set({START_METHOD: "spawn"}):
        yield


@pytest.fixture(scope="session")
def client(workers_import_tests: None) -> Iterator[Client]:
    """Two worker processes of one thread each, for all tests that do no harm to them."""
    with start_workers(2, 1, WORKER_BYTES) as opened:
        yield opened


def describe_keys(security: Security) -> dict[str, Any]:
    """A cluster's certificates as Dask's configuration, for those who connect to it by its address."""
    found: dict[str, Any] = {"distributed.comm.require-encryption": True}
    found["distributed.comm.tls.ca-file"] = security.tls_ca_file
    for role, part in product(("scheduler", "worker", "client"), ("key", "cert")):
        found[f"distributed.comm.tls.{role}.{part}"] = getattr(security, f"tls_{role}_{part}")
    return found


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """Folder of the real data, or skip."""
    if "STREAMSVM_DATA" not in os.environ:
        pytest.skip("STREAMSVM_DATA, folder of data sets, not set")
    return Path(os.environ["STREAMSVM_DATA"])


@pytest.fixture(scope="session")
def a9a(data_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Adult, 32,561 rows of 123 features, as `ingest` lays it out."""
    return ingest(data_folder / "adult" / "a9a.xz", tmp_path_factory.mktemp("adult") / "a9a.zarr")


def run_python(code: str, *arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run code in a fresh interpreter, at the repository's root."""
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
