"""Facts about datasets, models, features, verifications and evaluations, as JSON, lines of text, or a model card."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.cli.output import fill_text, find_template, show, show_text
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.edits import EditedDataset
from streamsvm.data.store.layouts import CsrLayout
from streamsvm.models.evaluate import evaluate, has_probabilities
from streamsvm.models.exports.export import to_weights
from streamsvm.models.model import KernelModel, Model, load
from streamsvm.numeric.encoding import Encoding, read_encoding
from streamsvm.numeric.labels import count_labels
from streamsvm.passes import Progress
from streamsvm.runs.folder import (
    GRID,
    HISTORY_FILE,
    has_checkpoint,
    holds_settings,
    read_history,
    read_run_file,
    read_settings,
)
from streamsvm.runs.results import STATUSES
from streamsvm.system import interrupts
from streamsvm.system.errors import InputError, IntegrityError, list_few, say_count
from streamsvm.system.files import is_remote


def describe(dataset: Dataset) -> dict[str, Any]:
    """Return the shape, classes, density, chunks, bytes, scaling and origin of a dataset."""
    sparse_items = dataset.layout.data.length if isinstance(dataset.layout, CsrLayout) else None
    items = dataset.meta.get("n_items", sparse_items)  # None: unknown without a read of all rows
    classes = None
    if dataset.classes is not None and dataset.class_counts is not None:
        counts = zip(dataset.classes.tolist(), dataset.class_counts.tolist(), strict=True)
        classes = {str(label): count for label, count in counts}
    names, stored = ("path", "n_rows", "n_features", "n_chunks", "dtype", "fingerprint"), ("codec", "shuffle", "source")
    return {
        **{name: getattr(dataset, name) for name in names},
        **{name: dataset.meta.get(name) for name in stored},
        "deleted_rows": len(dataset.deleted) if isinstance(dataset, EditedDataset) else 0,
        "sparse": dataset.is_sparse,
        "density": None if items is None else items / (dataset.n_rows * dataset.n_features),
        "classes": classes,
        "vectors": sorted(dataset.vectors),
        "n_queries": count_values(dataset, "qid"),
        "n_groups": count_values(dataset, "groups"),
        "largest_chunk_rows": int(np.diff(dataset.chunk_starts).max()),
        "bytes": dataset.stored_bytes,
        "shards": any("shards" in entry for entry in (dataset.meta.get("arrays") or {}).values()),
        "scaling": dataset.scaling.kind if dataset.scaling else "none",
        "encoding": None if dataset.encoding is None else dataset.encoding.as_json(),
        "map": None if dataset.features is None else dataset.meta["features"]["map"],
        "manifest": dataset.meta.get("arrays") is not None,
    }


def count_values(dataset: Dataset, name: str) -> int | None:
    """Return the number of different values of a vector, read chunk by chunk; None if the dataset does not have it."""
    if name not in dataset.vectors:
        return None
    found = np.zeros(0, np.int64)
    for index in range(dataset.n_chunks):
        found = np.union1d(found, dataset.read_vector(name, index))
    return len(found)


def describe_encoding(encoding: Encoding) -> str:
    """Describe how the columns of a table became features."""
    of = {
        kind: [each for each in encoding.columns if each.kind == kind] for kind in ("number", "date", "one_hot", "hash")
    }
    parts = [say_count(len(of[kind]), kind) for kind in ("number", "date") if of[kind]]
    n_categories = sum(len(column.categories) for column in of["one_hot"])
    made = {"one_hot": say_count(n_categories, "category"), "hash": f"{encoding.n_hashed:,} hashed features"}
    named = {kind: list_few(show_text(each.name) for each in of[kind]) for kind in made}
    parts += [f"{made[kind]} of {named[kind]}" for kind in made if named[kind]]
    if encoding.missing is not None:
        n_indicators = sum(column.indicator for column in encoding.columns)
        more = f" and {say_count(n_indicators, 'indicator')}" if n_indicators else ""
        parts.append(f"missing values: {'zero' if encoding.missing == 'indicator' else encoding.missing}{more}")
    return "; ".join(parts) + ("" if encoding.index is None else f"; rows named by {show_text(encoding.index)}")


def verify(dataset: Dataset) -> dict[str, Any]:
    """Read all rows and their groups as training would, and compare them with the manifest.

    IntegrityError names the damaged or different part. A dataset without a manifest is read, but not compared.
    """
    dataset = dataset.read_groups()
    n_rows, counts = 0, np.zeros(0 if dataset.classes is None else len(dataset.classes), np.int64)
    for index in range(dataset.n_chunks):
        for rows in dataset.tiles(index):
            n_rows += rows.n_rows
            count_labels(rows, counts)
        interrupts.check()
    dataset.check_parts()
    if dataset.class_counts is not None and not np.array_equal(counts, dataset.class_counts):
        raise IntegrityError(f"{dataset.path}/zarr.json: 'class_counts' differ from the counts of the labels")
    return {"verified_rows": n_rows, "verified": dataset.meta.get("arrays") is not None}


def format_description(about: dict[str, Any], template: str = "dataset.txt") -> str:
    """Return the facts of `describe`, and any facts added by the caller, as lines of text."""
    encoded = None if about["encoding"] is None else describe_encoding(read_encoding(about["encoding"]))
    return fill_text(template, **about, encoded=encoded)


MOST_CONFUSION_CLASSES = 16  # with more classes, no confusion matrix is shown
MOST_LETTERS = 16  # maximum number of letters of a class name in a column heading
SHARES, CLASS_MEASURES = ("precision", "recall", "f1"), ["class", "precision", "recall", "F1", "support"]


def format_evaluation(scores: dict[str, Any]) -> str:
    """Return the measures of `evaluate` as lines of text."""
    if "confusion" not in scores:
        return fill_text("evaluation.txt", scores=scores)
    classes, confusion = scores["classes"], list[list[str]]()
    known = [[part[key] for part in classes.values() if part[key] is not None] for key in SHARES]
    means = [_show_share(sum(each) / len(each) if each else None) for each in known]
    means.append(f"{sum(part['rows'] for part in classes.values()):,}")
    by_class = _align([CLASS_MEASURES, *list_class_measures(classes), ["(mean)", *means]])
    if len(names := list(map(show_text, classes))) <= MOST_CONFUSION_CLASSES:
        heads = [name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 3]}..." for name in names]
        counts = zip(names, scores["confusion"], strict=True)
        confusion = [["", *heads], *([name, *(f"{n:,}" for n in line)] for name, line in counts)]
    return fill_text("evaluation.txt", scores=scores, by_class=by_class, confusion=_align(confusion))


def list_class_measures(classes: dict[str, Any]) -> list[list[str]]:
    """Return the measures of each class as strings, in the order of CLASS_MEASURES."""
    shown = {show_text(name): part for name, part in classes.items()}
    return [[name, *(_show_share(part[key]) for key in SHARES), f"{part['rows']:,}"] for name, part in shown.items()]


def _show_share(share: float | None) -> str:
    return "-" if share is None else f"{share:.4f}"


def _align(table: list[list[str]]) -> list[str]:
    """Return the lines of a table with right-aligned columns."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in table]


