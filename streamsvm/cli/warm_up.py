"""`warm-up`: compiles what trainings, predictions and readers need, so that later commands only load it."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from streamsvm.cli.shared_arguments import add_json
from streamsvm.errors import InputError, say_count


def add_warm_up(commands: Any) -> None:
    """Add the command."""
    told = "compile all kernels, which is otherwise done when they are first needed; for images of containers"
    add_json(commands.add_parser("warm-up", help=told))


def warm_up(options: argparse.Namespace) -> int:
    """Compile every group of kernels, and tell where they are kept."""
    from streamsvm.data.compilation import PARSERS, compile_parser
    from streamsvm.methods.registry import METHODS
    from streamsvm.methods.warm_up import FEATURE_MAPS, compile_all
    from streamsvm.models.compilation import compile_all_scores
    from streamsvm.numeric.cache_folder import CACHE_FOLDER, TEMPORARY
    from streamsvm.numeric.narrow import load_widening

    if TEMPORARY in CACHE_FOLDER:
        raise InputError(
            "no folder for compiled kernels can be written to, so none would be kept; name one by the variable "
            "NUMBA_CACHE_DIR"
        )
    began = time.monotonic()
    for parser in PARSERS:
        compile_parser(parser)
    load_widening("float16")
    of_methods = [group for method in METHODS for group in method.compiled or (method.name,)]
    groups = list(dict.fromkeys((*of_methods, FEATURE_MAPS)))
    for group in groups:
        compile_all((group,))
    compile_all_scores()
    n_groups, seconds = len(PARSERS) + len(groups) + 2, time.monotonic() - began
    told = json.dumps({"groups": n_groups, "cache": str(CACHE_FOLDER), "seconds": seconds}) if options.json else None
    kept = f"{say_count(n_groups, 'group')} of kernels are compiled, and kept in {CACHE_FOLDER}"
    print(told or f"{kept} ({seconds:.0f} s)")
    return 0
