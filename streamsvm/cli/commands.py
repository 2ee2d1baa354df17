"""All commands except `demo`, `train` and `tune`. Each function returns the exit status."""

from __future__ import annotations

import argparse
import re
import shutil
import time
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.cli import info, settings
from streamsvm.cli.output import RUN_FILES, fill_text, report_missing_checkpoint, show, show_text
from streamsvm.cli.progress import Line, RowCounter, show_readings
from streamsvm.data.open import open_dataset
from streamsvm.data.sources.formats import SYNTAX
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.destination import check_destination, make_parents
from streamsvm.data.tables.columns import Columns
from streamsvm.models.evaluate import evaluate
from streamsvm.models.model import load
from streamsvm.numeric.rows import I64
from streamsvm.options import TrainOptions
from streamsvm.solvers.options import FeatureOptions
from streamsvm.system.budget import memory_kept
from streamsvm.system.errors import InputError, say_count
from streamsvm.system.files import Lock, hide_secrets, is_remote, name_partial, refuse_inputs, remove_partials

ROWS = re.compile(r"\d{1,18}(-\d{1,18})?(,\d{1,18}(-\d{1,18})?)*")  # row numbers and ranges, separated by commas


def run_ingest(options: argparse.Namespace) -> int:
    """Ingest files into a dataset or, with --holdout, into two; report the rows."""
    settings.refuse_for_ingest(options)
    began, more = time.monotonic(), dict[str, Any]()
    if options.holdout is None:
        dataset = _ingest(options)
    else:
        dataset, rest = _ingest_and_split(options)
        more["held_out"] = {"path": rest.path, "n_rows": rest.n_rows}
    facts = {**info.describe(dataset), **more, "seconds": time.monotonic() - began}
    return show(options, facts, info.format_description(facts, "ingested.txt"))


def _ingest(options: argparse.Namespace) -> Dataset:
    """Ingest files into a dataset, on this machine's threads or on workers."""
    from streamsvm.ingestion.ingest import IngestOptions, count_bytes

    how: dict[str, Any] = {"file_format": options.format}
    how["columns"] = settings.make_record(Columns, options, require_label=not options.unlabelled)
    how["options"] = settings.make_record(IngestOptions, options, shuffle=options.shuffle)
    with Line() as line:
        how["report"] = RowCounter(line).show
        if options.workers is None and options.scheduler is None:
            from streamsvm.ingestion.readers import ingest

            count = partial(count_bytes, how["columns"], how["options"], is_remote(options.destination))
            with memory_kept(options.memory, count, ", or use a smaller --chunk-bytes"):
                return ingest(options.sources, options.destination, like=options.like, **how)
        from streamsvm.ingestion.on_workers import ingest_on_workers

        how |= {name: getattr(options, name) for name in ("scheduler", "resume", "workers")}
        return ingest_on_workers(options.sources, options.destination, memory_bytes=options.memory, **how)


def _ingest_and_split(options: argparse.Namespace) -> tuple[Dataset, Dataset]:
    """Ingest files into a temporary dataset beside the destination, and split it."""
    from streamsvm.ingestion.split import require_share, split_dataset

    train, whole = options.destination, options.destination.with_name(f"{options.destination.name}-whole")
    rest = train.with_name(f"{train.stem}-held-out{train.suffix}")
    require_share(options.holdout)
    for place in (train, rest):
        check_destination(place, options.overwrite)
        refuse_inputs(place, options.sources)
    make_parents(train)
    with Lock(whole):
        remove_partials(whole.parent, whole.name)  # of a process that was killed
        folder = name_partial(whole)
        try:
            made = _ingest(argparse.Namespace(**vars(options) | {"destination": folder / train.name}))
            how = options.holdout, options.shuffle or 0, options.overwrite
            return split_dataset(made, made.meta["source"], train, rest, *how)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def run_split(options: argparse.Namespace) -> int:
    """Split a dataset, and report the rows of both parts."""
    from streamsvm.ingestion.split import split

    how = {name: getattr(options, name) for name in ("share", "seed", "overwrite")}
    parts = split(options.data, options.train, options.held_out, **how)
    facts = {name: {"path": part.path, "n_rows": part.n_rows} for name, part in zip(PARTS, parts, strict=True)}
    return show(options, facts, "\n".join(f"{part.path}: {say_count(part.n_rows, 'row')}" for part in parts))


def run_delete(options: argparse.Namespace) -> int:
    """Delete rows, and report how many are left."""
    from streamsvm.ingestion.edit import delete_rows

    before = open_dataset(options.data).n_rows
    rows = None if options.rows is None else np.concatenate([parse_rows(text, before) for text in options.rows])
    left = delete_rows(options.data, rows, groups=options.group).n_rows
    facts = {"path": str(options.data), "deleted_rows": before - left, "n_rows": left}
    counts = f"{say_count(before - left, 'row')} deleted, {say_count(left, 'row')} left"
    return show(options, facts, f"{options.data}: {counts}")


