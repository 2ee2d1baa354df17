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
MOST_COUNT = 2**53  # the whole numbers up to this one are exact in float64
KIND = "kind"  # key of an option's kind in the metadata of its field
READ_WITH = "read_with"  # key of the values of other options with which the option has an effect
Words = Mapping[str, tuple[str, ...]]  # the values of some options, by name
ALWAYS: Words = {}  # whatever values other options have


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
        if not (value.is_integer() and self.least <= value <= MOST_COUNT):
            raise InputError(f"option {name}={text[:40]}: a whole number of at least {self.least} is expected")
        return int(value)

    def describe(self) -> str:
        """Return the values that can be given."""
        return "N"


@dataclass(frozen=True)
class Positive:
    """An option whose value is a positive, finite number, or 0 if that is allowed."""

    help: str
    or_zero: bool = False

    def read(self, name: str, text: str) -> float:
        """Return the number; InputError for any other text."""
        value = _read_number(text)
        if not (math.isfinite(value) and (value > 0 or (value == 0 and self.or_zero))):
            raise InputError(f"option {name}={text}: a positive number{' or 0' if self.or_zero else ''} is expected")
        return value

    def describe(self) -> str:
        """Return the values that can be given."""
        return "NUMBER"


@dataclass(frozen=True)
class Folder:
    """An option whose value is the path of a folder."""

    help: str

    def read(self, name: str, text: str) -> str:
        """Return the path; InputError if it is empty."""
        if not text:
            raise InputError(f"option {name}: the path of a folder is expected")
        return text

    def describe(self) -> str:
        """Return the values that can be given."""
        return "DIR"


Kind = Choice | Count | Positive | Folder


def choice(*words: str, default: str | None = "", help: str, read_with: Words | None = None) -> Any:  # noqa: A002
    """Return the field of an option that is one of these words; the first word is the default unless one is given.

    read_with: the words of other options with which this one has an effect.
    """
    return _make_field(words[0] if default == "" else default, Choice(words, help), read_with)


def count(least: int, *, default: int | None = None, help: str, read_with: Words | None = None) -> Any:  # noqa: A002
    """Return the field of an option that is a whole number of at least `least`."""
    return _make_field(default, Count(least, help), read_with)


def positive(
    *,
    default: float | None = None,
    help: str,  # noqa: A002
    read_with: Words | None = None,
    or_zero: bool = False,
) -> Any:
    """Return the field of an option that is a positive number, or 0 if that is allowed."""
    return _make_field(default, Positive(help, or_zero), read_with)


def folder(*, help: str) -> Any:  # noqa: A002
    """Return the field of an option that is the path of a folder, and has no default."""
    return _make_field(None, Folder(help), None)


def _make_field(default: Any, kind: Kind, read_with: Words | None) -> Any:
    return field(default=default, metadata={KIND: kind, READ_WITH: read_with or ALWAYS})


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


def refuse_unread(kind: type[Any], given: Mapping[str, str], kernel: str, settings: Mapping[str, Words]) -> None:
    """Raise InputError for an option or a setting that was given, but has no effect with the value of another option.

    settings: the settings that were given and do not belong to the method, with the values that they are read with.
    """
    values = {each.name: each.default for each in fields(kind)} | {"kernel": kernel} | dict(given)
    needs = {f"--option {each.name}": each.metadata[READ_WITH] for each in fields(kind) if each.name in given}
    for name, words in {**needs, **settings}.items():
        for other, able in words.items():
            if values[other] not in able:
                raise InputError(
                    f"{name} has no effect with {other}={values[other]}: leave it out, or choose {other}="
                    f"{'|'.join(able)}"
                )


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
