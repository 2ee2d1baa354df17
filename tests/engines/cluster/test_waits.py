"""Waits for workers that do nothing for a training: they end at its limit, and say what they wait for."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import numpy as np
import pytest
from distributed import Client, LocalCluster, SchedulerPlugin

from streamsvm import LinearSVC
from streamsvm.cli.progress import log_to_stderr
from streamsvm.data.sources import dask_collections
from streamsvm.data.store.dataset import Dataset
from streamsvm.engines.cluster import watch, workers
from streamsvm.engines.cluster.engine import DistributedEngine
from streamsvm.engines.local import SerialEngine
from streamsvm.numeric.rows import Rows
from streamsvm.options import TrainOptions
from streamsvm.passes import Scan
from streamsvm.runs import tune, update
from streamsvm.runs.calibrate import FoldFits, calibrate, make_folds
from streamsvm.runs.results import Event
from streamsvm.runs.train import Training, train
from streamsvm.runs.tune import train_together
from streamsvm.system import deadline
from streamsvm.system.errors import InputError, TimeLimitError
from tests.conftest import WORKER_BYTES, make_problem
from tests.docs.quoted import is_quoted
from tests.engines.cluster.test_adaptive_clusters import await_truth
from tests.engines.cluster.test_pass_on_workers import await_file
from tests.engines.scans import Trace, add_to_trace, combine_traces, trace_scan

GPU = {"resources": {"GPU": 1}}
ENDLESS: dict[str, Any] = {"C": 100, "tol": 1e-12, "options": {"acceleration": "none"}}  # hundreds of steps


@pytest.fixture(autouse=True)
def looks_are_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (watch, dask_collections):
        monkeypatch.setattr(module, "LOOK_SECONDS", 0.2)


@pytest.fixture
def dataset(tmp_path: Path) -> Dataset:
    return make_problem(1).store(tmp_path / "rows", chunk_bytes=1000)


@pytest.fixture
def other_client(workers_import_tests: None) -> Iterator[Client]:
    """The client of a cluster of others, whose one worker has a thread, a name, and half a machine."""
    quiet = {"dashboard": False, "dashboard_address": "127.0.0.1:0"}
    options: dict[str, Any] = {"n_workers": 1, "threads_per_worker": 1, "memory_limit": WORKER_BYTES}
    with (
        LocalCluster(host="127.0.0.1", scheduler_kwargs=quiet, resources={"HALF": 0.5}, **options) as cluster,
        Client(cluster) as client,
    ):
        yield client


def test_what_a_block_asks_of_workers_is_named(
    other_client: Client, dataset: Dataset, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Such tasks never begin, and Dask says nothing of them."""
    monkeypatch.setattr(workers, "FIRST_WORKER_SECONDS", 0.1)
    address = other_client.scheduler.address
    for notes in (GPU, {"workers": ["tcp://10.0.0.1:1"]}):
        said = ", ".join(f"{name}={value}" for name, value in notes.items())
        with dask.annotate(**notes), log_to_stderr(), pytest.raises(InputError) as refused:
            train(dataset, TrainOptions(), client=other_client)
        lack = f"no workers are connected to it for dask.annotate({said}); start some first (none joined within 0 s)"
        assert str(refused.value) == f"scheduler {address}: {lack}"
        waits = f"waits for workers: scheduler {address} has none for dask.annotate({said})\n"
        warned = capsys.readouterr().err
        assert warned == f"the preparation of the workers {waits}"
        if notes is GPU:
            assert is_quoted(str(refused.value).replace("within 0 s", "within 60 s"), "clusters.md")
            assert is_quoted(warned.strip(), "clusters.md")


def test_partitions_that_no_worker_may_compute_are_refused(other_client: Client) -> None:
    """Rows of Dask are computed before they are trained on."""
    rows = da.ones((20, 2), chunks=(5, 2))
    with (
        dask.annotate(**GPU),
        pytest.raises(InputError, match=r"connected to it for dask.annotate\(resources={'GPU': 1}"),
    ):
        LinearSVC(client=other_client).fit(rows, [0, 1] * 10)