def parse_rows(text: str, n_rows: int) -> I64:
    """Return the row numbers in a string such as "0-99,250", or in a file of such lines; all below n_rows."""
    lines = [text]
    if not ROWS.fullmatch(text):
        try:
            lines = [line.strip() for line in Path(text).read_text().splitlines() if line.strip()]
        except (OSError, ValueError) as error:
            raise InputError(
                f"--rows {text}: neither row numbers such as 0-99,250 nor a file of them ({error})"
            ) from None
    found = [np.zeros(0, np.int64)]
    for line in lines:
        if not ROWS.fullmatch(line):
            raise InputError(f"{text}: row numbers such as 0-99,250 are expected, not {line[:40]!r}")
        for part in line.split(","):
            first, _, last = part.partition("-")
            if int(first) > int(last or first) or int(last or first) >= n_rows:
                raise InputError(f"--rows {text}: {part} is not a row, or a range, of {say_count(n_rows, 'row')}")
            found.append(np.arange(int(first), int(last or first) + 1))
    return np.concatenate(found)


def run_info(options: argparse.Namespace) -> int:
    """Describe a dataset, a model, or an unfinished run."""
    if info.is_model(options.data):
        return info.describe_model(options)
    if options.card or options.eval is not None:
        raise InputError(f"{options.data}: --card and --eval are for models: give the folder of a run, or a model file")
    if (folder := info.find_run(options.data)) is not None:
        return info.describe_unfinished(options, folder)
    dataset = open_dataset(options.data, options.label)
    about = info.describe(dataset)
    if options.verify:
        about |= info.verify(dataset)
    return show(options, about, info.format_description(about))


def run_features(options: argparse.Namespace) -> int:
    """Map the rows of a dataset, and write the features as a new dataset."""
    from streamsvm.runs.features import make_features

    began, kernel = time.monotonic(), options.kernel or settings.MAPPED_KERNEL
    settings.refuse_for_features(options, kernel)
    known = {"kernel": kernel, "seed": TrainOptions.seed, "memory_bytes": options.memory}
    computed = settings.make_record(TrainOptions, options, **known)
    made_by = settings.make_record(FeatureOptions, options)
    source = open_dataset(options.data, options.label, cache=options.cache)
    report_missing_checkpoint(options)
    with Line() as line:
        add = RowCounter(line).add
        made = make_features(source, options.destination, made_by, computed, add, resume=options.resume)
    dataset: Any = made.dataset
    about = {name: getattr(dataset, name) for name in ("path", "n_rows", "n_features", "n_chunks")}
    about |= {name: dataset.meta[name] for name in ("trace_error", "passes")}
    about |= {name: getattr(made, name) for name in ("read_bytes", "peak_memory_bytes", "projected_memory_bytes")}
    about |= {"map": dataset.meta["features"]["map"], "map_sha256": dataset.features.sha256}
    about |= {"bytes": dataset.nbytes, "seconds": time.monotonic() - began}
    return show(options, about, fill_text("features.txt", **about))


PARTS = ("train", "held_out")
# The options that are passed on unchanged.
PREDICTED = ("overwrite", "probabilities", "row_numbers", "scheduler", "top", "unknown_features")


def run_predict(options: argparse.Namespace) -> int:
    """Write the predictions of a model."""
    from streamsvm.models.predict import predict

    model, model_file = load(options.model), Path(options.model)
    is_printed = str(options.out) == "-"
    if is_printed and options.json:
        raise InputError("--json has no effect with --out -, which prints the predictions as CSV")
    if not is_remote(options.model) and not is_printed:
        refuse_inputs(options.out, [model_file / "model.npz" if model_file.is_dir() else model_file])
    asked = {name: getattr(options, name) for name in PREDICTED}
    read_as = settings.make_record(Columns, options, index=options.id)
    asked["memory_bytes"] = options.memory
    asked |= {"columns": tuple(options.columns), "file_format": options.format, "read_as": read_as}
    with nullcontext() if is_printed else show_readings():
        n_rows = predict(model, options.data, options.out, **asked)
    if is_printed:
        return 0
    facts = {"out": str(options.out), "n_rows": n_rows}
    return show(options, facts, f"{options.out}: {say_count(n_rows, 'prediction')}")


