"""A method's own options: a frozen dataclass says names, types, defaults and help; texts are read by it.

A user gives such options as texts (`--option merge=5`, or the mapping `TrainOptions.options`). What the dataclass says
is all that the command line, its help and the checks know of them.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from streamsvm.errors import InputError

Options = TypeVar("Options")
KIND = "kind"  # under which the metadata of a field keep its kind


@dataclass(frozen=True)
class Choice:
    """One of several words."""

    words: tuple[str, ...]
    help: str

    def read(self, name: str, text: str) -> str:
        """Return the word; InputError for another one."""
        if text not in self.words:
            raise InputError(f"{name} {text!r}: choose from {', '.join(self.words)}")
        return text

    def describe(self) -> str:
        """Return the values that can be given."""
        return "|".join(self.words)


@dataclass(frozen=True)
class Count:
    """A whole number of at least `least`."""

    least: int
    help: str

    def read(self, name: str, text: str) -> int:
        """Return the number; InputError for any other text."""
        value = _read_number(text)
        if not (value.is_integer() and value >= self.least):
            raise InputError(f"option {name}={text}: a whole number of at least {self.least} is expected")
        return int(value)

    def describe(self) -> str:
        """Return the values that can be given."""
        return "N"


@dataclass(frozen=True)
class Positive:
    """A positive, finite number."""

    help: str

    def read(self, name: str, text: str) -> float:
        """Return the number; InputError for any other text."""
        value = _read_number(text)
        if not (math.isfinite(value) and value > 0):
            raise InputError(f"option {name}={text}: a positive number is expected")
        return value

    def describe(self) -> str:
        """Return the values that can be given."""
        return "NUMBER"


Kind = Choice | Count | Positive


def choice(*words: str, default: str | None = "", help: str) -> Any:  # noqa: A002 -- as argparse calls it
    """Return the field of an option that is one of these words, the first one unless another default is given."""
    return field(default=words[0] if default == "" else default, metadata={KIND: Choice(words, help)})


def count(least: int, *, default: int | None = None, help: str) -> Any:  # noqa: A002
    """Return the field of an option that is a whole number."""
    return field(default=default, metadata={KIND: Count(least, help)})


def positive(*, default: float | None = None, help: str) -> Any:  # noqa: A002
    """Return the field of an option that is a positive number."""
    return field(default=default, metadata={KIND: Positive(help)})


def name_options(kind: type[Any]) -> dict[str, Kind]:
    """Return the kind of every option by its name."""
    return {each.name: each.metadata[KIND] for each in fields(kind)}


def read_options(kind: type[Options], given: Mapping[str, str], method: str) -> Options:
    """Return the options that were given as texts; InputError for an unknown name, and for a value that is none."""
    kinds = name_options(kind)
    unknown = sorted(set(given) - set(kinds))
    if unknown:
        raise InputError(f"option {unknown[0]!r} is unknown to {method}; there are {', '.join(kinds)}")
    return kind(**{name: kinds[name].read(name, text) for name, text in given.items()})


def describe_options(kind: type[Any]) -> list[str]:
    """Return a line of help for every option: its values, what it is for, and its default."""
    lines = []
    for each in fields(kind):
        option: Kind = each.metadata[KIND]
        default = "" if each.default is None else f" (default: {each.default})"
        lines.append(f"{each.name}={option.describe()}: {option.help}{default}")
    return lines


def _read_number(text: str) -> float:
    """Return the number, NaN for a text that is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
