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
import signal
import sys
import time
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from streamsvm.cli.arguments import how_to_read, make_parser
from streamsvm.cli.endings import explain, flush_output, open_streams, say_what_is_left, silence_output, sum_up
from streamsvm.cli.progress import log_to_stderr
from streamsvm.cli.resuming import tell_if_nothing_is_kept
from streamsvm.cli.settings import count_workers, list_given, read_axes, read_ingest_options, read_settings
from streamsvm.errors import CertificateError, InputError, say_count
from streamsvm.interrupts import caught_by_command
from streamsvm.training.statuses import STATUSES

if TYPE_CHECKING:
    from streamsvm.data.dataset import Dataset
    from streamsvm.options import TrainOptions


def _silence() -> None:
    """Silence the warnings of Dask's coroutines and tasks that nobody waits for any more."""
    warnings.simplefilter("ignore")
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    sys.unraisablehook = lambda _: None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status. arguments: those of the process if None."""
    with caught_by_command(_silence), log_to_stderr():
        status = _run(make_parser().parse_args(arguments))
    if arguments is None:  # the process ends now, and a signal may end it without a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        gc.freeze()  # looking for garbage among all objects of the compiler would take half a second
    return status


def _run(options: argparse.Namespace) -> int:
    """Run a command and return its exit status, with a message for an error."""
    try:
        open_streams(options)
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
    from streamsvm.cli.info import format_ingested
    from streamsvm.cli.progress import Line, RowCounter
    from streamsvm.data.formats import ROLES
    from streamsvm.data.readers import ingest
    from streamsvm.data.tables import Columns

    began, line = time.monotonic(), Line()
    named = {role: getattr(options, role) for role in ROLES}
    columns = Columns(**named, header=options.header, require_label=not options.unlabelled)
    try:
        dataset = ingest(
            options.sources,
            options.destination,
            file_format=options.format,
            columns=columns,
            options=read_ingest_options(options),
            report=RowCounter(line).show,
        )
    finally:
        line.close()
    print(format_ingested(options.destination, dataset, time.monotonic() - began))
    return 0


def _info(options: argparse.Namespace) -> int:
    from streamsvm.cli.info import describe, format_description, verify
    from streamsvm.data.dataset import open_dataset

    dataset = open_dataset(options.data, options.label)
    about = describe(dataset)
    if options.verify:
        about |= verify(dataset)
    print(json.dumps(about) if options.json else format_description(about))
    return 0


def _features(options: argparse.Namespace) -> int:
    from streamsvm.cli.effects import refuse_for_features
    from streamsvm.cli.info import describe_features, format_features
    from streamsvm.cli.progress import Line, RowCounter
    from streamsvm.data.dataset import open_dataset
    from streamsvm.machine import parse_bytes
    from streamsvm.options import TrainOptions
    from streamsvm.training.features import FeatureOptions, make_features

    began, line = time.monotonic(), Line()
    kernel = options.kernel or "rbf"
    refuse_for_features(options, kernel)
    memory, chunk = (None if size is None else parse_bytes(size) for size in (options.memory, options.chunk_bytes))
    map_options = FeatureOptions(options.map, options.rank or 300, options.seed or 0, chunk, options.overwrite)
    settings = TrainOptions(
        kernel=kernel,
        memory_bytes=memory,
        threads=options.threads,
        workers=count_workers(options),
        scheduler=options.scheduler,
        **list_given(options, "gamma", "degree", "coef0"),
    )
    source, counter = open_dataset(options.data, options.label), RowCounter(line)
    tell_if_nothing_is_kept(options)
    try:
        made = make_features(source, options.destination, map_options, settings, counter.add, resume=options.resume)
    finally:
        line.close()
    about = describe_features(made, time.monotonic() - began)
    print(json.dumps(about) if options.json else format_features(about))
    return 0


def _train(options: argparse.Namespace) -> int:
    from streamsvm.data.dataset import open_dataset

    if options.out is None and not options.plan:
        raise InputError("--out RUN is missing: it names the folder of the run")
    train_options = replace(read_settings(options), C=options.C, **list_given(options, "gamma"))
    dataset = open_dataset(options.data, options.label)
    if options.plan:
        return _print_plan(dataset, train_options, options)
    return _train_on(dataset, train_options, options)


def _print_plan(dataset: Dataset, train_options: TrainOptions, options: argparse.Namespace) -> int:
    from streamsvm.cli.feature_map import read_map
    from streamsvm.training.plan_features import plan_rows

    plan = plan_rows(dataset, read_map(options), train_options, keep_dual=options.keep_dual)
    print(json.dumps(plan.as_json()) if options.json else plan)
    return 0


def _train_on(dataset: Dataset, train_options: TrainOptions, options: argparse.Namespace) -> int:
    from streamsvm.cli.feature_map import read_map
    from streamsvm.cli.progress import Display, Line, RowCounter
    from streamsvm.training.calibrate import calibrate_run, require_folds
    from streamsvm.training.on_the_fly import open_rows
    from streamsvm.training.train import train
    from streamsvm.training.update import train_from

    if options.probabilities:
        require_folds(train_options)
    if options.map and (options.start_from or options.keep_ball):
        raise InputError("--start-from and --keep-ball are for rows as they are, and --map would make another map")
    tell_if_nothing_is_kept(options)
    line = Line()
    display = Display(dataset.n_rows, dataset.nbytes, train_options.tol, line)
    map_and_run = read_map(options), train_options, options.out, options.resume, options.overwrite
    keep_dual = options.keep_dual
    try:
        with open_rows(dataset, *map_and_run, keep_dual=keep_dual, report=RowCounter(line).add) as rows:
            given = {"listener": display.show, "keep_dual": keep_dual, **rows.arguments}
            if options.start_from is None and not options.keep_ball:
                result = train(rows.source, rows.options, options.out, **given)
            else:
                own = options.start_from, options.keep_ball
                result = train_from(rows.source, rows.options, options.out, *own, **given)
    finally:
        line.close()
    if result.status == "interrupted":
        print(f"interrupted after pass {result.passes}; go on with the same command and --resume", file=sys.stderr)
    elif options.probabilities:
        result = calibrate_run(rows.source, rows.options, result, options.out)
    print(json.dumps(result.as_json()) if options.json else sum_up(result, options.out))
    return 0 if result.finished else STATUSES[result.status].exit_code


def _tune(options: argparse.Namespace) -> int:
    from streamsvm.cli.feature_map import add_spent, put_gamma, read_map
    from streamsvm.cli.grid_page import format_tuning, make_tuning_page
    from streamsvm.cli.progress import GridDisplay, Line, RowCounter
    from streamsvm.data.dataset import open_dataset
    from streamsvm.files import write_atomically
    from streamsvm.training.calibrate import calibrate_run, require_folds
    from streamsvm.training.grid import tune
    from streamsvm.training.on_the_fly import open_rows

    axes, line = read_axes(options), Line()
    settings = put_gamma(options, read_settings(options))
    if options.probabilities:
        require_folds(settings)
    dataset = open_dataset(options.data, options.label, options.groups)
    tell_if_nothing_is_kept(options)
    try:
        with open_rows(dataset, read_map(options), settings, report=RowCounter(line).add) as rows:
            tuning = tune(
                rows.source,
                rows.options,
                options.C,
                () if options.map else options.gamma,
                options.folds,
                options.out,
                progress=GridDisplay(line).show,
                resume=options.resume,
                overwrite=options.overwrite,
                others=axes,
                forward=options.forward,
            )
            tuning = add_spent(tuning, rows.spent)
    finally:
        line.close()
    if tuning.result.status == "interrupted":
        print(f"streamsvm tune: interrupted; {say_what_is_left(options)}", file=sys.stderr)
    elif options.probabilities:
        best = replace(rows.options, **tuning.best.params)
        tuning = replace(tuning, result=calibrate_run(rows.source, best, tuning.result, options.out))
    about = json.dumps(tuning.as_json())
    write_atomically(options.out / "tuning.json", (about + "\n").encode())
    write_atomically(options.out / "tuning.html", make_tuning_page(options.out.resolve().name, tuning).encode())
    print(about if options.json else f"{format_tuning(tuning)}\n{sum_up(tuning.result, options.out)}")
    return 0 if tuning.result.finished else STATUSES[tuning.result.status].exit_code


def _predict(options: argparse.Namespace) -> int:
    from streamsvm.files import refuse_inputs
    from streamsvm.models.model import load
    from streamsvm.models.predict import predict

    model, model_file = load(options.model), Path(options.model)
    refuse_inputs(options.out, [model_file / "model.npz" if model_file.is_dir() else model_file])
    n_rows = predict(
        model,
        options.data,
        options.out,
        overwrite=options.overwrite,
        probabilities=options.probabilities,
        **how_to_read(options),
    )
    print(f"{options.out}: {say_count(n_rows, 'prediction')}")
    return 0


def _evaluate(options: argparse.Namespace) -> int:
    from streamsvm.cli.info import format_evaluation
    from streamsvm.models.evaluate import evaluate
    from streamsvm.models.model import load

    model = load(options.model)
    scores = evaluate(model, options.data, **how_to_read(options), qid=options.qid)
    print(json.dumps(scores) if options.json else format_evaluation(scores))
    return 0


def _verify(options: argparse.Namespace) -> int:
    from streamsvm.cli.info import format_verification
    from streamsvm.data.dataset import open_dataset
    from streamsvm.machine import parse_bytes
    from streamsvm.models.model import load
    from streamsvm.training.dual_file import find_dual_file
    from streamsvm.training.verify import verify

    memory = None if options.memory is None else parse_bytes(options.memory)
    model, source = load(options.model), open_dataset(options.data, options.label)
    found = verify(model, source, options.dual, memory, options.threads, find_dual_file(Path(options.model)))
    print(json.dumps(found.as_json()) if options.json else format_verification(found.as_json()))
    return 0 if found.agrees else 1


def _report(options: argparse.Namespace) -> int:
    from streamsvm.cli.report import write_report

    print(write_report(options.run, options.out))
    return 0


COMMANDS = {
    "demo": _demo,
    "ingest": _ingest,
    "info": _info,
    "features": _features,
    "train": _train,
    "tune": _tune,
    "predict": _predict,
    "evaluate": _evaluate,
    "verify": _verify,
    "report": _report,
}
