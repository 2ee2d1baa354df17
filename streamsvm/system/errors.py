"""The errors of streamsvm. For an InputError, the command line prints only the message, and exits with status 2."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager


class InputError(ValueError):
    """The input or an argument is invalid. The message names the file, place, reason and remedy."""


class IntegrityError(InputError):
    """Stored data are damaged: a chunk has been changed, truncated, swapped or lost. The message names its file."""


class NeedsOptionError(InputError):
    """The rows cannot be read with the current options. The message names an option of `ingest` that can read them."""


class CertificateError(RuntimeError):
    """A lower bound exceeds the objective. This is a fault of streamsvm, never of the data."""


class TimeLimitError(ConnectionError):
    """A training ran out of time within a step, or while waiting for an idle cluster or a silent object store."""


class MemoryBudgetError(InputError):
    """The projected memory, `needed_bytes`, exceeds the budget. The message names the options to change."""

    def __init__(self, message: str, needed_bytes: int = 0) -> None:
        super().__init__(message)
        self.needed_bytes = needed_bytes


class ReadError(OSError, InputError):
    """An object store has not returned an object after several requests. The message names the URL of the object."""


class WriteError(OSError, InputError):
    """A file cannot be written, for example for lack of space or permission. The message names the file."""


@contextmanager
def naming(rows: object) -> Iterator[None]:
    """Begin the message of an InputError in the block with the name of its rows, which is a file or a dataset."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{rows}: {error}") from None


def require_known(what: str, name: object, known: Collection[str]) -> None:
    """Raise InputError unless a name is one of the known names.

    what: a word for the name in the message, such as "solver".
    """
    if name not in known:
        raise InputError(f"{what} {name!r}: choose from {', '.join(known)}")


def say_count(n: int, noun: str) -> str:
    """Return a number and its noun for a message: "1 chunk", "1,200 rows", "2 passes"."""
    if n == 1:
        return f"1 {noun}"
    if noun.endswith("s"):
        return f"{n:,} {noun}es"
    return f"{n:,} {noun[:-1]}ies" if noun.endswith("y") else f"{n:,} {noun}s"


def list_few(values: Iterable[object], most: int = 5) -> str:
    """Return the first values for a message, and the number of the others: "a, b and 3 more"."""
    shown = [str(value) for value in values]
    shown = shown if len(shown) <= most else [*shown[:most], f"{len(shown) - most} more"]
    return " and ".join(filter(None, [", ".join(shown[:-1]), *shown[-1:]]))
