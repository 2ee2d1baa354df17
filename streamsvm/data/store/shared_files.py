"""Scratch files: files of an ingest that its workers share, and files of rows that a pass stores for later passes.

The scratch files of an ingest lie in a folder, or are objects below the dataset in a store.

A file is written as a whole. A worker that the scheduler has given up may write it again, with the same bytes. Ranges
of files are read in order, and the next ranges are requested in the meantime. A record is a file that holds one value:
dataclasses, collections and numbers as JSON, and arrays in binary form.

A pass may store some of its rows (`ScratchWriter`). Later passes over these rows read the stored rows instead of the
data. A file holds rows from one group of chunks. The rows of one tile form a block, with their numbers and a CRC-32C.
The file gets its final name when it is complete.
"""

from __future__ import annotations

import io
import json
import logging
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, fields, is_dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO

import google_crc32c
import numpy as np
import numpy.typing as npt

from streamsvm.data.remote.files import AHEAD_BYTES, ObjectFile, Range, put_object
from streamsvm.data.remote.store import begin, open_store, wait_for
from streamsvm.data.store.chunks import CRC_BYTES, Bytes, Span, StoredFile, open_to_rewrite
from streamsvm.data.store.places import LocalFile
from streamsvm.numeric.rows import CsrRows, Rows, pack_rows
from streamsvm.system.errors import InputError, IntegrityError
from streamsvm.system.files import name_partial, remove_partials, remove_shared_folder, write_atomically, writing
from streamsvm.system.npz import pack_arrays, unpack_arrays

WRITING = ".writing"  # the object that marks a URL to which a process is writing a dataset
SPILL = ".spill"  # the folder of scratch objects
SPILL_FOLDER = "spill"  # the folder of scratch files within the folder of an unfinished dataset
FILES_AHEAD = 16  # the number of files open at a time; the first ranges of each are requested
OF_MANY: dict[str, Any] = {each.__name__: each for each in (tuple, list, set, dict)}
LOGGER = logging.getLogger("streamsvm")
RECORD = "ingest.json"
BEGIN = "omit --resume (resume=True in Python) to start again"
BUFFER_BYTES = 1 << 20  # the size of the write buffer of a file


@dataclass(frozen=True)
class SharedFolder:
    """A folder of scratch files that all workers share."""

    folder: Path

    def check(self) -> None:
        """Raise InputError unless the folder exists."""
        if not self.folder.is_dir():
            raise InputError(f"{self.folder}: no such folder; all workers must share the folder of the new dataset")

    def put(self, name: str, parts: Iterable[Any], n_bytes: int) -> None:  # noqa: ARG002
        """Write a file of n_bytes, whose content comes in parts."""
        self.check()
        with io.BufferedWriter(open_to_rewrite(self.folder / name), BUFFER_BYTES) as file:
            for part in parts:
                file.write(part)

    def keep(self, name: str, content: bytes) -> None:
        """Write a file that appears whole or not at all, even if the process is killed."""
        self.check()
        write_atomically(self.folder / name, content)

    def locate(self, name: str) -> str:
        """Return the name of a file in messages."""
        return str(self.folder / name)

    def find(self, name: str) -> bytes | None:
        """Return the content of a file, or None if it does not exist."""
        path = self.folder / name
        return path.read_bytes() if path.exists() else None

    def open(self, name: str, n_bytes: int, wanted: Range) -> StoredFile:  # noqa: ARG002
        """Open a file of n_bytes. Raises IntegrityError if it is missing or has another size."""
        return LocalFile(self.folder, Span(name, n_bytes, 0, n_bytes, name, name), "scratch file")


