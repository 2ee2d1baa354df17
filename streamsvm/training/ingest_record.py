"""What an ingest on workers records of itself, by which another process that goes on with it knows that it may.

The record lies among the scratch files: what the dataset is made of, how, and by which versions. The workers put what
they have finished beside it (data.set_aside, data.range_record), and each task looks for that before it begins.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from streamsvm import __version__
from streamsvm.data.ingest_options import IngestOptions
from streamsvm.data.remote_files import find_state
from streamsvm.data.shared_scratch import SharedScratch
from streamsvm.data.tables import Columns
from streamsvm.errors import InputError, ReadError
from streamsvm.urls import is_remote

LOGGER = logging.getLogger("streamsvm")
RECORD = "ingest.json"
BEGIN = "leave out --resume (resume=True in Python) to begin anew"
FREE = ("overwrite", "append")  # options that have no bearing on the bytes of the dataset


@dataclass
class IngestRecord:
    """What the dataset is made of and how, as JSON knows it, and whether to go on with an ingest that was killed.

    It is a data.shared_scratch.Resumption. goes_on_with_another: whether there is one to go on with. has_begun: whether
    this process has begun to work.
    """

    destination: str
    about: Mapping[str, Any]
    resume: bool
    goes_on_with_another: bool = False
    has_begun: bool = False

    def goes_on(self, scratch: SharedScratch) -> bool:
        """Return whether to go on with these scratch files. Raises InputError if they are those of another ingest."""
        content = scratch.find(RECORD) if self.resume else None
        if content is not None:
            self._compare(json.loads(content))
            self.goes_on_with_another = True
        return content is not None

    def keeps(self, error: BaseException) -> bool:
        """Tell whether the scratch files stay: if the cluster was lost, or could not be used to go on."""
        return isinstance(error, ConnectionError) or (self.goes_on_with_another and not self.has_begun)

    def begin(self, scratch: SharedScratch) -> None:
        """Write the record, as the work begins. Where an ingest was to be gone on with and nothing is left, say so."""
        if self.resume and not self.goes_on_with_another:
            LOGGER.warning(f"--resume: nothing is left of an ingest into {self.destination}; all begins anew")
        self.has_begun = True
        scratch.keep(RECORD, json.dumps(self.about).encode())

    def _compare(self, known: Mapping[str, Any]) -> None:
        if [path for path, *_ in known["sources"]] == [path for path, *_ in self.about["sources"]]:
            for before, now in zip(known["sources"], self.about["sources"], strict=True):
                if before != now:
                    raise InputError(
                        f"{now[0]}: has changed since the ingest that --resume goes on with has begun; {BEGIN}"
                    )
        other = [name for name, value in self.about.items() if known.get(name) != value]
        if other:
            raise InputError(
                f"{self.destination}: the ingest that was killed was one of other {' and '.join(other)}; {BEGIN}"
            )


def describe_ingest(
    destination: str,
    paths: list[str],
    columns: Columns,
    options: IngestOptions,
    shuffle: tuple[str, int | None, int],
    resume: bool,
) -> IngestRecord:
    """Return the record of an ingest. Raises InputError if a file cannot be found.

    shuffle: the format of the files, and the seed and the number of runs of the shuffle, which depends on their sizes.
    """
    about = {
        "sources": [[path, *_find_state(path)] for path in paths],
        "columns": asdict(columns),
        "options": {name: value for name, value in asdict(options).items() if name not in FREE},
        "shuffle": shuffle,
        "versions": [__version__, np.__version__],
    }
    return IngestRecord(destination, json.loads(json.dumps(about)), resume)


def _find_state(path: str) -> tuple[Any, ...]:
    """Return what tells whether a file has changed: its size, and its time of modification or its version."""
    try:
        if is_remote(path):
            return find_state(path)
        found = os.stat(path)
    except OSError as error:
        raise ReadError(f"{path}: cannot be read: {error.strerror or error}") from error
    return found.st_size, found.st_mtime_ns
