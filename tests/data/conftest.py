"""Datasets made for a test, and rows laid side by side to be compared."""

from __future__ import annotations

import hashlib
import os
import resource
import signal
import subprocess
import sys
import textwrap
import tracemalloc
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_array

from streamsvm.data.rows.source import SourceRows
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.ingest import IngestOptions, write_dataset
from streamsvm.numeric.rows import CsrRows, Matrix, Rows

Write = Callable[..., Dataset]
WriteFile = Callable[..., Path]
RunPython = Callable[..., "subprocess.Popen[str]"]
Collect = Callable[[Iterable[Rows]], dict[str, Any]]
ROOT = Path(__file__).parents[2]
NAMES = ("y", "sample_weight", "qid")
KINDS = ("dense-crc32c", "dense-zstd", "sparse-crc32c", "sparse-lz4")


def cut(X: Any, labels: Any, sample_weight: Any, qid: Any, borders: Sequence[int]) -> Iterator[SourceRows]:
    """Rows as a source gives them, cut at the borders."""
    for a, b in pairwise([0, *borders, X.shape[0]]):
        y, weight, query = (None if v is None else v[a:b] for v in (labels, sample_weight, qid))
        yield SourceRows(X[a:b], y, query, weight)


@pytest.fixture(scope="session")
def write(tmp_path_factory: pytest.TempPathFactory) -> Write:
    """Write rows as a dataset of its own, in the order given unless a shuffle is asked for."""
    folder, number = tmp_path_factory.mktemp("datasets"), count()

    def write_rows(
        X: Any,
        labels: Any = None,
        sample_weight: Any = None,
        qid: Any = None,
        borders: Sequence[int] = (),
        expected_bytes: int = 0,
        name: str = "rows",
        to: Any = None,
        **options: Any,
    ) -> Dataset:
        pieces = cut(X, labels, sample_weight, qid, borders)
        path = to or folder / f"{next(number)}.zarr"
        chosen = IngestOptions(**{"shuffle": None, "needs_two_classes": False, **options})
        return write_dataset(pieces, path, name, expected_bytes, chosen)

    return write_rows


@pytest.fixture
def write_file(tmp_path: Path) -> WriteFile:
    """Write a text as a file."""

    def write_text(text: str | bytes, name: str = "t.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(text.encode() if isinstance(text, str) else text)
        return path

    return write_text


@pytest.fixture(scope="session")
def collect() -> Collect:
    """Copy streamed rows one below the other: X written out (n, d), the number of stored items, the vectors."""

    def written_out(X: Matrix) -> tuple[np.ndarray, int]:
        if isinstance(X, CsrRows):
            return csr_array((X.data, X.indices, X.indptr), shape=X.shape).toarray(), len(X.data)
        return X.copy(), X.size

    def collect_rows(parts: Iterable[Rows]) -> dict[str, Any]:
        pieces: list[np.ndarray] = []
        n_items, vectors = 0, {name: [] for name in NAMES}  # type: ignore[var-annotated]
        for rows in parts:
            X, items = written_out(rows.X)
            pieces.append(X)
            n_items += items
            for name in NAMES:
                values = getattr(rows, name)
                vectors[name].append(None if values is None else values.copy())
        joined = {name: None if values[0] is None else np.concatenate(values) for name, values in vectors.items()}
        return {"X": np.concatenate(pieces), "n_items": n_items, **joined}

    return collect_rows


@pytest.fixture
def sparse_rows() -> csr_array:
    """60 rows of 7 features, 0 to 5 items each, the last rows empty."""
    rng = np.random.default_rng(1)
    X = rng.standard_normal((60, 7)).astype(np.float32) * (rng.random((60, 7)) < 0.35)
    X[-3:] = 0
    return csr_array(X.astype(np.float32))


@pytest.fixture
def restored_signals() -> Iterator[None]:
    """The command line handles SIGTERM; tests shall not."""
    kept = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, kept)


@pytest.fixture
def run_python() -> Iterator[RunPython]:
    """Start a script in a process of its own, which is killed at the end at the latest."""
    started = []

    def run(script: str, *arguments: Any) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", textwrap.dedent(script), *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def file_hashes(path: Path) -> dict[str, str]:
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return {str(file.relative_to(path)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


def numbered_rows(n: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    X = np.column_stack((np.arange(n), np.ones(n))).astype(np.float32)
    return X, np.arange(n) * 2.0 // n, np.arange(float(n))


def flip(content: bytes, at: int, bit: int = 0) -> bytes:
    changed = bytearray(content)
    changed[at] ^= 1 << bit
    return bytes(changed)


@contextmanager
def replaced(file: Path, content: bytes | None) -> Iterator[None]:
    """Another content of a file (None: no file) for a while."""
    kept = file.read_bytes()
    file.unlink()
    if content is not None:
        file.write_bytes(content)
    try:
        yield
    finally:
        file.write_bytes(kept)


def chunk_files(path: Path, name: str) -> list[Path]:
    found = [file for file in path.joinpath(name, "c").rglob("*") if file.is_file()]
    return sorted(found, key=lambda file: int(file.relative_to(path / name / "c").parts[0]))


def make_rows(seed: int) -> csr_array:
    """200 rows of 6 features, the later ones three times as full as the first."""
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((200, 6)) * (rng.random((200, 6)) < np.linspace(0.25, 0.75, 200)[:, None])
    return csr_array(X.astype(np.float32))


@pytest.fixture(scope="module")
def paths(write: Write, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A dataset of each kind with all vectors and at least 4 chunks of each array."""
    folder, made = tmp_path_factory.mktemp("damaged"), {}
    for kind in KINDS:
        layout, codec = kind.split("-")
        options = {"layout": layout, "codec": codec, "chunk_bytes": 960, "scale": "maxabs"}
        number = np.arange(200.0)
        write(make_rows(0), number % 3, number / 7, np.arange(200) // 9, to=folder / kind, **options)
        made[kind] = folder / kind
    return made


@contextmanager
def small_files(n_bytes: int) -> Iterator[None]:
    """Let files grow to n_bytes only. Nothing else may be written meanwhile, not even a test's report.

    Python would not notice that the bytecode of a module is cut off, and no process could import it any more.
    """
    kept, writes_none = resource.getrlimit(resource.RLIMIT_FSIZE), sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (n_bytes, kept[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
        sys.dont_write_bytecode = writes_none


def measure_peak(work: Callable[[], object]) -> int:
    """The least of three peaks of traced memory: threads of other tests' clusters allocate at times, too."""
    peaks = []
    for _ in range(3):
        tracemalloc.start()
        try:
            work()
            peaks.append(tracemalloc.get_traced_memory()[1])
        finally:
            tracemalloc.stop()
    return min(peaks)
