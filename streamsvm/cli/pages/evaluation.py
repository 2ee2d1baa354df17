"""How good models are on labelled rows: ROC and precision-recall curves, confusion matrix, reliability."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from streamsvm.cli.evaluation_text import format_evaluation
from streamsvm.cli.pages.chart import Series, draw_chart
from streamsvm.cli.pages.page import Section, Table

MOST_CLASSES = 20  # of a confusion matrix; of more classes, the most frequent mistakes are listed
Scores = dict[str, Any]


def show_evaluation(measured: Mapping[str, Scores], data: str) -> Section:
    """Return curves of all models in common charts, and a table for each. measured: what `evaluate` returns, by run."""
    alone = len(measured) == 1
    notes = [f"Measured on {data}."]
    tables: list[Table] = []
    for name, scores in measured.items():
        notes.append(("" if alone else f"{name}: ") + format_evaluation(scores).splitlines()[0])
        if "confusion" in scores:
            own = "" if alone else f" ({name})"
            tables += [_list_classes(scores, own), *_list_confusion(scores, own)]
    return Section("Evaluation", notes, [*_draw_curves(measured), *draw_reliability(measured)], tables)


def _draw_curves(measured: Mapping[str, Scores]) -> list[str]:
    """Return the ROC and precision-recall curves of the models that have them."""
    known = {name: scores for name, scores in measured.items() if scores.get("curves")}
    if not known:
        return []
    roc, precision = [], []
    for name, scores in known.items():
        curves, own = scores["curves"], "" if len(known) == 1 else f"{name}, "
        roc.append(
            Series(f"{own}area {scores['roc_area']:.4f}", curves["false_positive_rate"], curves["true_positive_rate"])
        )
        at = f"{own}average precision {scores['average_precision']:.4f}"
        precision.append(Series(at, curves["true_positive_rate"][1:], curves["precision"][1:]))
    roc.append(Series("chance", [0.0, 1.0], [0.0, 1.0], dashed=True))
    rows = next(iter(known.values()))["classes"].values()
    share = list(rows)[1]["rows"] / max(1, sum(part["rows"] for part in rows))
    precision.append(Series("chance", [0.0, 1.0], [share, share], dashed=True))
    return [
        draw_chart("ROC curve", "false positive rate", "true positive rate", roc),
        draw_chart("Precision and recall", "recall", "precision", precision),
    ]


def draw_reliability(measured: Mapping[str, Scores]) -> list[str]:
    """Return the chart of the reliability curves of models that have probabilities."""
    lines = []
    for name, scores in measured.items():
        if curve := scores.get("reliability"):
            predicted, true = ([part[key] for part in curve] for key in ("predicted", "true"))
            lines.append(Series(name, predicted, true))
    if not lines:
        return []
    lines.append(Series("true probabilities", [0.0, 1.0], [0.0, 1.0], dashed=True))
    return [draw_chart("Reliability of the probabilities", "predicted", "share that is true", lines)]


def _list_classes(scores: Scores, own: str) -> Table:
    """Return the measures of each class."""
    rows = []
    for name, part in scores["classes"].items():
        shares = ("-" if part[key] is None else f"{part[key]:.4f}" for key in ("precision", "recall", "f1"))
        rows.append([name, *shares, f"{part['rows']:,}"])
    return Table(rows, ["class", "precision", "recall", "F1", "support"], f"Classes{own}")


def _list_confusion(scores: Scores, own: str) -> list[Table]:
    """Return the confusion matrix, or of many classes the most frequent mistakes."""
    names, counts = list(scores["classes"]), scores["confusion"]
    if len(names) <= MOST_CLASSES:
        rows = [[name, *(f"{n:,}" for n in line)] for name, line in zip(names, counts, strict=True)]
        shades = [[round(n / max(1, sum(line)), 3) for n in line] for line in counts]
        caption = f"Confusion matrix{own}: rows of a class, by the class that is predicted"
        return [Table(rows, ["true class", *names], caption, shades)]
    wrong = [(n, i, j) for i, line in enumerate(counts) for j, n in enumerate(line) if i != j and n]
    most = sorted(wrong, reverse=True)[:MOST_CLASSES]
    rows = [[names[i], names[j], f"{n:,}"] for n, i, j in most]
    return [Table(rows, ["true class", "predicted", "rows"], f"Most frequent mistakes{own}")]


def list_settings(named: Mapping[str, Any]) -> Table:
    """Return settings as a table of names and values."""
    return Table([[name, _show(value)] for name, value in named.items()])


def compare_settings(names: Sequence[str], settings: Sequence[Mapping[str, Any]]) -> Table:
    """Return what differs between the settings of runs, with a column for each run."""
    keys = list(dict.fromkeys(key for each in settings for key in each))
    rows = [[key, *(_show(each.get(key)) for each in settings)] for key in keys]
    return Table([row for row in rows if len(set(row[1:])) > 1], ["setting", *names], is_text=True)


def _show(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
