"""The values of single arguments of the command line, read from their texts."""

from __future__ import annotations

import argparse
from pathlib import Path

from streamsvm.errors import InputError
from streamsvm.problems.registry import name_losses
from streamsvm.urls import hide_secrets, is_remote


def read_count(text: str) -> int:
    """Return the whole number of at least 1 that an argument of argparse holds."""
    try:
        return parse_count("the argument", text)
    except InputError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def parse_count(name: str, text: str | int) -> int:
    """Return the whole number of at least 1 that a text holds. Raises InputError, with this name, for other texts."""
    if not str(text).isdecimal() or int(text) < 1:
        raise InputError(f"{name} is {text!r}; a whole number of at least 1 is expected")
    return int(text)


def parse_numbers(text: str) -> tuple[float, ...]:
    """Return the numbers of a text like "0.1,1,10"."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: write numbers, with commas between them") from None


def parse_losses(text: str) -> tuple[str, ...]:
    """Return the names of losses of a text like "hinge,logistic"."""
    names = tuple(text.split(","))
    for name in names:
        if name not in name_losses():
            raise argparse.ArgumentTypeError(f"{name!r}: choose from {', '.join(name_losses())}")
    return names


def parse_gamma(text: str) -> float | str:
    """Return the value of --gamma: a number, "scale" or "auto"."""
    try:
        return text if text in ("scale", "auto") else float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r}: write a number, scale or auto") from None


def parse_gammas(text: str) -> tuple[float | str, ...]:
    """Return the values of gamma in a text like "scale,0.1,1"."""
    try:
        return tuple(map(parse_gamma, text.split(",")))
    except argparse.ArgumentTypeError:
        raise argparse.ArgumentTypeError(f"{text!r}: write numbers, scale or auto, with commas between them") from None


def parse_shuffle(text: str) -> int | None:
    """Return the seed that --shuffle gives, or None for "no"."""
    if text == "no":
        return None
    if not text.isdecimal():
        raise InputError(f"--shuffle {text!r}: give a seed (a whole number) or no")
    return int(text)


def read_place(text: str) -> str | Path:
    """Return the URL of an object store as it is, and the path of a local file as a Path."""
    return text if is_remote(text) else Path(text)


def read_local_path(text: str) -> Path:
    """Return the path of a local file."""
    if is_remote(text):
        raise argparse.ArgumentTypeError(
            f"{hide_secrets(text)}: this is a path on a local disk only, not in an object store"
        )
    return Path(text)
