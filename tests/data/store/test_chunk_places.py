"""Chunks on a local disk: the operating system is told once that a chunk is read soon."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from streamsvm.data.store.chunks import Span
from streamsvm.data.store.places import LocalFile
from streamsvm.engines.local import SerialEngine
from tests.conftest import make_problem
from tests.engines.scans import trace_scan


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the system takes no advice")
@pytest.mark.parametrize("density", [1.0, 0.2])
def test_a_chunk_is_advised_once_for_each_time_it_is_opened(
    density: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The chunk after the one that is read, and the first chunk of each group as it is read; in each pass anew.

    A sparse row may reach into the next chunk, which is then opened for its last items, too.
    """
    dataset = make_problem(1, n=1100, d=20, density=density).store(tmp_path / "rows", chunk_bytes=3000)
    advised, opened = Counter[str](), Counter[str]()
    advise, open_file = os.posix_fadvise, LocalFile.__init__

    def count(descriptor: int, *where: Any) -> None:
        advised[os.readlink(f"/proc/self/fd/{descriptor}")] += 1
        advise(descriptor, *where)

    def note(file: LocalFile, folder: Path, span: Span) -> None:
        opened[str(folder / span.key)] += 1
        open_file(file, folder, span)

    monkeypatch.setattr(os, "posix_fadvise", count)
    monkeypatch.setattr(LocalFile, "__init__", note)
    engine = SerialEngine(dataset)
    for _ in range(2):
        engine.scan(trace_scan())
        assert len(advised) > dataset.n_chunks
        assert all(number <= opened[path] for path, number in advised.items())
