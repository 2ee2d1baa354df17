"""The `streamsvm` command. Progress goes to standard error, and results go to standard output.

The exit status is 0 if the command is done (a training has converged, or budgeted-sgd has made its epochs), 3 if a
limit stopped a training (its model is written all the same), 2 for unsuitable input or arguments, 130 if a second
Ctrl-C ended the process at once, and 1 for anything else.
"""

from __future__ import annotations

import argparse
import gc
import json
import logging
import os
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamsvm.cli.arguments import how_to_read, make_parser
from streamsvm.cli.deleting import delete
from streamsvm.cli.endings import explain, flush_output, open_streams, refuse_closed, say_what_is_left, silence_output
from streamsvm.cli.export import export_model, import_model
from streamsvm.cli.progress import log_to_stderr
from streamsvm.cli.settings import count_workers, read_ingest_options
from streamsvm.cli.table_arguments import split_names
from streamsvm.cli.training import features, train_model, tune_model
from streamsvm.cli.warm_up import warm_up
from streamsvm.errors import CertificateError, InputError, say_count
from streamsvm.interrupts import caught_by_command
from streamsvm.urls import hide_secrets, is_remote

if TYPE_CHECKING:
    from streamsvm.data.dataset import Dataset


def _silence() -> None:
    """Silence the warnings of Dask's coroutines and tasks that nobody waits for any more."""
    warnings.simplefilter("ignore")
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    sys.unraisablehook = lambda _: None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status. arguments: those of the process if None."""
    closed = open_streams()  # before the pipe of the signals could get their descriptors
    with caught_by_command(_silence), log_to_stderr():
        status = _run(make_parser().parse_args(arguments), closed)
    if arguments is None:  # the process ends now, and a signal may end it without a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        gc.freeze()  # looking for garbage among all objects of the compiler would take half a second
        if status and "obstore" in sys.modules:
            _end_at_once(status)
    return status


def _end_at_once(status: int) -> None:
    """End the process, since requests that a store has not answered may abort an interpreter that takes itself down."""
    with suppress(OSError, ValueError, AttributeError):  # there may be no such stream any more
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _run(options: argparse.Namespace, closed: list[str]) -> int:
    """Run a command and return its exit status, with a message for an error."""
    try:
        refuse_closed(closed, options)
        status = COMMANDS[options.command](options)
        flush_output()
        return status
    except InputError as error:
        print(f"streamsvm {options.command}: {explain(error, options)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"streamsvm {options.command}: interrupted; {say_what_is_left(options)}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        silence_output()
        return 1
    except (OSError, CertificateError) as error:
        silence_output()
        print(f"streamsvm {options.command}: {error}", file=sys.stderr)
        return 1


def _demo(options: argparse.Namespace) -> int:
    from streamsvm.cli.demo import run_demo

    return run_demo(options.out)


def _ingest(options: argparse.Namespace) -> int:
    from streamsvm.cli.effects import refuse_for_ingest
    from streamsvm.cli.info import describe, format_ingested
    from streamsvm.cli.progress import Line, RowCounter
    from streamsvm.cli.table_arguments import read_columns

    refuse_for_ingest(options)
    began, line = time.monotonic(), Line()
    write = _ingest_here if options.workers is None and options.scheduler is None else _ingest_on_workers
    try:
        dataset = write(
            options,
            file_format=options.format,
            columns=read_columns(options),
            options=read_ingest_options(options),
            report=RowCounter(line).show,
        )
    finally:
        line.close()
    seconds = time.monotonic() - began
    about = json.dumps({**describe(dataset), "seconds": seconds}) if options.json else None
    print(about or format_ingested(options.destination, dataset, seconds))
    return 0


def _ingest_here(given: argparse.Namespace, **how: Any) -> Dataset:
    from streamsvm.data.readers import ingest

    return ingest(given.sources, given.destination, like=given.like, **how)


def _ingest_on_workers(given: argparse.Namespace, **how: Any) -> Dataset:
    from streamsvm.machine import parse_bytes
    from streamsvm.training.ingest_on_workers import ingest_on_workers

    memory = None if given.memory is None else parse_bytes(given.memory)
    cluster = {"workers": count_workers(given), "scheduler": given.scheduler, "memory_bytes": memory}
    cluster["resume"] = given.resume
    return ingest_on_workers(given.sources, given.destination, **how, **cluster)


def _info(options: argparse.Namespace) -> int:
    from streamsvm.cli.info import describe, format_description, verify
    from streamsvm.cli.model_info import is_model, tell_model
    from streamsvm.data.open_dataset import open_dataset

    if is_model(options.data):
        print(tell_model(options))
        return 0
    if options.card or options.eval is not None:
        raise InputError(f"{options.data}: --card and --eval are for models: a run's folder, or a model file")
    dataset = open_dataset(options.data, options.label)
    about = describe(dataset)
    if options.verify:
        about |= verify(dataset)
    print(json.dumps(about) if options.json else format_description(about))
    return 0


def _predict(options: argparse.Namespace) -> int:
    from streamsvm.files import refuse_inputs
    from streamsvm.models.model import load
    from streamsvm.models.predict import predict

    model, model_file = load(options.model), Path(options.model)
    is_printed = str(options.out) == "-"
    if is_printed and options.json:
        raise InputError("--json has no effect with --out -, which prints the predictions as CSV")
    if not is_remote(options.model) and not is_printed:
        refuse_inputs(options.out, [model_file / "model.npz" if model_file.is_dir() else model_file])
    n_rows = predict(
        model,
        options.data,
        options.out,
        overwrite=options.overwrite,
        probabilities=options.probabilities,
        index=options.id,
        row_numbers=options.row_numbers,
        top=options.top,
        columns=split_names(options.columns),
        **how_to_read(options),
    )
    if not is_printed:
        told = json.dumps({"out": str(options.out), "n_rows": n_rows}) if options.json else None
        print(told or f"{options.out}: {say_count(n_rows, 'prediction')}")
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from streamsvm.cli.evaluation_text import format_evaluation
    from streamsvm.models.evaluate import evaluate
    from streamsvm.models.model import load

    if options.curves and not options.json:
        raise InputError("--curves has no effect without --json; `report RUN --eval DATA` draws the curves")
    model = load(options.model)
    scores = evaluate(model, options.data, **how_to_read(options), qid=options.qid)
    if not options.curves:
        scores.pop("curves", None)
    print(json.dumps(scores) if options.json else format_evaluation(scores))
    return 0


def _verify(options: argparse.Namespace) -> int:
    from streamsvm.cli.info import format_verification
    from streamsvm.data.open_dataset import open_dataset
    from streamsvm.machine import parse_bytes
    from streamsvm.models.model import load
    from streamsvm.training.dual_file import find_dual_file
    from streamsvm.training.verify import verify

    memory = None if options.memory is None else parse_bytes(options.memory)
    model, source = load(options.model), open_dataset(options.data, options.label)
    if options.dual and is_remote(options.model):
        raise InputError(
            f"{hide_secrets(options.model)}: --dual reads the dual point of a run on a local disk; copy the run there"
        )
    found = verify(model, source, options.dual, memory, options.threads, find_dual_file(Path(options.model)))
    print(json.dumps(found.as_json()) if options.json else format_verification(found.as_json()))
    return 0 if found.agrees else 1


def _report(options: argparse.Namespace) -> int:
    from streamsvm.cli.report import write_report

    given = [name for name, value in how_to_read(options).items() if value not in (None, "auto")]
    if given and options.eval is None:
        raise InputError(f"--{given[0].replace('file_', '')} has no effect without --eval, which names rows to read")
    page = write_report(options.runs, options.out, options.eval, how_to_read(options))
    print(json.dumps({"out": str(page)}) if options.json else page)
    return 0


COMMANDS = {
    "demo": _demo,
    "ingest": _ingest,
    "delete": delete,
    "info": _info,
    "features": features,
    "train": train_model,
    "tune": tune_model,
    "predict": _predict,
    "evaluate": _evaluate,
    "export": export_model,
    "import": import_model,
    "verify": _verify,
    "report": _report,
    "warm-up": warm_up,
}
