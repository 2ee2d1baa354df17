"""The `export` and `import` commands: their arguments, and what they do."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from streamsvm.cli.shared_arguments import add_json
from streamsvm.models.exports.formats import FORMATS
from streamsvm.urls import is_remote


def add_export(commands: Any) -> None:
    """Add the command to the parser."""
    export = commands.add_parser(
        "export",
        help="a model -> a file for another program",
        description="Write a model to a file that another program reads, with the scores of the model for raw rows.",
    )
    export.add_argument("model", metavar="MODEL", help="a run's folder or a model file")
    kinds = "; ".join(f"{name}: {each.help}" for name, each in FORMATS.items())
    export.add_argument("--to", choices=list(FORMATS), required=True, help=kinds)
    export.add_argument("--out", metavar="FILE", type=Path, required=True)
    export.add_argument("--overwrite", action="store_true", help="replace a file that is there")
    add_json(export)


def add_import(commands: Any) -> None:
    """Add the command to the parser."""
    imported = commands.add_parser(
        "import",
        help="a model file of LIBLINEAR or LIBSVM -> a model",
        description="Read a linear classifier of LIBLINEAR, or of two classes of LIBSVM, to predict with and to start "
        "from (`train --start-from`).",
    )
    imported.add_argument(
        "file", metavar="FILE", type=Path, help="what LIBLINEAR's train or LIBSVM's svm-train has written"
    )
    imported.add_argument("--out", metavar="MODEL.npz", type=Path, required=True)
    imported.add_argument("--overwrite", action="store_true", help="replace a file that is there")
    add_json(imported)


def export_model(options: argparse.Namespace) -> int:
    """Export a model, say what its file has not, and return the exit status."""
    from streamsvm.cli.info import show_text
    from streamsvm.cli.report import RUN_FILES
    from streamsvm.files import refuse_inputs
    from streamsvm.models.exports.export import export
    from streamsvm.models.model import load

    model, source = load(options.model), Path(options.model)
    if not is_remote(options.model):
        refuse_inputs(options.out, [source / name for name in RUN_FILES] if source.is_dir() else [source])
    notes = export(model, options.out, options.to, options.overwrite)
    if options.json:
        print(json.dumps({"out": str(options.out), "to": options.to, "notes": list(notes)}))
    else:
        print("\n  ".join((f"{options.out}: {FORMATS[options.to].help}", *map(show_text, notes))))
    return 0


def import_model(options: argparse.Namespace) -> int:
    """Import a model, say what it is, and return the exit status."""
    from streamsvm.data.destination import check_file, new_file
    from streamsvm.errors import say_count
    from streamsvm.files import refuse_inputs
    from streamsvm.models.imported import read_liblinear
    from streamsvm.models.imported_libsvm import is_libsvm, read_libsvm

    refuse_inputs(options.out, [options.file])
    check_file(options.out, options.overwrite)
    model = read_libsvm(options.file) if is_libsvm(options.file) else read_liblinear(options.file)
    with new_file(options.out, options.overwrite) as file:
        file.write(model.to_bytes())
    told = {"out": str(options.out), "n_classes": len(model.classes), "n_features": model.n_features}
    counts = f"{say_count(len(model.classes), 'class')} and {say_count(model.n_features, 'feature')}"
    print(json.dumps(told) if options.json else f"{options.out}: a linear model of {counts}, without a certificate")
    return 0