@dataclass(frozen=True)
class SharedObjects:
    """Scratch objects below a dataset that a process is writing to a store. The object `.writing` marks such a dataset.

    token: the content of the object `.writing`. It begins with the name of the folder of the scratch objects. A process
    that resumes the ingest of another process uses the same folder.
    """

    url: str
    token: str

    def check(self, found: str | None = None) -> None:
        """Raise InputError unless the dataset still has this token. found: its current token (None: read it)."""
        if (self._read_token() if found is None else found) != self.token:
            raise InputError(
                f"{self.url}: this ingest has ended, or another process has begun to write a dataset there"
            )

    def put(self, name: str, parts: Iterable[Any], n_bytes: int) -> None:
        """Put an object of n_bytes, whose content comes in parts. If the ingest has ended, the object is removed again.

        The process that ends an ingest removes its token before it removes the scratch objects. Therefore either that
        process removes this object, or this process finds the token missing, and removes the object itself. If another
        process resumes the ingest, the object stays, since it has the bytes that the other process needs.
        """
        store, key = open_store(self.url), f"{self._folder}/{name}"
        wait_for(begin(put_object(store.store, self.url, key, parts, n_bytes)))
        found = self._read_token()
        if found.partition("-")[0] != self.folder_name:
            store.remove([key])
        self.check(found)

    def keep(self, name: str, content: bytes) -> None:
        """Put an object, which appears whole or not at all."""
        self.put(name, [content], len(content))

    def locate(self, name: str) -> str:
        """Return the name of an object in messages."""
        return f"{self.url}/{self._folder}/{name}"

    def find(self, name: str) -> bytes | None:
        """Return the content of an object, or None if it does not exist."""
        return open_store(self.url).read(f"{self._folder}/{name}")

    def open(self, name: str, n_bytes: int, wanted: Range) -> StoredFile:
        """Open an object of n_bytes, and request the wanted range. Raises the errors of ObjectFile."""
        return ObjectFile(open_store(self.url), f"{self._folder}/{name}", n_bytes, [wanted], "scratch object")

    @property
    def folder_name(self) -> str:
        """The name of the folder of the scratch objects."""
        return self.token.partition("-")[0]

    @property
    def _folder(self) -> str:
        return f"{SPILL}/{self.folder_name}"

    def _read_token(self) -> str:
        return (open_store(self.url).read(WRITING) or b"").decode()


SharedScratch = SharedFolder | SharedObjects


@dataclass
class IngestRecord:
    """The input and the options of an ingest, as JSON, by which a process checks that it may resume a killed ingest.

    about: the input and the options. resume: whether the user asked to resume an ingest. goes_on_with_another: whether
    an ingest to resume was found. has_begun: whether this process has begun to work.
    """

    destination: str
    about: Mapping[str, Any]
    resume: bool
    goes_on_with_another: bool = False
    has_begun: bool = False

    def goes_on(self, scratch: SharedScratch) -> bool:
        """Return whether to resume from these scratch files.

        Raises InputError if their ingest had other input or options.
        """
        content = scratch.find(RECORD) if self.resume else None
        if content is not None:
            self._compare(json.loads(content))
            self.goes_on_with_another = True
        return content is not None

    def keeps(self, error: BaseException) -> bool:
        """Return whether to keep scratch files after an error: if the cluster was lost or resuming has not begun."""
        return isinstance(error, ConnectionError) or (self.goes_on_with_another and not self.has_begun)

    def begin(self, scratch: SharedScratch) -> None:
        """Write the record when the work begins. Log a warning if there is no ingest to resume."""
        if self.resume and not self.goes_on_with_another:
            LOGGER.warning(f"--resume: nothing is left of an ingest into {self.destination}; it starts again")
        self.has_begun = True
        scratch.keep(RECORD, json.dumps(self.about).encode())

    def _compare(self, known: Mapping[str, Any]) -> None:
        if [path for path, *_ in known["sources"]] == [path for path, *_ in self.about["sources"]]:
            for before, now in zip(known["sources"], self.about["sources"], strict=True):
                if before != now:
                    raise InputError(f"{now[0]}: has changed since the ingest to resume began; {BEGIN}")
        other = [name for name, value in self.about.items() if known.get(name) != value]
        if other:
            names = " and ".join(other)
            raise InputError(f"{self.destination}: the ingest to resume had different {names}; {BEGIN}")


def pack_record(value: Any) -> bytes:
    """Return the bytes of a record with the given value.

    value: a dataclass, a named tuple, a tuple, list, set or dict of such values, an array, a string or a number.
    """
    arrays: dict[str, Any] = {}
    about = json.dumps(_flatten(value, arrays)).encode()
    return pack_arrays({**arrays, "about": np.frombuffer(about, np.uint8)})


