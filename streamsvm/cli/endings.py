"""What a command finds where its standard streams should be, and what it says at its end."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from streamsvm.errors import InputError

STREAMS = ("stdin", "stdout", "stderr")  # by their numbers


def open_streams(options: argparse.Namespace) -> None:
    """Put the null device in the place of closed streams, so that no file that is opened later gets their numbers.

    InputError if the command needs one of them: all print their result, and some are told to read standard input.
    """
    closed = [name for name in STREAMS if getattr(sys, name) is None]
    for number in range(len(STREAMS)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest number that is free, which is this one
    for name in closed:
        number, mode = STREAMS.index(name), "r" if name == "stdin" else "w"
        setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115
    if "stdout" in closed:
        raise InputError("standard output is closed; send it to a file, or to /dev/null")
    if "stdin" in closed and "-" in (getattr(options, "data", None), *getattr(options, "sources", ())):
        raise InputError("<stdin>: standard input is closed")


def flush_output() -> None:
    """Write what is left for standard output; OSError names it."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, f"standard output cannot be written: {error.strerror}") from error


def silence_output() -> None:
    """Send to nowhere what standard output has not taken: Python would try again as it ends, and complain."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say_what_is_left(options: argparse.Namespace) -> str:
    """Say what a command leaves that was interrupted."""
    if options.command == "tune" or (options.command == "train" and not options.plan):
        return "go on with the same command and --resume"
    if kept := _find_passes(options):
        return f"go on with the same command and --resume (what the passes have found is in {kept})"
    return "nothing was left behind"


def explain(error: InputError, options: argparse.Namespace) -> str:
    """Return the message of an error, and what there is to go on with."""
    kept = _find_passes(options)
    return f"{error}; what finished passes have found is in {kept}, for --resume" if kept else str(error)


def _find_passes(options: argparse.Namespace) -> Path | None:
    """Return the file with what finished passes of `features` have found, if there is one."""
    if options.command != "features":
        return None
    from streamsvm.training.feature_checkpoint import name_checkpoint

    kept = name_checkpoint(options.destination)
    return kept if kept.exists() else None


def sum_up(result: Any, out: Path) -> str:
    """Say what a training has come to."""
    from streamsvm.machine import format_bytes

    peak, projected = format_bytes(result.peak_memory_bytes), format_bytes(result.projected_memory_bytes)
    gap = result.relative_gap
    proved = "nothing proved" if gap is None else f"proved within {gap:.2e} of the optimum"
    return (
        f"{result.status}: objective {result.objective:.6g}, {proved}, "
        f"{result.passes} passes over {result.n_rows:,} rows, {result.seconds:.1f} s\n"
        f"{result.status_reason + chr(10) if result.status_reason else ''}"
        f"memory: peak {peak}, projected {projected}\n"
        f"model: {out / 'model.npz'}"
    )
