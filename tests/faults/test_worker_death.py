"""Worker processes that die during a run: the pass is done again by whoever is left, and the bits are the same."""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from distributed import Client, Worker

from streamsvm.cli.progress import log_to_stderr
from streamsvm.data.rows.source import RowSource
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.cluster import engine, workers
from streamsvm.engines.cluster import engine as passes
from streamsvm.engines.cluster.engine import PassOnWorkers
from streamsvm.engines.cluster.task import Load
from streamsvm.engines.cluster.workers import ReadyWorker, prepare_worker, prepare_workers, start_workers
from streamsvm.losses.hinge import add_to_totals
from streamsvm.numeric.rows import Rows
from streamsvm.options import TrainOptions
from streamsvm.runs.results import Event, Result
from streamsvm.runs.train import train
from streamsvm.solvers.cutting_plane import line_search, setup
from streamsvm.solvers.cutting_plane.line_search import LEADING_PASSES
from streamsvm.solvers.set_up import ALL_MODELS, compile_all
from tests.conftest import WORKER_BYTES, make_problem
from tests.engines.scans import help_nobody
from tests.faults.instants import describe

LOAD = partial(compile_all, ALL_MODELS)

pytestmark = [
    pytest.mark.slow("starts workers and kills them"),
    pytest.mark.usefixtures("spawned_workers", "many_groups"),
]
OPTIONS = TrainOptions(tol=1e-4, threads=2, options={"acceleration": "line-search"})


@pytest.fixture(scope="module")
def shared(spawned_workers: None, workers_import_tests: None) -> Iterator[Client]:
    """Two workers that may be killed."""
    with start_workers(2, 1, WORKER_BYTES) as client:
        yield client


@pytest.fixture
def both_alive(shared: Client) -> Iterator[Client]:
    """Two workers that may be killed: those of the test before, if its dead were replaced, which is not our affair."""
    try:
        shared.wait_for_workers(2, timeout=20)
        assert len(shared.run(os.getpid)) == 2
        fresh = False
    except (TimeoutError, OSError, AssertionError):
        fresh = True
    with start_workers(2, 1, WORKER_BYTES) if fresh else nullcontext(shared) as client:
        yield client