@pytest.mark.parametrize("how", ["resources", "name", "host", "address", "others"])
def test_workers_that_a_block_asks_for_are_used(other_client: Client, dataset: Dataset, how: str) -> None:
    (address,) = other_client.scheduler_info()["workers"]
    named = {"name": 0, "host": "127.0.0.1", "address": address.removeprefix("tcp://"), "others": "tcp://127.0.0.1:1"}
    notes: dict[str, Any] = {"resources": {"HALF": 0.5}} if how == "resources" else {"workers": [named[how]]}
    with dask.annotate(**notes, **({"allow_other_workers": True} if how == "others" else {})):
        there = train(dataset, TrainOptions(), client=other_client)
    assert there.model_sha256 == train(dataset, TrainOptions()).model_sha256


class Priorities(SchedulerPlugin):
    """Notes the priorities of the tasks of passes, which Dask stores with the sign changed."""

    def __init__(self, scheduler: Any) -> None:
        self.scheduler, self.seen = scheduler, set[int]()

    def transition(self, key: Any, start: str, finish: str, *_: Any, **_others: Any) -> None:
        if str(key).startswith("streamsvm-part") and key in self.scheduler.tasks:
            self.seen.add(-self.scheduler.tasks[key].priority[0])


def test_the_priority_of_a_block_is_that_of_its_passes(other_client: Client, dataset: Dataset) -> None:
    scheduler = other_client.cluster.scheduler
    scheduler.add_plugin(plugin := Priorities(scheduler))
    train(dataset, TrainOptions(), client=other_client)
    with dask.annotate(priority=10):
        train(dataset, TrainOptions(), client=other_client)
    assert plugin.seen == {0, 10}


KERNEL: dict[str, Any] = {"solver": "smo", "C": 100, "tol": 1e-12}  # its model has rows


@contextmanager
def busy(client: Client, folder: Path) -> Iterator[None]:
    """Keep the only thread of a worker at work for somebody else."""
    task = client.submit(work_for_others, folder)
    await_file(folder / "begun")
    try:
        yield
    finally:
        (folder / "go on").touch()
        task.result()


def work_for_others(folder: Path) -> None:
    (folder / "begun").touch()
    await_file(folder / "go on")


