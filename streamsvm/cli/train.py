"""The commands `train` and `tune`. Each returns its exit status.

`train FILE` ingests the file into a dataset next to it, which later trainings reuse while the file is unchanged.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from streamsvm.cli.output import describe_remains, fill_text, report_missing_checkpoint, show
from streamsvm.cli.progress import Display, Line, RowCounter, show_grid, show_readings
from streamsvm.cli.settings import read_axes, read_map, read_settings
from streamsvm.data.open import open_dataset
from streamsvm.data.sources.formats import has_known_ending
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.edits import list_edits
from streamsvm.data.store.zarr_arrays import is_h5ad
from streamsvm.data.tables.columns import Columns
from streamsvm.ingestion.ingest import IngestOptions
from streamsvm.ingestion.readers import ingest, is_folder_of_files
from streamsvm.options import TrainOptions
from streamsvm.plan.predict import plan_rows
from streamsvm.plan.table import Plan, show_seconds
from streamsvm.problems.ranking import RANK
from streamsvm.problems.registry import find_problem, name_task
from streamsvm.runs.calibrate import calibrate, make_folds, require_folds, train_with_probabilities
from streamsvm.runs.held_out import EvalSet
from streamsvm.runs.on_the_fly import open_rows
from streamsvm.runs.results import STATUSES, Result, sum_up_gaps
from streamsvm.runs.tune import Tuning, tune
from streamsvm.runs.update import train_from
from streamsvm.solvers.set_up import settle_task
from streamsvm.system.errors import InputError, NeedsOptionError
from streamsvm.system.files import hide_secrets, is_remote, write_atomically
from streamsvm.system.reading import shown

CACHE = ".cache.zarr"  # the ending of the dataset's name


def run_train(options: argparse.Namespace) -> int:
    """Train a model, or with --plan report the expected cost."""
    if options.out is None and not options.plan:
        raise InputError("--out RUN is missing; it names the folder of the run")
    settings = read_settings(options)
    dataset = open_data(options)
    settings = settle_task(dataset, settings)
    _report_queries(dataset, settings)
    if options.plan:
        also = {"keep_dual": options.keep_dual, "probabilities": options.probabilities}
        plan = plan_rows(dataset, read_map(options), settings, **also)
        return show(options, plan.as_json(), format_plan(plan))
    display = Display(dataset.n_rows, dataset.nbytes, settings.tol)
    if options.live is None:
        return _train_on(dataset, settings, options, display)
    from streamsvm.cli.reports.report import serve_page, write_report

    if is_remote(options.out):
        raise InputError(f"{hide_secrets(options.out)}: --live shows a run on a local disk; choose a local --out")
    with serve_page(options.out, options.live, display.describe_reading) as address:
        print(f"the run is shown on {address} until it ends", file=sys.stderr, flush=True)
        status = _train_on(dataset, settings, options, display)
        print(f"its page stays in {write_report([options.out])}", file=sys.stderr)
    return status


def format_plan(plan: Plan) -> str:
    """Return a plan as lines of text."""
    return fill_text("plan.txt", plan=plan, about=plan.as_json(), seconds=show_seconds)


def run_tune(options: argparse.Namespace) -> int:
    """Train the models of a grid on folds, and the best setting on all rows."""
    axes, settings = read_axes(options), read_settings(options)
    if options.map and options.gamma:
        if len(options.gamma) > 1:
            raise InputError("--gamma: all fits share one map (--map), so only one value is possible")
        settings = replace(settings, gamma=options.gamma[0])
    require_folds(settings, options.probabilities)
    dataset = open_data(options)
    _report_queries(dataset, settings)
    report_missing_checkpoint(options)
    folder = options.out, options.resume, options.overwrite
    costs = options.C or ((1.0,) if find_problem(options.task).has_nu else ())
    how: dict[str, Any] = {"others": axes, "forward": options.forward, "probabilities": options.probabilities}
    how["scoring"] = options.scoring
    with show_readings() as line:
        how["progress"], report = partial(show_grid, line), RowCounter(line).add
        with open_rows(dataset, read_map(options), settings, *folder, report=report, for_grid=True) as rows:
            given = how | rows.arguments
            gammas = () if options.map else options.gamma
            tuning = tune(rows.source, rows.options, costs, gammas, options.folds, options.out, **given)
            spent = {n: getattr(tuning, n) + getattr(rows.spent, n) for n in ("passes", "read_bytes", "seconds")}
            tuning = replace(tuning, **spent)
    if tuning.result.status == "interrupted":
        print(f"streamsvm tune: interrupted; {describe_remains(options)}", file=sys.stderr)
    _write_tuning(tuning, options)
    return 0 if tuning.result.finished else STATUSES[tuning.result.status].exit_code


def _write_tuning(tuning: Tuning, options: argparse.Namespace) -> None:
    """Write the results of all settings into the run's folder, and print them."""
    from streamsvm.cli.reports.page import render_page
    from streamsvm.cli.reports.report import format_tuning, show_tuning

    facts = tuning.as_json()
    page = render_page(options.out.resolve().name, [show_tuning(facts)])
    write_atomically(options.out / "tuning.json", (json.dumps(facts) + "\n").encode())
    write_atomically(options.out / "tuning.html", page.encode())
    show(options, facts, f"{format_tuning(tuning)}\n{sum_up(tuning.result, options.out)}")


