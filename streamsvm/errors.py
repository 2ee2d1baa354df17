"""The errors of streamsvm. For an InputError the command line shows the message alone, and exits with status 2."""

from __future__ import annotations


class InputError(ValueError):
    """The input or an argument is bad. The message names file, place, reason and remedy."""


class IntegrityError(InputError):
    """Stored data are damaged: a chunk is changed, truncated, missing or swapped. The message names its file."""


class NeedsOptionError(InputError):
    """The rows are bad as they are read, and an option of `ingest` reads them otherwise. The message names it."""


class CertificateError(RuntimeError):
    """A lower bound exceeds the objective, which is a fault of streamsvm and never of the data."""


class MemoryBudgetError(InputError):
    """The projected memory, which is `needed_bytes`, exceeds the budget. The message names the options to change."""

    def __init__(self, message: str, needed_bytes: int = 0) -> None:
        super().__init__(message)
        self.needed_bytes = needed_bytes


class ReadError(OSError, InputError):
    """An object store does not give an object, although it was asked several times. The message names its URL."""


class WriteError(OSError, InputError):
    """A file cannot be written, because space or permission is missing. The message names it."""


def say_count(n: int, noun: str) -> str:
    """Return a number and its noun for a message: "1 chunk", "1,200 rows", "2 passes"."""
    if n == 1:
        return f"1 {noun}"
    if noun.endswith("s"):
        return f"{n:,} {noun}es"
    return f"{n:,} {noun[:-1]}ies" if noun.endswith("y") else f"{n:,} {noun}s"
