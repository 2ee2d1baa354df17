"""The engines, each of which has to keep the contract."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest
from distributed import Client

from streamsvm.data.rows.source import RowSource
from streamsvm.engines.cluster.engine import DistributedEngine
from streamsvm.engines.engine import Engine
from streamsvm.engines.local import SerialEngine, ThreadedEngine
from streamsvm.passes import Scan
from tests.engines.contract import Contract, Opener
from tests.engines.scans import (
    add_writable_flags,
    help_nobody,
    join_lists,
    pinned_chunks,
    start_flags,
    start_stealing,
    stop_stealing,
)

pytestmark = pytest.mark.usefixtures("many_groups")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Give each class the sources that its engine can read."""
    if "source_name" in metafunc.fixturenames:
        assert metafunc.cls is not None
        metafunc.parametrize("source_name", metafunc.cls.source_names)


class TestSerial(Contract):
    @pytest.fixture
    def make_engine(self) -> Opener:
        return SerialEngine


@pytest.mark.parametrize("threads", [1, 2, 4])
class TestThreaded(Contract):
    @pytest.fixture
    def make_engine(self, threads: int) -> Opener:
        return partial(ThreadedEngine, threads=threads)


class TestDistributed(Contract):
    source_names = ("dense", "sparse", "sparse-lz4", "dense-tiles")

    @pytest.fixture
    def make_engine(self, client: Client) -> Opener:
        return partial(DistributedEngine, client=client)

    @pytest.fixture
    def settled_groups(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """The engine gives groups of a worker that is held up to an idle one, which keeps none; Dask gives it tasks."""
        help_nobody(monkeypatch)
        client.run_on_scheduler(stop_stealing)
        yield
        client.run_on_scheduler(start_stealing)

    def test_long_vectors_travel_without_a_warning(
        self, client: Client, sources: dict[str, RowSource], recwarn: pytest.WarningsRecorder
    ) -> None:
        """Two of a million features are 16 MB; Dask would warn of a large graph on every pass."""
        engine = DistributedEngine(sources["dense"], client)
        assert all(engine.scan(Scan(start_flags, add_writable_flags, join_lists, (np.ones((2, 10**6)),))))
        assert not recwarn

    def pinned(self, engine: Engine) -> list[int]:
        assert isinstance(engine, DistributedEngine)
        held = engine.client.run(pinned_chunks, engine.source.fingerprint)
        return sorted(index for chunks in held.values() for index in chunks)