def open_data(options: argparse.Namespace) -> Dataset:
    """Return the dataset to train on; a file of rows is ingested first."""
    groups = getattr(options, "groups", None)
    regression = not find_problem(options.task).has_classes
    local = None if is_remote(options.data) else Path(options.data)
    if local is not None and has_known_ending(local) and not local.exists():
        raise InputError(f"{local}: no such file")
    if local is None or (is_h5ad(local) and not regression) or not (local.is_file() or is_folder_of_files(local)):
        return open_dataset(options.data, options.label, groups, options.cache)
    if not local.is_file() or getattr(options, "plan", False):
        raise InputError(f"{local}: holds rows, but is not a dataset: {_suggest_commands(options)}")
    return _ingest_once(local, regression, groups, options)


def _suggest_commands(options: argparse.Namespace) -> str:
    return (
        f"run `streamsvm ingest {options.data} DATA.zarr`, whose options determine how the rows are read, and then "
        f"`streamsvm {options.command} DATA.zarr` with the options of the training"
    )


def _ingest_once(file: Path, regression: bool, groups: str | None, options: argparse.Namespace) -> Dataset:
    """Return the dataset next to a file; ingest the file first unless the dataset exists and is up to date."""
    needs_labels = find_problem(options.task).needs_labels
    wanted = {"label": options.label, "groups": groups, "regression": regression, "needs_labels": needs_labels}
    cache, about = file.with_name(f"{file.name}{CACHE}"), file.stat()
    state = {**wanted, "size": about.st_size, "mtime_ns": about.st_mtime_ns}
    if cache.exists():
        found = open_dataset(cache)
        if list_edits(found):
            raise InputError(
                f"{cache}: rows were appended or deleted, so it differs from {file}: train on it, or remove it"
            )
        if found.meta.get("source_state") == state:
            print(f"{file}: using its rows in {cache}, from an earlier training", file=sys.stderr)
            return found
        if "source_state" not in found.meta:
            raise InputError(f"{cache}: another command wrote this dataset: train on it, or remove it")
    columns = Columns(label=options.label, groups=groups, require_label=needs_labels)
    settings = IngestOptions(regression=regression, overwrite=True, source_state=state)
    with Line() as line:
        counter = RowCounter(line)

        def report(n_rows: int) -> None:
            if not counter.n_rows:  # an error in the first rows is reported without this line
                print(f"{file}: writing its rows to {cache}, which later trainings will use as well", file=sys.stderr)
            counter.add(n_rows - counter.n_rows)

        try:
            return ingest(file, cache, columns=columns, options=settings, report=report)
        except NeedsOptionError as error:
            raise InputError(f"{error}; if more than --label is needed, {_suggest_commands(options)}") from error


def _report_queries(dataset: Dataset, settings: TrainOptions) -> None:
    """Print a line if the rows belong to queries, but the task does not learn their order."""
    if "qid" in dataset.vectors and settings.task != RANK.name:
        unread = f"{name_task(settings.task)} does not read its query ids; --task {RANK.name} learns the order of the"
        print(f"{dataset.name}: {unread} rows of each query", file=sys.stderr)


def _train_on(dataset: Dataset, settings: TrainOptions, options: argparse.Namespace, display: Display) -> int:
    way, is_update = options.probabilities, _is_update(options)
    require_folds(settings, way)
    _refuse_together(options)
    report_missing_checkpoint(options)
    map_and_run = read_map(options), settings, options.out, options.resume, options.overwrite
    with display.line as line, shown(display.show_reading):
        listener, report = display.show, RowCounter(line).add
        eval_set = EvalSet(open_dataset(options.eval), options.patience) if options.eval else None
        with open_rows(dataset, *map_and_run, keep_dual=options.keep_dual, report=report) as rows:
            kept = {"keep_dual": options.keep_dual, "eval_set": eval_set}
            given = {"listener": listener, **kept, **rows.arguments}
            folds = make_folds(rows.source, rows.options, way) if way else None
            if is_update:
                start = options.start_from, options.keep_ball
                result = train_from(rows.source, rows.options, options.out, *start, **given)
            else:
                result = train_with_probabilities(rows.source, rows.options, folds, options.out, **given)
    if result.status == "interrupted":
        print(f"interrupted after pass {result.passes}; {describe_remains(options)}", file=sys.stderr)
    elif is_update and folds:
        result = calibrate(rows.source, rows.options, folds, result, options.out)
    show(options, result.as_json(), sum_up(result, options.out))
    return 0 if result.finished else STATUSES[result.status].exit_code


def _refuse_together(options: argparse.Namespace) -> None:
    """Raise InputError for training options that exclude one another."""
    if options.eval and _is_update(options):
        raise InputError("--eval measures the steps of a new training; remove --start-from and --keep-ball")
    if options.patience and not options.eval:
        raise InputError("--patience has no effect without --eval, which names the rows to measure the model on")
    if options.map and _is_update(options):
        raise InputError("--start-from and --keep-ball need the rows themselves; they cannot be combined with --map")
    if is_remote(options.out or "") and (options.map or options.probabilities or _is_update(options)):
        raise InputError(
            f"{hide_secrets(options.out)}: --map, --start-from, --keep-ball and --probabilities write to a local disk "
            "only; choose a local folder for --out"
        )


def _is_update(options: argparse.Namespace) -> bool:
    """Return whether training starts from a model, or keeps a ball so that a later training can."""
    return options.start_from is not None or options.keep_ball


def sum_up(result: Result, out: str | Path) -> str:
    """Return the summary of a training as lines of text."""
    return fill_text("training.txt", result=result, gaps=sum_up_gaps(result.problems), out=out)
