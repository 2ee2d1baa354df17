"""Command output: results as JSON or text, closing messages, and standard streams that may be closed or broken."""

from __future__ import annotations

import argparse
import io
import json
import os
import sys
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from streamsvm.system.errors import InputError, list_few, say_count
from streamsvm.system.files import is_remote
from streamsvm.system.machine import format_bytes

STREAMS = ("stdin", "stdout", "stderr")  # in the order of their file descriptors
RUN_FILES = ("settings.json", "history.jsonl", "checkpoint.npz", "model.npz", "result.json")  # never overwritten
NO_CHECKPOINT = "there is no checkpoint yet, since no step was complete: the same command starts again"


def show(options: argparse.Namespace, facts: Mapping[str, Any], text: str) -> int:
    """Print the result of a command, as JSON with `--json` and as text otherwise; return the exit status 0."""
    print(json.dumps(facts) if options.json else text)
    return 0


@cache
def find_template(name: str, show: Callable[[Any], str]) -> Any:
    """Return a template from the folder `templates`.

    show: turns each value that is not Markup into text. HTML and SVG templates escape this text; others do not.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def finalize(value: Any) -> str:
        if isinstance(value, Markup):
            return value
        return show(value) if name.endswith((".html", ".svg")) else Markup(show(value))  # noqa: S704

    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates", encoding="utf-8"),
        undefined=StrictUndefined,
        autoescape=True,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= {"count": say_count, "size": format_bytes, "list_few": list_few}
    return environment.get_template(name)


def fill_text(name: str, **values: Any) -> str:
    """Return a plain-text template filled with these values, without the final line break."""
    return str(find_template(name, show_text).render(values)).rstrip("\n")


def show_text(value: object) -> str:
    """Return a value from the data as text; characters that could move the cursor or start a line are escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in str(value))


def open_streams() -> list[str]:
    r"""Replace closed streams with the null device, so that no later file gets their descriptors; return their names.

    Characters that a stream's encoding lacks are written as escapes, such as \xe9.
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
    """Raise InputError if standard output is closed, or if the command reads standard input and that is closed."""
    if "stdout" in closed:
        raise InputError("standard output is closed; send it to a file, or to /dev/null")
    if "stdin" in closed and "-" in (getattr(options, "data", None), *getattr(options, "sources", ())):
        raise InputError("<stdin>: standard input is closed")


def flush_output() -> None:
    """Flush standard output; raise an OSError that names it if that fails."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise OSError(error.errno, f"standard output cannot be written: {error.strerror}") from error


def silence_output() -> None:
    """Discard the rest of standard output if it cannot be written; Python would try again at exit."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def describe_remains(options: argparse.Namespace) -> str:
    """Describe what an interrupted command leaves behind, as part of a sentence."""
    resume = "continue with the same command and --resume"
    if options.command == "tune" or (options.command == "train" and not options.plan):
        _, exists = _find_checkpoint(options)
        return resume if exists else NO_CHECKPOINT
    kept = _describe_passes(options)
    return f"{resume} ({kept})" if kept else "nothing was left behind"


def describe_error(error: InputError, options: argparse.Namespace) -> str:
    """Return the message of an error, with the file of finished passes for --resume if one exists."""
    kept = _describe_passes(options)
    return f"{error}; {kept}, for --resume" if kept else str(error)


def _describe_passes(options: argparse.Namespace) -> str:
    """Return where `features` has kept the results of finished passes, as part of a sentence; "" if there are none."""
    kept, exists = _find_checkpoint(options) if options.command == "features" else (None, False)
    return f"the results of the finished passes are in {kept}" if exists else ""


def report_missing_checkpoint(options: argparse.Namespace) -> None:
    """Print where a checkpoint was expected if `--resume` was given and there is none."""
    if options.resume:
        place, exists = _find_checkpoint(options)
        if not exists:
            message = f"--resume: there is no checkpoint in {place}; everything starts again"
            print(f"streamsvm {options.command}: {message}", file=sys.stderr)


def _find_checkpoint(options: argparse.Namespace) -> tuple[str | Path, bool]:
    """Return the place of the checkpoint of a command, and whether there is one."""
    if options.command == "features":
        from streamsvm.runs.records import name_checkpoint

        kept = name_checkpoint(options.destination)
        return kept, kept.exists()
    if is_remote(options.out):
        from streamsvm.data.remote.objects import RemoteFolder

        return options.out, "checkpoint.npz" in RemoteFolder(options.out).list_names()
    from streamsvm.runs.folder import has_checkpoint

    return options.out, has_checkpoint(options.out, options.command)