def find_record(scratch: SharedScratch, name: str, types: Sequence[type]) -> Any:
    """Return the value in a record; None if the file is missing or damaged. types: the classes that it contains."""
    content = scratch.find(name)
    with suppress(InputError, KeyError, TypeError, ValueError):
        if content is not None:
            arrays = unpack_arrays(io.BytesIO(content), name)
            return _restore(json.loads(arrays["about"].tobytes()), arrays, {each.__name__: each for each in types})
    return None


def read_record(scratch: SharedScratch, name: str, types: Sequence[type]) -> Any:
    """Return the value in a record. Raises IntegrityError if it is missing or damaged. types: see `find_record`."""
    found = find_record(scratch, name, types)
    if found is None:
        raise IntegrityError(f"{scratch.locate(name)}: is damaged or missing")
    return found


def _flatten(value: Any, arrays: dict[str, Any]) -> Any:
    """Return a value in JSON types. Values other than None, strings and numbers become [name of the type, parts]."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, np.ndarray):
        arrays[f"array-{len(arrays)}"] = value
        return ["array", f"array-{len(arrays) - 1}"]
    parts = value.items() if isinstance(value, dict) else sorted(value) if isinstance(value, set) else value
    if is_dataclass(value):
        parts = [getattr(value, each.name) for each in fields(value)]
    return [type(value).__name__, [_flatten(part, arrays) for part in parts]]


def _restore(flat: Any, arrays: Mapping[str, Any], types: Mapping[str, type]) -> Any:
    if not isinstance(flat, list):
        return flat
    kind, parts = flat
    if kind == "array":
        return arrays[parts]
    values = [_restore(part, arrays, types) for part in parts]
    return OF_MANY[kind](values) if kind in OF_MANY else types[kind](*values)


Ranges = Generator[tuple[str, Bytes], None, None]


def read_ranges(scratch: SharedScratch, wanted: Sequence[tuple[str, int, Range]]) -> Ranges:
    """Yield the name of each file, for messages, and the bytes of its range.

    wanted: the name, the size and the range of each file. Ranges are requested ahead of their use: up to AHEAD_BYTES in
    all, or a single larger range. Raises IntegrityError if a file is missing or has another size.
    """
    opened = deque[tuple[Range, StoredFile]]()
    ahead, following = 0, iter(wanted)
    try:
        for name, n_bytes, limits in following:
            opened.append((limits, scratch.open(name, n_bytes, limits)))
            ahead += limits[1] - limits[0]
            while opened and (ahead > AHEAD_BYTES or len(opened) == FILES_AHEAD):
                ahead -= opened[0][0][1] - opened[0][0][0]
                yield _read_oldest(opened)
        while opened:
            yield _read_oldest(opened)
    finally:
        for _, file in opened:
            file.close()


def _read_oldest(opened: deque[tuple[Range, StoredFile]]) -> tuple[str, Bytes]:
    """Read the range of the file that was opened first, close the file, and return its name and the bytes."""
    (start, stop), file = opened[0]
    content = np.empty(stop - start, np.uint8)
    if len(content):
        file.fill(content, start)
    opened.popleft()
    file.close()
    return file.name, content


HEADER = 4  # the numbers at the start of a block: n_rows, n_features, stored values (-1: dense rows), has_weights


@contextmanager
def make_scratch_folder(parent: str | Path, owner: str) -> Iterator[Path]:
    """Make a folder for scratch files, and remove it on exit.

    owner: the name of the run, or "". Folders that a killed process of the same run left behind are removed first; the
    caller must hold the lock of the run. Raises InputError if `parent` does not exist or cannot be written to.
    """
    name = f"streamsvm-scratch-{sha256(owner.encode()).hexdigest()[:16]}"
    folder = name_partial(Path(parent) / name)
    if not Path(parent).is_dir():
        raise InputError(f"scratch {parent}: no such folder; create it, or choose another folder")
    if owner:
        remove_partials(Path(parent), name)
    try:
        folder.mkdir()
    except OSError as error:
        raise InputError(f"scratch {parent}: cannot be written to: {error.strerror}") from error
    try:
        yield folder
    finally:
        with suppress(FileNotFoundError):
            remove_shared_folder(folder, Path(parent) / name)


class ScratchWriter:
    """Writes rows of a group of chunks to a scratch file, but discards all of them if there are more than `most_rows`.

    written_bytes: the number of bytes written, including those of discarded rows.
    """

    def __init__(self, path: Path, most_rows: int) -> None:
        self.path, self.partial, self.room = path, name_partial(path), most_rows
        self.written_bytes = self.n_rows = 0
        if not path.parent.is_dir():
            raise InputError(f"{path.parent}: no such folder; all tasks must share the folder for scratch files")
        with writing(path):
            self._file: BinaryIO | None = self.partial.open("xb")

    def append(self, rows: Rows) -> None:
        """Write the rows of one tile with their numbers. They must have labels."""
        self.room -= rows.n_rows
        if self._file is None or rows.n_rows == 0:
            return
        if self.room < 0:
            self.close()
            return
        weight, X = rows.sample_weight, rows.X
        n_values = len(X.data) if isinstance(X, CsrRows) else -1
        header = np.array([rows.n_rows, X.shape[1], n_values, weight is not None], np.int64)
        parts = [header, rows.list_numbers(), np.asarray(rows.y, np.int32), *([] if weight is None else [weight])]
        crc, self.n_rows = google_crc32c.value(self.path.name.encode()), self.n_rows + rows.n_rows
        for part in (*parts, *pack_rows(X, "X").values()):
            content = np.ascontiguousarray(part).reshape(-1).view(np.uint8)
            crc = google_crc32c.extend(crc, content)
            self._write(content.data)
        self._write(crc.to_bytes(CRC_BYTES, "little"))

    def finish(self) -> None:
        """Write the end of the file, and give the file its final name, unless its rows were discarded."""
        if self._file is not None:
            self._write(_make_end(self.path, self.n_rows))
            with writing(self.path):
                self._file.close()
                self.partial.replace(self.path)
            self._file = None

    def close(self) -> None:
        """Remove an unfinished file."""
        if self._file is not None:
            with suppress(OSError):  # the write has already reported a full disk
                self._file.close()
            self._file = None
        with suppress(FileNotFoundError):
            self.partial.unlink()

    def _write(self, content: Any) -> None:
        assert self._file is not None
        with writing(self.path):
            self.written_bytes += self._file.write(content)


def read_scratch(path: Path) -> Iterator[Rows]:
    """Yield the rows of each block of a file. Raises IntegrityError if a block is damaged or the end is missing."""
    n_rows = 0
    with path.open("rb") as file:
        while (head := file.read(8 * HEADER)) != _make_end(path, n_rows):
            if len(head) < 8 * HEADER:
                raise IntegrityError(f"{path}: the scratch file is cut short")
            rows = _read_block(file, path, head)
            n_rows += rows.n_rows
            yield rows
        if file.read(1):
            raise IntegrityError(f"{path}: the scratch file is damaged: bytes follow its end")


def _make_end(path: Path, n_rows: int) -> bytes:
    """Return the end mark of a file, which depends on its name and number of rows. No block begins with these bytes."""
    name = google_crc32c.value(path.name.encode())
    return np.array([0, n_rows, 0, name], np.int64).tobytes()


def _read_block(file: BinaryIO, path: Path, head: bytes) -> Rows:
    n_rows, d, n_values, has_weights = np.frombuffer(head, np.int64).tolist()
    crc = google_crc32c.extend(google_crc32c.value(path.name.encode()), head)

    def load(dtype: Any, count: int) -> npt.NDArray[Any]:
        nonlocal crc
        try:
            values = np.empty(count, dtype)
            n_read = file.readinto(values.view(np.uint8))  # type: ignore[attr-defined]
        except (ValueError, MemoryError):  # a damaged header has meaningless sizes
            n_read, values = -1, np.empty(0, np.uint8)
        if n_read != values.nbytes:
            raise IntegrityError(f"{path}: the scratch file is damaged or cut short")
        crc = google_crc32c.extend(crc, values.view(np.uint8))
        return values

    numbers, y = load(np.int64, n_rows), load(np.int32, n_rows)
    weight = load(np.float64, n_rows) if has_weights else None
    if n_values < 0:
        X: Any = load(np.float32, n_rows * d).reshape(n_rows, d)
    else:
        X = CsrRows(load(np.float32, n_values), load(np.int32, n_values), load(np.int64, n_rows + 1), d)
    if int.from_bytes(file.read(CRC_BYTES), "little") != crc:
        raise IntegrityError(f"{path}: the scratch file is damaged (its checksum is wrong)")
    return Rows(-1, X, y, weight, numbers=numbers)
