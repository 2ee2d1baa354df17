"""The output of `evaluate`: the measures of a model as lines of text."""

from __future__ import annotations

from typing import Any

from streamsvm.cli.info import MOST_LISTED_CLASSES, show_text
from streamsvm.errors import say_count

MOST_CONFUSION_CLASSES = 16  # for more classes, the text has no table of the confusion
MOST_LETTERS = 16  # of a class at the head of a column
SHARES = ("precision", "recall", "f1")


def format_evaluation(scores: dict[str, Any]) -> str:
    """Return the measures of `evaluate` as lines of text."""
    if "swapped_pairs" in scores:
        return _format_ranking(scores)
    if "mean_absolute_error" in scores:
        return _format_regression(scores)
    if "novel_rate" in scores:
        return _format_one_class(scores)
    if "f1_micro" in scores:
        return _format_label_sets(scores)
    area = scores["roc_area"]
    shown = "" if area is None else f", ROC area {area:.4f}, average precision {scores['average_precision']:.4f}"
    lines = [f"accuracy {scores['accuracy']:.4f} on {say_count(scores['n_rows'], 'row')}{shown}"]
    lines += _format_classes(scores["classes"])
    if len(scores["classes"]) <= MOST_CONFUSION_CLASSES:
        lines += _format_confusion(list(map(show_text, scores["classes"])), scores["confusion"])
    if "brier_score" in scores:
        lines += _format_reliability(scores)
    if scores["unknown_labels"]:
        have = "has" if scores["unknown_labels"] == 1 else "have"
        lines.append(f"  {say_count(scores['unknown_labels'], 'row')} {have} a label that the model does not know")
    return "\n".join(lines)


def _format_label_sets(scores: dict[str, Any]) -> str:
    """Return the measures of sets of labels as lines of text; of many labels, those with the lowest F1."""
    at = ", ".join(f"precision at {k} {value:.4f}" for k, value in scores["precision_at"].items())
    lines = [
        f"F1 {scores['f1_micro']:.4f} over all decisions, {scores['f1_macro']:.4f} as the mean of "
        f"{say_count(scores['n_labels'], 'label')}; Hamming loss {scores['hamming_loss']:.6g}",
        f"  {at}; all labels right {scores['subset_accuracy']:.4f}; {say_count(scores['n_rows'], 'row')}",
    ]
    lowest = sorted(scores["labels"].items(), key=lambda one: one[1]["f1"])[:MOST_LISTED_CLASSES]
    for name, part in lowest:
        recall, precision = ("-" if part[key] is None else f"{part[key]:.4f}" for key in ("recall", "precision"))
        told = f"{say_count(part['rows'], 'row')}, F1 {part['f1']:.4f}, recall {recall}, precision {precision}"
        lines.append(f"  label {show_text(name)}: {told}")
    if len(scores["labels"]) > len(lowest):
        lines.append(
            f"  ({say_count(len(scores['labels']) - len(lowest), 'label')} more have a higher F1, or the same)"
        )
    if "brier_score" in scores:
        lines += _format_reliability(scores, "decision")
    return "\n".join(lines)


def _format_reliability(scores: dict[str, Any], what: str = "row") -> list[str]:
    """Return the measures of the probabilities, and a line for each bin of the reliability curve. what: is counted."""
    lines = [f"probabilities: Brier score {scores['brier_score']:.4f}, log loss {scores['log_loss']:.4f}"]
    for part in scores["reliability"]:
        told = f"predicted {part['predicted']:.3f}, true {part['true']:.3f}"
        lines.append(f"  {told}: {say_count(part['rows'], what)}")
    return lines


def _format_regression(scores: dict[str, Any]) -> str:
    """Return the errors of a regression as a line of text."""
    share = "" if scores["r2"] is None else f", R2 {scores['r2']:.4f}"
    mean, root = scores["mean_absolute_error"], scores["root_mean_squared_error"]
    n_rows = say_count(scores["n_rows"], "row")
    return f"mean absolute error {mean:.6g}, root mean squared error {root:.6g}{share} on {n_rows}"


def _format_one_class(scores: dict[str, Any]) -> str:
    """Return the shares of rows that one class calls novel as a line of text."""
    named = {"novel": "novel_rate", "false alarms": "false_alarm_rate", "detected": "detection_rate"}
    shown = [f"{name} {scores[key]:.4f}" for name, key in named.items() if scores[key] is not None]
    area = "" if scores["roc_area"] is None else f", ROC area {scores['roc_area']:.4f}"
    unknown = scores["unknown_labels"]
    tail = f"; {say_count(unknown, 'row')} with labels other than -1 and 1" if unknown else ""
    return f"{', '.join(shown)}{area} on {say_count(scores['n_rows'], 'row')}{tail}"


def _format_classes(classes: dict[str, Any]) -> list[str]:
    """Return a table with the measures of each class, and their mean over the classes that have them."""
    lines = [["class", "precision", "recall", "F1", "support"]]
    for name, part in classes.items():
        lines.append([show_text(name), *(_show_share(part[key]) for key in SHARES), f"{part['rows']:,}"])
    known = [[part[key] for part in classes.values() if part[key] is not None] for key in SHARES]
    means = [_show_share(sum(each) / len(each) if each else None) for each in known]
    return _align([*lines, ["(mean)", *means, f"{sum(part['rows'] for part in classes.values()):,}"]])


def _show_share(share: float | None) -> str:
    return "-" if share is None else f"{share:.4f}"


def _format_confusion(labels: list[str], confusion: list[list[int]]) -> list[str]:
    """Return a table with a line for each true class and a column for each predicted class."""
    lines = [[label, *(f"{n:,}" for n in counts)] for label, counts in zip(labels, confusion, strict=True)]
    return ["  true class, and predicted as:", *_align([["", *map(_shorten, labels)], *lines])]


def _shorten(name: str) -> str:
    """Return a name as the head of a narrow column; the lines of the table have the names in full."""
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 3]}..."


def _align(table: list[list[str]]) -> list[str]:
    """Return the lines of a table, with its columns to the right."""
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    return ["    " + "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True)) for line in table]


def _format_ranking(scores: dict[str, Any]) -> str:
    """Return the measures of a ranking as a line of text."""
    named = {"swapped pairs": "swapped_pairs", "Kendall's tau": "kendall_tau", "ROC area": "roc_area"}
    shown = [f"{name} {scores[key]:.4f}" for name, key in named.items() if scores[key] is not None]
    shown += [f"NDCG@{k} {value:.4f}" for k, value in scores["ndcg"].items() if value is not None]
    queries = "" if scores["n_queries"] is None else f" in {say_count(scores['n_queries'], 'query')}"
    return f"{', '.join(shown) or 'no two ranks to compare'} on {say_count(scores['n_rows'], 'row')}{queries}"