@pytest.fixture(scope="module")
def dataset(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    problem = make_problem(5, n=2000, d=8, weighted=True)
    return problem.store(tmp_path_factory.mktemp("rows") / "rows", layout="dense", chunk_bytes=3000)


@pytest.fixture
def undisturbed(dataset: Dataset) -> Result:
    return train(dataset, OPTIONS)


def die_at_first(markers: list[str], totals: Any, rows: Rows, *shared: Any) -> None:
    """Add rows; but for each marker file, the first process that comes to make it is killed as it does."""
    for marker in markers:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        os.kill(os.getpid(), signal.SIGKILL)
    add_to_totals(totals, rows, *shared)


@pytest.mark.parametrize("n_deaths", [1, 3])
def test_workers_killed_during_a_pass(
    n_deaths: int,
    both_alive: Client,
    dataset: Dataset,
    undisturbed: Result,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In the middle of a task, with totals half done; with three, nobody of those who began is left.

    Who dies is named. (The third has come and gone within the pass, and was known to nobody.)
    """
    first = set(both_alive.scheduler_info()["workers"])
    markers = [str(tmp_path / f"death-{k}") for k in range(n_deaths)]
    monkeypatch.setattr(line_search, "add_to_totals", partial(die_at_first, markers))
    with log_to_stderr():
        result = train(dataset, OPTIONS, client=both_alive)
    assert all(Path(marker).exists() for marker in markers)
    assert result.model_sha256 == undisturbed.model_sha256
    assert result.passes == undisturbed.passes
    assert result.status == "converged"
    lines = [line.split(maxsplit=2) for line in capsys.readouterr().err.splitlines() if " is lost" in line]
    assert len({address for _, address, _ in lines} & first) == min(n_deaths, 2)
    said = {(word, rest) for word, _, rest in lines}
    assert said == {("worker", "is lost; its groups of chunks move to other workers")}


@pytest.fixture
def one_death_is_too_many(both_alive: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Dask gives a task up whose fourth worker is lost; here the first."""
    monkeypatch.setattr(both_alive.cluster.scheduler, "allowed_failures", 0)


@pytest.mark.usefixtures("one_death_is_too_many")
def test_a_task_that_was_lost_too_often_is_cut_in_two(
    both_alive: Client, dataset: Dataset, undisturbed: Result, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Its halves take half as long, and so they may end before the next worker dies."""
    monkeypatch.setattr(line_search, "add_to_totals", partial(die_at_first, [str(tmp_path / "death")]))
    result = train(dataset, OPTIONS, client=both_alive)
    assert (tmp_path / "death").exists()
    assert (result.model_sha256, result.passes) == (undisturbed.model_sha256, undisturbed.passes)


def die_in_the_first_group(markers: list[str], totals: Any, rows: Rows, *shared: Any) -> None:
    """Add rows, but die at the first row of all as often as there are marker files to be made."""
    die_at_first(markers if rows.start == 0 else [], totals, rows, *shared)


@pytest.mark.usefixtures("one_death_is_too_many")
def test_a_single_group_that_was_lost_too_often_is_tried_again(
    both_alive: Client, dataset: Dataset, undisturbed: Result, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Workers may die of something else. The task of two groups is cut in two; then the first group is lost once."""
    markers = [str(tmp_path / f"death-{k}") for k in range(2)]
    monkeypatch.setattr(PassOnWorkers, "_steal", lambda *_: [])
    monkeypatch.setattr(line_search, "add_to_totals", partial(die_in_the_first_group, markers))
    result = train(dataset, OPTIONS, client=both_alive)
    assert all(Path(marker).exists() for marker in markers)
    assert (result.model_sha256, result.passes) == (undisturbed.model_sha256, undisturbed.passes)


@pytest.mark.usefixtures("one_death_is_too_many")
def test_a_task_that_kills_every_worker_ends_the_run(
    both_alive: Client, dataset: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As one does that needs more memory than the workers have."""
    markers = [str(tmp_path / f"death-{k}") for k in range(100)]
    monkeypatch.setattr(line_search, "add_to_totals", partial(die_at_first, markers))
    with pytest.raises(ConnectionError, match=r"lost with 1 worker, one after another; .*--resume"):
        train(dataset, OPTIONS, client=both_alive)
    assert not Path(markers[20]).exists()


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "_hold": engine._hold,
    "join_tasks": passes.task.join_tasks,
    "add_to_totals": add_to_totals,
    "add_points": line_search.add_points,
}


def call_or_die(marker: str, name: str, *arguments: Any) -> Any:
    """Call a function; but the first process that comes to make the marker file is killed."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return FUNCTIONS[name](*arguments)
    return os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.usefixtures("one_death_is_too_many")
@pytest.mark.parametrize(("module", "name"), [(engine, "_hold"), (passes.task, "join_tasks")])
def test_what_holds_the_source_and_what_joins_totals_is_tried_again(
    module: Any,
    name: str,
    both_alive: Client,
    dataset: Dataset,
    undisturbed: Result,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setattr(module, name, partial(call_or_die, str(tmp_path / "death"), name))
    result = train(dataset, OPTIONS, client=both_alive)
    assert (tmp_path / "death").exists()
    assert (result.model_sha256, result.passes) == (undisturbed.model_sha256, undisturbed.passes)


async def die_as_it_is_prepared(
    markers: list[str], dask_worker: Worker, load: Load, source: RowSource | None, name: str
) -> ReadyWorker:
    """Prepare a worker; but for each marker file, the first process that comes to make it is killed."""
    for marker in markers:
        try:
            os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            continue
        os.kill(os.getpid(), signal.SIGKILL)
    return await prepare_worker(dask_worker, load, source, name)


@pytest.mark.parametrize("n_deaths", [1, 2])
def test_workers_killed_while_they_are_prepared(
    n_deaths: int,
    both_alive: Client,
    dataset: Dataset,
    undisturbed: Result,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Before the first pass; the run goes on without one that is lost, and waits for others if all are."""
    markers = [str(tmp_path / f"death-{k}") for k in range(n_deaths)]
    monkeypatch.setattr(workers, "prepare_worker", partial(die_as_it_is_prepared, markers))
    with log_to_stderr():
        result = train(dataset, OPTIONS, client=both_alive)
    assert all(Path(marker).exists() for marker in markers)
    assert (result.model_sha256, result.status) == (undisturbed.model_sha256, "converged")
    assert ("lost before the first pass; waiting for others" in capsys.readouterr().err) == (n_deaths == 2)


def test_what_fails_in_a_worker_that_is_alive_is_raised(both_alive: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even an error of the kind that a lost connection gives."""
    monkeypatch.setattr(workers, "prepare_worker", refuse_to_open)
    with pytest.raises(FileNotFoundError):
        prepare_workers(both_alive, LOAD)


def refuse_to_open(dask_worker: Worker, load: Load, source: RowSource | None, name: str) -> ReadyWorker:
    raise FileNotFoundError


def kill_one(client: Client, killed: list[str], step: int, event: Event) -> None:
    """Kill a worker after this step, and wait until it is dead and the scheduler knows of it.

    The next pass would otherwise count on the worker, and its groups be read by another one that does not keep them.
    """
    if event.line["step"] == step:
        address, victim = next(iter(client.run(os.getpid).items()))
        killed.append(address)
        watched = os.pidfd_open(victim)
        os.kill(victim, signal.SIGKILL)
        assert select.select([watched], [], [], 30)[0]  # `waitpid` would take the news from its nanny
        os.close(watched)
        while address in client.scheduler_info(n_workers=-1)["workers"]:
            pass


def test_a_worker_killed_between_passes(
    both_alive: Client,
    dataset: Dataset,
    undisturbed: Result,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The chunks that it kept are read again, by another. It is named once.

    Who is idle does not help the other one meanwhile, since what is read to help is not kept, and counts as well.
    """
    help_nobody(monkeypatch)
    killed = list[str]()
    with log_to_stderr():
        result = train(dataset, OPTIONS, client=both_alive, listener=partial(kill_one, both_alive, killed, 2))
    assert result.model_sha256 == undisturbed.model_sha256
    # Each reads its half. Then one is left, which reads the other half; the new one reads half of all when it comes.
    assert dataset.nbytes * 0.9 < result.read_bytes <= 2.1 * dataset.nbytes
    assert undisturbed.read_bytes <= dataset.nbytes
    lost = [line.split()[1] for line in capsys.readouterr().err.splitlines() if " is lost" in line]
    assert [lost.count(address) for address in killed] == [1]


def test_numbers_of_rows_that_a_worker_takes_along_are_made_anew(
    both_alive: Client, dataset: Dataset, tmp_path: Path
) -> None:
    """With the same bits; and so are those of a run that is gone on with, on threads."""
    options, killed = TrainOptions(solver="interior-point", tol=1e-6, threads=1), list[str]()
    train(dataset, options, tmp_path / "whole")
    listener, few = partial(kill_one, both_alive, killed, 3), replace(options, max_passes=11)
    train(dataset, few, tmp_path / "killed", client=both_alive, listener=listener)
    assert len(killed) == 1
    train(dataset, options, tmp_path / "killed", resume=True)
    assert describe(tmp_path / "killed") == describe(tmp_path / "whole")


@pytest.mark.parametrize("died_in", ["add_to_totals", "add_points", "between"])
def test_a_worker_killed_while_a_line_search_leads_one_read(
    died_in: str, both_alive: Client, dataset: Dataset, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """In a pass of the line search, in a pass of one read, and after the last pass of the four that lead."""
    monkeypatch.setattr(setup.one_read, "weigh_solvers", lambda _: (9.0, 2.0, 1.0))
    monkeypatch.setattr(setup, "LONG_SECONDS", 0.0)
    options, killed, marker = TrainOptions(tol=1e-4, threads=2, resident_rows=200), list[str](), tmp_path / "death"
    train(dataset, options, tmp_path / "whole")
    last = LEADING_PASSES[0] if died_in == "between" else -1
    if died_in != "between":
        monkeypatch.setattr(line_search, died_in, partial(call_or_die, str(marker), died_in))
    listener = partial(kill_one, both_alive, killed, last)
    result = train(dataset, options, tmp_path / "killed", client=both_alive, listener=listener)
    assert marker.exists() or len(killed) == 1
    assert result.passes > LEADING_PASSES[0]
    assert describe(tmp_path / "killed") == describe(tmp_path / "whole")
