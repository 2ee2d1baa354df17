"""The standard streams of a command, which may be closed or broken, and its messages at the end."""

from __future__ import annotations

import argparse
import io
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from streamsvm.errors import InputError, say_count

if TYPE_CHECKING:
    from streamsvm.training.result import Result

STREAMS = ("stdin", "stdout", "stderr")  # in the order of their file descriptors


def open_streams() -> list[str]:
    r"""Replace closed streams by the null device, and return their names. No later file or pipe gets their descriptors.

    Characters that the encoding of a stream does not have are written as escapes, such as \xe9.
    """
    closed = [name for name in STREAMS if getattr(sys, name) is None]
    for number in range(len(STREAMS)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest free descriptor, which is this one
    for name in closed:
        number, mode = STREAMS.index(name), "r" if name == "stdin" else "w"
        setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    return closed


def refuse_closed(closed: list[str], options: argparse.Namespace) -> None:
    """Raise InputError if standard output is closed, or standard input if the command is to read it."""
    if "stdout" in closed:
        raise InputError("standard output is closed; send it to a file, or to /dev/null")
    if "stdin" in closed and "-" in (getattr(options, "data", None), *getattr(options, "sources", ())):
        raise InputError("<stdin>: standard input is closed")


def flush_output() -> None:
    """Write the rest of standard output; OSError, which names standard output, if that fails."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, f"standard output cannot be written: {error.strerror}") from error


def silence_output() -> None:
    """Discard the rest of standard output if it cannot be written. Python would otherwise try again at its end."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def say_what_is_left(options: argparse.Namespace) -> str:
    """Return what an interrupted command has left behind, as part of a sentence."""
    if options.command == "tune" or (options.command == "train" and not options.plan):
        return "go on with the same command and --resume"
    if kept := _find_passes(options):
        return f"go on with the same command and --resume (the results of the passes are in {kept})"
    return "nothing was left behind"


def explain(error: InputError, options: argparse.Namespace) -> str:
    """Return the message of an error, with the file that --resume would go on with if there is one."""
    kept = _find_passes(options)
    return f"{error}; the results of finished passes are in {kept}, for --resume" if kept else str(error)


def _find_passes(options: argparse.Namespace) -> Path | None:
    """Return the file with the results of finished passes of `features`, or None."""
    if options.command != "features":
        return None
    from streamsvm.training.feature_checkpoint import name_checkpoint

    kept = name_checkpoint(options.destination)
    return kept if kept.exists() else None


def sum_up(result: Result, out: str | Path) -> str:
    """Return the outcome of a training as lines of text."""
    from streamsvm.machine import format_bytes
    from streamsvm.training.gaps import tell_gaps

    peak, projected = format_bytes(result.peak_memory_bytes), format_bytes(result.projected_memory_bytes)
    gap = result.relative_gap
    proved = "nothing proved" if gap is None else f"proved within {gap:.2e} of the optimum"
    likely = ""
    if known := result.calibration:
        true = f"Brier score {known['brier_score']:.4f}, log loss {known['log_loss']:.4f}"
        likely = f"probabilities ({known['method']}) of held-out rows: {true}\n"
    return (
        f"{result.status}: objective {result.objective:.6g}, {proved}, "
        f"{say_count(result.passes, 'pass')} over {say_count(result.n_rows, 'row')}, {result.seconds:.1f} s\n"
        f"{tell_gaps(result.problems)}"
        f"{result.status_reason + chr(10) if result.status_reason else ''}"
        f"{likely}"
        f"memory: peak {peak}, projected {projected}\n"
        f"model: {out}/model.npz"
    )
