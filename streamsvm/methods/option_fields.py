"""A method's own options: a frozen dataclass declares their names, types, defaults and help texts.

A user gives such options as texts (`--option merge=5`, or the mapping `TrainOptions.options`). The dataclass is the
only place that knows them: the command line, its help and the checks read it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, TypeVar

from streamsvm.errors import InputError

Options = TypeVar("Options")
KIND = "kind"  # key of an option's kind in the metadata of its field


@dataclass(frozen=True)
class Choice:
    """An option whose value is one of several words."""

    words: tuple[str, ...]
    help: str

    def read(self, name: str, text: str) -> str:
        """Return the word; InputError if it is not one of the words."""
        if text not in self.words:
            raise InputError(f"{name} {text!r}: choose from {', '.join(self.words)}")
        return text

    def describe(self) -> str:
        """Return the values that can be given."""
        return "|".join(self.words)


@dataclass(frozen=True)
class Count:
    """An option whose value is a whole number of at least `least`."""

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
    """An option whose value is a positive, finite number."""

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
    """Return the field of an option that is one of these words; the first word is the default unless one is given."""
    return field(default=words[0] if default == "" else default, metadata={KIND: Choice(words, help)})


def count(least: int, *, default: int | None = None, help: str) -> Any:  # noqa: A002
    """Return the field of an option that is a whole number of at least `least`."""
    return field(default=default, metadata={KIND: Count(least, help)})


def positive(*, default: float | None = None, help: str) -> Any:  # noqa: A002
    """Return the field of an option that is a positive number."""
    return field(default=default, metadata={KIND: Positive(help)})


def name_options(kind: type[Any]) -> dict[str, Kind]:
    """Return the kind of every option by its name."""
    return {each.name: each.metadata[KIND] for each in fields(kind)}


def read_options(kind: type[Options], given: Mapping[str, str], method: str) -> Options:
    """Return the options that were given as texts; InputError for an unknown name or a bad value."""
    kinds = name_options(kind)
    unknown = sorted(set(given) - set(kinds))
    if unknown:
        raise InputError(f"option {unknown[0]!r} is unknown to {method}; there are {', '.join(kinds)}")
    return kind(**{name: kinds[name].read(name, text) for name, text in given.items()})


def describe_options(kind: type[Any]) -> list[str]:
    """Return a line of help for every option: its values, its purpose, and its default."""
    lines = []
    for each in fields(kind):
        option: Kind = each.metadata[KIND]
        default = "" if each.default is None else f" (default: {each.default})"
        lines.append(f"{each.name}={option.describe()}: {option.help}{default}")
    return lines


def _read_number(text: str) -> float:
    """Return the number, or NaN if the text is not a number."""
    try:
        return float(text)
    except ValueError:
        return math.nan