@pytest.mark.parametrize("settings", [ENDLESS, KERNEL])
@pytest.mark.parametrize("what", ["none", "busy"])
def test_the_limit_ends_a_wait_for_workers(
    other_client: Client,
    dataset: Dataset,
    tmp_path: Path,
    settings: dict[str, Any],
    what: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The status is that of any training that has no time left, and the model is that of the last step."""
    gone = list[bool]()
    monkeypatch.setattr(Training, "is_late", lambda _: bool(gone))
    with ExitStack() as stack:

        def listen(event: Event) -> None:
            if event.line["step"] == 1 and what == "none":
                other_client.cluster.scale(0)
            elif event.line["step"] == 1:
                stack.enter_context(busy(other_client, tmp_path))
            gone.append(True)

        options = TrainOptions(**settings)
        there = train(dataset, options, tmp_path / "run", client=other_client, listener=listen)
    assert (there.status, there.steps) == ("time_limit", 1)
    gone.clear()
    here = train(dataset, options, listener=lambda event: True)
    assert (there.objective, there.lower_bound) == (here.objective, here.lower_bound)
    of_model = "coef" if settings is ENDLESS else "dual_coef"
    np.testing.assert_array_equal(getattr(there.model, of_model), getattr(here.model, of_model))
    assert train(dataset, replace(options, max_passes=5), tmp_path / "run", resume=True).steps > 1


def test_trainings_side_by_side_end_a_wait_with_an_error(
    other_client: Client, dataset: Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They keep their checkpoints where they have folders, as those of a grid do."""
    gone = list[bool]()
    monkeypatch.setattr(Training, "is_late", lambda _: bool(gone))

    def listen(event: Event) -> None:
        if event.line["step"] == 1 and not gone:
            other_client.cluster.scale(0)
            gone.append(True)

    many = [TrainOptions(**{**ENDLESS, "C": C}) for C in (1, 2)]
    with pytest.raises(TimeLimitError, match="max_seconds has passed"):
        train_together(dataset, many, other_client, listen)


def test_before_the_first_step_the_limit_ends_a_wait_with_an_error(
    other_client: Client, dataset: Dataset, tmp_path: Path
) -> None:
    """There is no model then."""
    with (
        busy(other_client, tmp_path),
        deadline.limit(0.0),
        pytest.raises(TimeLimitError) as ended,
    ):
        DistributedEngine(dataset, other_client).scan(trace_scan())
    assert is_quoted(str(ended.value), "clusters.md")
    other_client.cluster.scale(0)
    await_truth(lambda: not other_client.scheduler_info()["workers"])
    with pytest.raises(InputError) as refused:
        train(dataset, TrainOptions(max_seconds=0.1), client=other_client)
    assert is_quoted(str(refused.value).replace("max_seconds has passed", "none joined within 60 s"), "clusters.md")


def test_a_pass_that_workers_carry_out_is_waited_for(other_client: Client, dataset: Dataset, tmp_path: Path) -> None:
    """It has begun, and its end gives the model that has a certificate."""
    engine, looks = DistributedEngine(dataset, other_client), list[bool]()
    scan = Scan(Trace, partial(add_when_told, tmp_path), combine_traces)

    def is_late() -> bool:
        looks.append((tmp_path / "begun").exists())
        if sum(looks) == 3:
            (tmp_path / "go on").touch()
        return looks[-1]

    with deadline.held(is_late):
        assert engine.scan(scan).tree == SerialEngine(dataset).scan(trace_scan()).tree
    engine.close()


def add_when_told(folder: Path, trace: Trace, rows: Rows) -> None:
    add_to_trace(trace, rows)
    work_for_others(folder)


@pytest.mark.parametrize("settings", [None, ENDLESS, KERNEL])
def test_an_interrupt_ends_a_wait_for_workers(
    other_client: Client,
    dataset: Dataset,
    tmp_path: Path,
    settings: dict[str, Any] | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Before the first pass, or after a step, whose model is kept then."""
    pressed = list[bool]()

    def press_once(*_: Any) -> None:
        """Ctrl-C at a second warning would come when nothing is trained any more."""
        if not pressed:
            pressed.append(True)
            os.kill(os.getpid(), signal.SIGINT)

    monkeypatch.setattr(watch.LOGGER, "warning", press_once)

    def listen(event: Event) -> None:
        if event.line["step"] == 1:
            other_client.cluster.scale(0)

    if settings is not None:
        found = train(dataset, TrainOptions(**settings), tmp_path / "run", client=other_client, listener=listen)
        assert found.status == "interrupted"
        return
    other_client.cluster.scale(0)
    with pytest.raises(KeyboardInterrupt):
        train(dataset, TrainOptions(), client=other_client)


def test_a_silent_worker_is_named_while_workers_are_prepared(
    other_client: Client, dataset: Dataset, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the limit holds: Dask gives a silent worker up after minutes."""
    monkeypatch.setattr(watch, "SILENT_SECONDS", 0.0)
    (pid,) = other_client.run(os.getpid).values()
    (address,) = other_client.scheduler_info()["workers"]
    os.kill(pid, signal.SIGSTOP)
    try:
        with log_to_stderr(), pytest.raises(TimeLimitError, match=r"^the preparation of the workers: max_seconds has"):
            train(dataset, TrainOptions(max_seconds=1.0), client=other_client)
    finally:
        os.kill(pid, signal.SIGCONT)
    assert (
        f"the preparation of the workers waits for worker {address}, which has been silent" in capsys.readouterr().err
    )


@pytest.mark.parametrize("how", ["limit", "interrupt"])
def test_the_wait_for_partitions_of_dask_ends(
    other_client: Client, tmp_path: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are computed before there is a training."""
    rows = da.random.default_rng(0).normal(size=(20, 2), chunks=(5, 2))
    if how == "interrupt":
        monkeypatch.setattr(deadline, "is_over", lambda: os.kill(os.getpid(), signal.SIGINT))
    refused = pytest.raises(TimeLimitError, match="no worker computes partitions of the rows")
    with busy(other_client, tmp_path), refused if how == "limit" else pytest.raises(KeyboardInterrupt):
        LinearSVC(client=other_client, max_seconds=0.1).fit(rows, [0, 1] * 10)


def test_partitions_that_a_worker_computes_are_waited_for(
    other_client: Client, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Only a wait for others ends."""
    looks = list[bool]()

    def is_over() -> bool:
        looks.append((tmp_path / "begun").exists())
        if sum(looks) == 3:
            (tmp_path / "go on").touch()
        return looks[-1]

    monkeypatch.setattr(deadline, "is_over", is_over)
    rows = da.ones((4, 2), chunks=(4, 2)).map_blocks(partial(pass_when_told, tmp_path), meta=np.ones((0, 0)))
    with other_client.as_current():
        (computed,) = dask_collections.Partitions([rows])[0]
        assert computed().shape == (4, 2)


def pass_when_told(folder: Path, block: Any) -> Any:
    work_for_others(folder)
    return block


@pytest.mark.parametrize("how", ["limit", "interrupt"])
@pytest.mark.parametrize("what", ["grid", "ball", "calibration"])
def test_the_pass_after_the_last_step_ends_a_wait(
    other_client: Client, dataset: Dataset, tmp_path: Path, what: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It scores held-out rows, or finds the ball, and the trainings before it are over."""
    owners: dict[str, tuple[Any, str]] = {
        "grid": (tune, "score_held_out"),
        "ball": (update, "find_ball"),
        "calibration": (FoldFits, "fit_way"),
    }
    owner, name = owners[what]
    go_on, gone = getattr(owner, name), list[bool]()
    folds = make_folds(dataset, TrainOptions(), "sigmoid")
    trains: dict[str, Callable[[], Any]] = {
        "grid": partial(tune.tune, dataset, TrainOptions(), [1.0], folds=2),
        "ball": partial(update.train_from, dataset, TrainOptions(), tmp_path / "run", keep_ball=True),
        "calibration": partial(calibrate, dataset, TrainOptions(), folds, train(dataset, TrainOptions())),
    }

    def is_late() -> bool:
        if gone and how == "interrupt":
            os.kill(os.getpid(), signal.SIGINT)
        return bool(gone) and how == "limit"

    monkeypatch.setattr(deadline, "limit", lambda _: deadline.held(is_late))
    with ExitStack() as stack:

        def go_on_without_workers(*given: Any) -> Any:
            stack.enter_context(busy(other_client, tmp_path))
            gone.append(True)
            return go_on(*given)

        monkeypatch.setattr(owner, name, go_on_without_workers)
        with pytest.raises(TimeLimitError if how == "limit" else KeyboardInterrupt):
            trains[what](client=other_client)


def test_a_task_that_is_done_is_no_idle_cluster(other_client: Client) -> None:
    """Its worker has just turned to others, and its result is there."""
    done = other_client.submit(bool)
    done.result()
    waits = watch.ClusterWatch(other_client, "read 1 of the data")
    with deadline.limit(0):
        for _ in range(3):
            waits._check_limit([done])
        waits._check_limit([])
        with pytest.raises(TimeLimitError, match="no worker runs it"):
            waits._check_limit([])


def test_a_scheduler_that_does_not_answer_in_time_is_no_idle_cluster(
    other_client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be busy while workers carry the tasks out."""
    waits = watch.ClusterWatch(other_client, "read 1 of the data")
    monkeypatch.setattr(watch.ClusterWatch, "look", lambda _: None)
    monkeypatch.setattr(watch, "LOOK_SECONDS", 0)
    with deadline.limit(0):
        assert [waits.look_again([]) for _ in range(3)] == [None] * 3


def test_an_error_of_a_question_is_no_wait(other_client: Client) -> None:
    """The same error says elsewhere that there is no answer yet."""
    (address,) = other_client.scheduler_info()["workers"]
    waits = watch.ClusterWatch(other_client, "the preparation of the workers")

    async def ask_in_vain(*_: Any, **__: Any) -> None:
        raise TimeoutError("in vain")

    other_client.run = ask_in_vain
    try:
        with pytest.raises(TimeoutError, match="in vain"):
            waits.run(bool, workers=[address])
    finally:
        del other_client.run


def test_a_default_client_that_has_to_be_awaited_is_refused() -> None:
    async def fit() -> None:
        async with Client(processes=False, n_workers=1, dashboard_address=None, asynchronous=True):
            with pytest.raises(InputError, match="client: is asynchronous"):
                LinearSVC().fit(da.ones((4, 2), chunks=(2, 2)), [0, 1] * 2)

    asyncio.run(fit())


def test_a_closed_client_is_refused(other_client: Client, dataset: Dataset) -> None:
    closed = Client(other_client.scheduler.address)
    closed.close()
    rows = da.ones((4, 2), chunks=(2, 2))
    for give in (lambda: train(dataset, TrainOptions(), client=closed), lambda: LinearSVC(client=closed).fit(rows)):
        with pytest.raises(InputError, match="client: is closed; create another one"):
            give()
