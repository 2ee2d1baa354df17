"""`info` of a model: its facts in lines, as JSON, or as a card in Markdown."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from streamsvm.errors import InputError
from streamsvm.urls import is_remote


def is_model(path: str) -> bool:
    """Tell whether a path is that of a model file or of a run's folder."""
    if is_remote(path):
        return path.endswith(".npz")
    return (Path(path).is_file() and path.endswith(".npz")) or (Path(path) / "model.npz").is_file()


def tell_model(options: argparse.Namespace) -> str:
    """Return what `info` prints of a model. InputError for options that are for datasets."""
    from streamsvm.cli.info import show_text
    from streamsvm.models.model import load

    if options.verify or options.label is not None:
        raise InputError(f"{options.data}: --verify and --label are for datasets; `streamsvm verify` is for models")
    if options.eval is not None and not options.card:
        raise InputError("--eval is for --card")
    model = load(options.data)
    if options.card:
        return _make_card(options)
    facts = {name: value for name, value in model._list_facts().items() if value is not None}
    if options.json:
        return json.dumps({"path": options.data, "n_features": model.n_features, **model.info})
    width = max(map(len, facts))
    return "\n".join(
        [show_text(options.data), *(f"  {name:{width}}  {show_text(value)}" for name, value in facts.items())]
    )


def _make_card(options: argparse.Namespace) -> str:
    from streamsvm.cli.model_card import write_card
    from streamsvm.models.evaluate import evaluate
    from streamsvm.models.model import load

    model = load(options.data)
    measured = None if options.eval is None else evaluate(model, options.eval)
    return write_card(model, options.data, measured, options.eval).rstrip("\n")