def is_model(path: str) -> bool:
    """Return whether a path is a model file or the folder of a run with a model."""
    if is_remote(path):
        return path.endswith(".npz")
    return (Path(path).is_file() and path.endswith(".npz")) or (Path(path) / "model.npz").is_file()


def describe_model(options: argparse.Namespace) -> int:
    """Print the facts of a model, or its card; return the exit status 0. Raises InputError for options of datasets."""
    if options.verify or options.label is not None:
        raise InputError(f"{options.data}: --verify and --label are for datasets; use `streamsvm verify` for a model")
    if options.eval is not None and not options.card:
        raise InputError("--eval has no effect without --card")
    model = load(options.data)
    if options.card:
        measured = None if options.eval is None else evaluate(model, options.eval)
        print(write_card(model, options.data, measured, options.eval).rstrip("\n"))
        return 0
    known = {name: value for name, value in model._list_facts().items() if value is not None}
    width = max(map(len, known))
    lines = [show_text(options.data), *(f"  {name:{width}}  {show_text(value)}" for name, value in known.items())]
    facts, folder = {"path": options.data, "n_features": model.n_features, **model.info}, find_run(options.data)
    status = STATUSES.get(str(model.info.get("status")))
    if folder is not None and status is not None and not status.is_final:
        way, _ = _find_way(options.data, folder)
        facts, lines = {**facts, "continue": way}, [*lines, f"{GO_ON}: {show_text(way)}"]
    return show(options, facts, "\n".join(lines))


OF_LAST_STEP = ("passes", "seconds", "objective", "lower_bound", "relative_gap")
GO_ON = "if it is no longer running, continue it with this command and the options of the run"