def run_evaluate(options: argparse.Namespace) -> int:
    """Measure a model on labelled rows."""
    if options.curves and not options.json:
        raise InputError("--curves has no effect without --json; `report RUN --eval DATA` draws the curves")
    reading = settings.make_record(Columns, options), options.format, options.unknown_features, options.memory
    with show_readings():
        scores = evaluate(load(options.model), options.data, *reading, options.scheduler)
    if not options.curves:
        scores.pop("curves", None)
    return show(options, scores, info.format_evaluation(scores))


def run_verify(options: argparse.Namespace) -> int:
    """Recompute the objective of a model, and with --dual its lower bound."""
    from streamsvm.verify.dual_file import find_dual_file
    from streamsvm.verify.verify import verify

    model, source = load(options.model), open_dataset(options.data, options.label)
    if options.dual and is_remote(options.model):
        raise InputError(
            f"{hide_secrets(options.model)}: --dual reads the dual point of a run on a local disk; copy the run there"
        )
    dual_file = find_dual_file(Path(options.model))
    found = verify(model, source, options.dual, options.memory, options.threads, dual_file, options.scheduler)
    show(options, found.as_json(), fill_text("verification.txt", **found.as_json()))
    return 0 if found.agrees else 1


def run_report(options: argparse.Namespace) -> int:
    """Write the page about runs."""
    from streamsvm.cli.reports.report import write_report

    how = ("format", "label", *SYNTAX)
    given = [name for name in how if getattr(options, name) not in (None, "auto")]
    if given and options.eval is None:
        raise InputError(f"--{given[0]} has no effect without --eval, which names rows to read")
    read_as = settings.make_record(Columns, options)
    page = write_report(options.runs, options.out, options.eval, read_as, options.format)
    return show(options, {"out": str(page)}, str(page))


def run_export(options: argparse.Namespace) -> int:
    """Export a model, and report what its file leaves out."""
    from streamsvm.models.exports.export import export
    from streamsvm.models.exports.formats import FORMATS

    model, source = load(options.model), Path(options.model)
    if not is_remote(options.model):
        refuse_inputs(options.out, [source / name for name in RUN_FILES] if source.is_dir() else [source])
    notes = export(model, options.out, options.to, options.overwrite)
    facts = {"out": str(options.out), "to": options.to, "notes": list(notes)}
    return show(options, facts, "\n  ".join((f"{options.out}: {FORMATS[options.to].help}", *map(show_text, notes))))


def run_import(options: argparse.Namespace) -> int:
    """Import a model of another program, and report its classes and features."""
    from streamsvm.data.store.destination import check_file, new_file
    from streamsvm.models.exports.libsvm import read_model_file

    refuse_inputs(options.out, [options.file])
    check_file(options.out, options.overwrite)
    model = read_model_file(options.file)
    with new_file(options.out, options.overwrite) as file:
        file.write(model.to_bytes())
    facts = {"out": str(options.out), "n_classes": len(model.classes), "n_features": model.n_features}
    counts = [say_count(len(model.classes), "class")] * (len(model.classes) > 0)
    told = " and ".join((*counts, say_count(model.n_features, "feature")))
    return show(options, facts, f"{options.out}: a {model.kind} model of {told}, without a certificate")


def run_warm_up(options: argparse.Namespace) -> int:
    """Compile the functions of trainings, predictions and readers, and report where they are cached."""
    from streamsvm.data.sources.parsing import PARSERS, compile_parser
    from streamsvm.models.score_rows import compile_all_scores
    from streamsvm.numeric.compilation import CACHE_FOLDER, TEMPORARY
    from streamsvm.numeric.stored_types import load_widening
    from streamsvm.solvers.registry import SOLVERS
    from streamsvm.solvers.set_up import FEATURE_MAPS, compile_all

    if TEMPORARY in CACHE_FOLDER:
        raise InputError("no folder for compiled kernels is writable; set NUMBA_CACHE_DIR to a writable folder")
    began, asked = time.monotonic(), set(options.what or settings.COMPILED)
    groups = {group for method in SOLVERS if method.name in asked for group in method.groups}
    if settings.FEATURES in asked:
        groups.add(FEATURE_MAPS)
    if settings.READERS in asked:
        for parser in PARSERS:
            compile_parser(parser)
        load_widening("float16")
    for group in sorted(groups):
        compile_all((group,), options.is_sparse)
    if settings.SCORES in asked:
        compile_all_scores()
    n_groups = len(groups) + (len(PARSERS) + 1) * (settings.READERS in asked) + (settings.SCORES in asked)
    seconds = time.monotonic() - began
    facts = {"groups": n_groups, "cache": str(CACHE_FOLDER), "seconds": seconds}
    kept = f"{say_count(n_groups, 'group')} of kernels compiled and kept in {CACHE_FOLDER}"
    return show(options, facts, f"{kept} ({seconds:.0f} s)")
