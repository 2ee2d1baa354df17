"""The commands that train: `features`, `train` and `tune`. Each returns the exit status."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from streamsvm.cli.endings import say_what_is_left, sum_up
from streamsvm.cli.resuming import tell_if_nothing_is_kept
from streamsvm.cli.settings import count_workers, list_given, read_axes, read_settings
from streamsvm.errors import InputError
from streamsvm.problems.registry import find_problem
from streamsvm.training.statuses import STATUSES
from streamsvm.urls import hide_secrets, is_remote

if TYPE_CHECKING:
    from streamsvm.data.dataset import Dataset
    from streamsvm.data.source import RowSource
    from streamsvm.options import TrainOptions
    from streamsvm.training.result import Result
    from streamsvm.training.trials import Tuning


def features(options: argparse.Namespace) -> int:
    """Map the rows of a dataset, and write them as another one."""
    from streamsvm.cli.effects import refuse_for_features
    from streamsvm.cli.info import describe_features, format_features
    from streamsvm.cli.progress import Line, RowCounter
    from streamsvm.data.open_dataset import open_dataset
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
    source, counter = open_dataset(options.data, options.label, cache=options.cache), RowCounter(line)
    tell_if_nothing_is_kept(options)
    try:
        made = make_features(source, options.destination, map_options, settings, counter.add, resume=options.resume)
    finally:
        line.close()
    about = describe_features(made, time.monotonic() - began)
    print(json.dumps(about) if options.json else format_features(about))
    return 0


def train_model(options: argparse.Namespace) -> int:
    """Train a model, or tell how it would be trained."""
    from streamsvm.cli.train_file import open_data
    from streamsvm.methods.set_up import settle_task

    if options.out is None and not options.plan:
        raise InputError("--out RUN is missing: it names the folder of the run")
    train_options = replace(read_settings(options), C=options.C, **list_given(options, "gamma"))
    problem = find_problem(options.task)
    dataset = open_data(options, regression=not problem.has_classes, needs_labels=problem.needs_labels)
    train_options = settle_task(dataset, train_options)
    _tell_of_queries(dataset, train_options)
    if options.plan:
        return _print_plan(dataset, train_options, options)
    if options.live is None:
        return _train_on(dataset, train_options, options)
    from streamsvm.cli.live import serve_page

    if is_remote(options.out):
        raise InputError(f"{hide_secrets(options.out)}: --live shows a run on a local disk; choose a local --out")
    with serve_page(options.out, options.live) as address:
        print(f"the run is shown on {address} while it lasts", file=sys.stderr, flush=True)
        return _train_on(dataset, train_options, options)


def _tell_of_queries(dataset: Dataset, train_options: TrainOptions) -> None:
    """Print a line if the rows belong to queries, and the training does not learn their order."""
    from streamsvm.problems.ranking import RANK

    if "qid" in dataset.vectors and train_options.task != RANK.name:
        told = f"--task {train_options.task} does not read its query ids; --task {RANK.name} learns the order of the"
        print(f"{dataset.name}: {told} rows of each query", file=sys.stderr)


def _print_plan(dataset: Dataset, train_options: TrainOptions, options: argparse.Namespace) -> int:
    from streamsvm.cli.feature_map import read_map
    from streamsvm.training.plan_features import plan_rows

    also = {"keep_dual": options.keep_dual, "probabilities": options.probabilities}
    plan = plan_rows(dataset, read_map(options), train_options, **also)
    print(json.dumps(plan.as_json()) if options.json else plan)
    return 0


def _train_on(dataset: Dataset, train_options: TrainOptions, options: argparse.Namespace) -> int:
    from streamsvm.cli.feature_map import read_map
    from streamsvm.cli.progress import Display, Line, RowCounter
    from streamsvm.data.open_dataset import open_dataset
    from streamsvm.training.calibrate import calibrate, require_folds
    from streamsvm.training.eval_set import EvalSet
    from streamsvm.training.on_the_fly import open_rows

    if options.probabilities:
        require_folds(train_options, options.probabilities)
    _refuse_together(options)
    tell_if_nothing_is_kept(options)
    line = Line()
    display = Display(dataset.n_rows, dataset.nbytes, train_options.tol, line)
    map_and_run = read_map(options), train_options, options.out, options.resume, options.overwrite
    try:
        eval_set = EvalSet(open_dataset(options.eval), options.patience) if options.eval else None
        with open_rows(dataset, *map_and_run, keep_dual=options.keep_dual, report=RowCounter(line).add) as rows:
            kept = {"keep_dual": options.keep_dual, "eval_set": eval_set}
            given = {"listener": display.show, **kept, **rows.arguments}
            result = _train_rows(rows.source, rows.options, options, given)
    finally:
        line.close()
    if result.status == "interrupted":
        print(f"interrupted after pass {result.passes}; go on with the same command and --resume", file=sys.stderr)
    elif options.probabilities and _is_update(options):
        result = calibrate(rows.source, rows.options, options.probabilities, result, options.out)
    print(json.dumps(result.as_json()) if options.json else sum_up(result, options.out))
    return 0 if result.finished else STATUSES[result.status].exit_code


def _refuse_together(options: argparse.Namespace) -> None:
    """Raise InputError for options of a training that do not go together."""
    if options.eval and _is_update(options):
        raise InputError("--eval measures the steps of a new training: leave out --start-from and --keep-ball")
    if options.patience and not options.eval:
        raise InputError("--patience has no effect without --eval, which names the rows to measure the model by")
    if options.map and _is_update(options):
        raise InputError("--start-from and --keep-ball are for rows as they are, and --map would make another map")
    if is_remote(options.out or "") and (options.map or options.probabilities or _is_update(options)):
        raise InputError(
            f"{hide_secrets(options.out)}: --map, --start-from, --keep-ball and --probabilities write to a local disk "
            "only; choose a local folder for --out"
        )


def _is_update(options: argparse.Namespace) -> bool:
    """Return whether the training starts from a model, or keeps a ball so that later ones can."""
    return options.start_from is not None or options.keep_ball


def _train_rows(
    source: RowSource, train_options: TrainOptions, options: argparse.Namespace, given: dict[str, Any]
) -> Result:
    """Train on rows in the way that is asked for. An update gets its probabilities afterwards."""
    from streamsvm.training.calibrate import make_folds, train_with_probabilities
    from streamsvm.training.train import train
    from streamsvm.training.update import train_from

    way = options.probabilities
    if _is_update(options):
        if way:
            make_folds(source, train_options, way)  # refuses before the first pass
        return train_from(source, train_options, options.out, options.start_from, options.keep_ball, **given)
    if way:
        return train_with_probabilities(source, train_options, way, options.out, **given)
    return train(source, train_options, options.out, **given)


def tune_model(options: argparse.Namespace) -> int:
    """Train models of a grid on folds, and the best one on all rows."""
    from streamsvm.cli.feature_map import add_spent, put_gamma, read_map
    from streamsvm.cli.progress import GridDisplay, Line, RowCounter
    from streamsvm.cli.train_file import open_data
    from streamsvm.training.calibrate import require_folds
    from streamsvm.training.grid import tune
    from streamsvm.training.on_the_fly import open_rows

    axes, line = read_axes(options), Line()
    settings = put_gamma(options, read_settings(options))
    if options.probabilities:
        require_folds(settings, options.probabilities)
    problem = find_problem(options.task)
    dataset = open_data(options, regression=not problem.has_classes, needs_labels=problem.needs_labels)
    _tell_of_queries(dataset, settings)
    tell_if_nothing_is_kept(options)
    try:
        folder = options.out, options.resume, options.overwrite
        with open_rows(
            dataset, read_map(options), settings, *folder, report=RowCounter(line).add, for_grid=True
        ) as rows:
            tuning = tune(
                rows.source,
                rows.options,
                options.C or ((1.0,) if find_problem(options.task).has_nu else ()),
                () if options.map else options.gamma,
                options.folds,
                options.out,
                progress=GridDisplay(line).show,
                others=axes,
                forward=options.forward,
                probabilities=options.probabilities,
                **rows.arguments,
            )
            tuning = add_spent(tuning, rows.spent)
    finally:
        line.close()
    if tuning.result.status == "interrupted":
        print(f"streamsvm tune: interrupted; {say_what_is_left(options)}", file=sys.stderr)
    _write_tuning(tuning, options)
    return 0 if tuning.result.finished else STATUSES[tuning.result.status].exit_code


def _write_tuning(tuning: Tuning, options: argparse.Namespace) -> None:
    """Write what was tried into the run's folder, and print it."""
    from streamsvm.cli.pages.page import render_page
    from streamsvm.cli.pages.tuning import format_tuning, show_tuning
    from streamsvm.files import write_atomically

    told = tuning.as_json()
    about, page = json.dumps(told), render_page(options.out.resolve().name, [show_tuning(told)])
    write_atomically(options.out / "tuning.json", (about + "\n").encode())
    write_atomically(options.out / "tuning.html", page.encode())
    print(about if options.json else f"{format_tuning(tuning)}\n{sum_up(tuning.result, options.out)}")