def find_run(path: str) -> Path | None:
    """Return the folder with the settings of a run: the folder of the grid in this path, or this path; or None."""
    folders = [] if is_remote(path) else [Path(path) / GRID, Path(path)]
    return next((folder for folder in folders if holds_settings(folder)), None)


def describe_unfinished(options: argparse.Namespace, folder: Path) -> int:
    """Print what a run is that has no model yet, its last step, and how to continue it; return the exit status 0."""
    if options.verify or options.label is not None:
        raise InputError(f"{options.data}: an unfinished run; --verify and --label are for datasets")
    settings, (way, resumes) = read_settings(folder), _find_way(options.data, folder)
    steps = read_history(folder) if (folder / HISTORY_FILE).exists() else []
    last = {name: steps[-1].get(name) for name in OF_LAST_STEP} if steps else {}
    told = {name: settings.get(name) for name in ("data", "solver", "C")} | {"steps": len(steps) or None, **last}
    kept = "its checkpoint is kept" if resumes else "there is no checkpoint yet, so it starts again"
    shown = {name: value for name, value in told.items() if value is not None}
    lines = [f"{show_text(options.data)}: a run that has not ended; {kept}"]
    lines += [f"  {name:13}  {show_text(value)}" for name, value in shown.items()]
    lines.append(f"{GO_ON}: {show_text(way)}")
    facts = {"path": options.data, "status": "unfinished", **shown, "resumable": resumes, "continue": way}
    return show(options, facts, "\n".join(lines))


def _find_way(path: str, folder: Path) -> tuple[str, bool]:
    """Return the command that continues a run, and whether it resumes from a checkpoint."""
    command, data = "train" if folder == Path(path) else "tune", read_settings(folder).get("data")
    resumes = has_checkpoint(Path(path), command)
    return shlex.join(["streamsvm", command, str(data), "--out", path, *(["--resume"] if resumes else [])]), resumes


MOST_WEIGHTS = 10
SPECIAL = "\\`*_{}[]<>|#"  # characters of Markdown's syntax
CERTIFICATE = ("status", "objective", "lower bound", "gap")  # model facts that have their own section


def write_card(model: Model, path: str | Path, measured: dict[str, Any] | None = None, data: str | None = None) -> str:
    """Return the card of a model. path: its run or file. measured: the result of `evaluate` on `data`."""
    run = Path(path) if Path(path).is_dir() else Path(path).parent
    files = (run / name for name in ("settings.json", "result.json"))
    found = (read_run_file(file) if file.exists() else {} for file in files)
    settings, result = (each if isinstance(each, dict) else {} for each in found)
    if result.get("model_sha256") != model.sha256:  # the files belong to another model
        settings, result = {}, {}
    P, D = model.info.get("objective"), model.info.get("lower_bound")
    card: str = find_template("card.md", escape).render(
        name=Path(path).resolve().name,
        model=model,
        facts={name: value for name, value in model._list_facts().items() if name not in CERTIFICATE},
        settings=settings,
        result=result,
        encoding=None if model.encoding is None else describe_encoding(model.encoding),
        gap=None if P is None else Progress(P, D, 0).relative_gap,
        measured=measured,
        measured_on=data,
        weights=_list_weights(model),
        has_probabilities=has_probabilities(model),
    )
    return f"{card.rstrip()}\n"


def escape(text: object) -> str:
    """Return a string on one line, with the syntax of Markdown and HTML escaped."""
    plain = "".join(char if char.isprintable() else " " for char in str(text))
    return "".join(f"\\{char}" if char in SPECIAL else char for char in plain)


def _list_weights(model: Model) -> list[list[str]]:
    """Return a table of the largest weights for raw rows, headings first; empty for a model without weights."""
    if model.features is not None or (isinstance(model, KernelModel) and model.kernel.name != "linear"):
        return []
    try:
        coef = np.atleast_2d(to_weights(model).coef)
    except InputError:
        return []
    largest = np.argsort(-np.abs(coef).max(axis=0), kind="stable")[:MOST_WEIGHTS]
    names = model.feature_names or tuple(str(j + 1) for j in range(coef.shape[1]))
    head = ["feature", *(map(str, model.classes.tolist()) if len(coef) > 1 else ["weight"])][: len(coef) + 1]
    return [head, *([names[j], *(f"{w:.4g}" for w in coef[:, j])] for j in largest)]
