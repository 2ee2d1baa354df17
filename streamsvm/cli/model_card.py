"""The card of a model, in Markdown: data, certificate, measures, weights and limits, as model and run tell them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.cli.info import tell_encoding
from streamsvm.errors import InputError, say_count
from streamsvm.models.exports.raw_rows import to_weights
from streamsvm.models.model import KernelModel, Model
from streamsvm.models.probabilities import has_probabilities

MOST_WEIGHTS = 10
MOST_CLASSES = 20
SPECIAL = "\\`*_{}[]<>|#"  # characters that mean something in Markdown
CERTIFICATE = ("objective", "lower bound", "gap")  # facts of a model that have a section of their own


def write_card(model: Model, path: str | Path, measured: dict[str, Any] | None = None, data: str | None = None) -> str:
    """Return the card of a model. path: its run or its file. measured: what `evaluate` tells of it on `data`."""
    run = Path(path) if Path(path).is_dir() else Path(path).parent
    settings, result = _read(run / "settings.json"), _read(run / "result.json")
    if result.get("model_sha256") != model.sha256:  # these files are of another model
        settings, result = {}, {}
    facts = model._list_facts()
    sections = {
        "Model": _list({name: facts[name] for name in facts if name not in ("status", *CERTIFICATE)}),
        "Data": _list(_tell_data(model, settings)),
        "Certificate": _tell_certificate(model, result),
        "Measures": _tell_measures(result, measured, data),
        "Largest weights": _tell_weights(model),
        "Limits": _tell_limits(model),
    }
    body = "\n\n".join(f"## {title}\n\n{text}" for title, text in sections.items() if text)
    return f"# {escape(Path(path).resolve().name)}\n\n{body}\n"


def escape(text: object) -> str:
    """Return a text on one line, in which no character means something in Markdown or HTML."""
    plain = "".join(char if char.isprintable() else " " for char in str(text))
    return "".join(f"\\{char}" if char in SPECIAL else char for char in plain)


def _read(file: Path) -> dict[str, Any]:
    """Return a file of the run; nothing for a model's file without its run."""
    with suppress(FileNotFoundError):
        try:
            found = json.loads(file.read_text())
        except ValueError as error:
            raise InputError(f"{file}: missing or damaged ({error})") from error
        return found if isinstance(found, dict) else {}
    return {}


def _list(facts: dict[str, Any]) -> str:
    return "\n".join(f"* {name}: {escape(value)}" for name, value in facts.items() if value is not None)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [head, ["---"] * len(head), *([escape(cell) for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


def _tell_data(model: Model, settings: dict[str, Any]) -> dict[str, Any]:
    rows, classes = model.info.get("problem", {}).get("n_rows"), model.classes.tolist()
    more = f" and {len(classes) - MOST_CLASSES} more" if len(classes) > MOST_CLASSES else ""
    return {
        "dataset": settings.get("data"),
        "SHA-256 of its manifest": settings.get("fingerprint"),
        "rows": None if rows is None else f"{rows:,}",
        "classes": ", ".join(map(str, classes[:MOST_CLASSES])) + more if classes else None,
        "column of the labels": model.info.get("label_column"),
        "scaling of the features": "none" if model.scaling is None else model.scaling.kind,
        "columns of the table": None if model.encoding is None else tell_encoding(model.encoding),
    }


def _tell_certificate(model: Model, result: dict[str, Any]) -> str:
    """Return what is proved of the objective."""
    P, D, bound = (model.info.get(name) for name in ("objective", "lower_bound", "rounding_bound"))
    if P is None:
        return "Nothing is known of the objective: the model was made by another program."
    facts = {
        "status": model.info.get("status"),
        "objective P": f"{P:.8g}",
        "lower bound D of the optimum": None if D is None else f"{D:.8g}",
        "relative gap (P - D) / P": None if D is None else f"{(P - D) / P if P > 0 else 0.0:.2e}",
        "rounding moves P and D by at most": None if bound is None else f"{bound:.2e}",
        "reads of all rows": result.get("passes"),
    }
    proved = "Nothing is proved of the optimum." if D is None else "No model has an objective below D on these rows."
    return f"{_list(facts)}\n\n{proved} `streamsvm verify` computes it anew from the rows."


def _tell_measures(result: dict[str, Any], measured: dict[str, Any] | None, data: str | None) -> str:
    """Return measures on rows that were not trained on, as far as there are any."""
    parts = []
    if (known := result.get("calibration")) is not None:
        facts = {"Brier score": f"{known['brier_score']:.4f}", "log loss": f"{known['log_loss']:.4f}"}
        parts.append(f"Probabilities ({known['method']}) of rows of folds that were held out:\n\n{_list(facts)}")
    if measured is not None:
        facts = {
            name.replace("_", " "): f"{value:,}" if isinstance(value, int) else f"{value:.4f}"
            for name, value in measured.items()
            if isinstance(value, int | float)
        }
        parts.append(f"On {escape(data)}:\n\n{_list(facts)}")
        if isinstance(classes := measured.get("classes"), dict):
            rows = [
                [name, *(_show(each[part]) for part in ("rows", "recall", "precision"))]
                for name, each in classes.items()
            ]
            parts.append(_table(["class", "rows", "recall", "precision"], rows))
    return (
        "\n\n".join(parts)
        or "None were given. `streamsvm info MODEL --card --eval DATA` measures the model on other rows."
    )


def _show(value: float | int | None) -> str:
    return "" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.4f}"


def _tell_weights(model: Model) -> str:
    """Return the features with the largest weights, in units of raw rows; "" for a model without weights."""
    if model.features is not None or (isinstance(model, KernelModel) and model.kernel.name != "linear"):
        return ""
    with suppress(InputError):
        coef = np.atleast_2d(to_weights(model).coef)
        largest = np.argsort(-np.abs(coef).max(axis=0), kind="stable")[:MOST_WEIGHTS]
        names = model.feature_names or tuple(str(j + 1) for j in range(coef.shape[1]))
        head = ["feature", *(map(escape, model.classes.tolist()) if len(coef) > 1 else ["weight"])][: len(coef) + 1]
        return _table(head, ([names[j], *(f"{w:.4g}" for w in coef[:, j])] for j in largest))
    return ""


def _tell_limits(model: Model) -> str:
    """Return what the model does not do, as sentences."""
    n_classes = len(model.classes)
    limits = ["The certificate is about the objective on the training rows, and not about rows to come."]
    if model.problem.predicts_labels and n_classes and not model.problem.has_label_sets:
        limits.append(
            f"Each row is given one of {say_count(n_classes, 'class')}, however unlike the training rows it is."
        )
    if model.encoding is not None:
        limits.append(
            "A category that the training rows did not have counts as none, and `predict` tells how many there were."
        )
    if model.problem.has_classes and not has_probabilities(model):
        limits.append("Scores are no probabilities.")
    limits.append("Nothing is said here of groups of rows for which it may be worse than for others.")
    limits.append("Features are read as float32.")
    return "\n".join(f"* {limit}" for limit in limits)
