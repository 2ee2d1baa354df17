"""The `export` command: its arguments, and what it does."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from streamsvm.models.exports.formats import FORMATS


def add_export(commands: Any) -> None:
    """Add the command to the parser."""
    export = commands.add_parser(
        "export",
        help="a model -> a file for another program",
        description="Write a model to a file that another program reads, with the scores of the model for raw rows.",
    )
    export.add_argument("model", metavar="MODEL", type=Path, help="a run's folder or a model file")
    kinds = "; ".join(f"{name}: {each.help}" for name, each in FORMATS.items())
    export.add_argument("--to", choices=list(FORMATS), required=True, help=kinds)
    export.add_argument("--out", metavar="FILE", type=Path, required=True)
    export.add_argument("--overwrite", action="store_true", help="replace a file that is there")


def export_model(options: argparse.Namespace) -> int:
    """Export a model, say what its file has not, and return the exit status."""
    from streamsvm.cli.info import show_text
    from streamsvm.cli.report import RUN_FILES
    from streamsvm.files import refuse_inputs
    from streamsvm.models.exports.export import export
    from streamsvm.models.model import load

    model, source = load(options.model), options.model
    refuse_inputs(options.out, [source / name for name in RUN_FILES] if source.is_dir() else [source])
    notes = export(model, options.out, options.to, options.overwrite)
    print(f"{options.out}: {FORMATS[options.to].help}")
    for note in notes:
        print(f"  {show_text(note)}")
    return 0
