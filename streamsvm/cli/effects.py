"""Options that would have no effect are refused. The records of kernels, methods and maps say what each of them reads.

An option was given if it is not None, which is the default of the options that are judged here. The engine's and the
plan's options are judged by records of the same form.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping

from streamsvm.errors import InputError
from streamsvm.methods.feature_map.options import READS
from streamsvm.methods.method import Method
from streamsvm.methods.option_fields import refuse_unread
from streamsvm.methods.registry import METHODS
from streamsvm.numeric.kernel_codes import PARAMETERS
from streamsvm.problems.registry import PROBLEMS

Readers = Mapping[str, Collection[str]]  # the names of the options that are read with each choice

METHOD_READS: dict[str, set[str]] = {}  # Several methods may share a name.
for each in METHODS:
    METHOD_READS.setdefault(each.name, set()).update(each.reads)
ENGINE_READS = {"--scheduler": (), "processes on this machine": ("workers",)}
INGEST_READS = {"one process": (), "--workers and --scheduler": ("memory", "resume")}
INGEST_ON_WORKERS_READS = {"--workers and --scheduler": (), "one process": ("like", "append")}
PLAN_READS = {"--plan": (), "a training": ("resume", "overwrite")}
# Of a map in a training: the training itself reads the seed, and the kernel's options where there is no map.
MAP_READS: dict[str, tuple[str, ...]] = {name: tuple(x for x in READS[name] if x != "seed") for name in READS}
WITHOUT_MAP = {"a training without --map": (), "--map": ("rank",)}


def refuse_for_training(options: argparse.Namespace, method: Method, kernel: str, own: Mapping[str, str]) -> None:
    """Raise InputError for an option of `train` or `tune` that has no effect with the others. own: --option by name."""
    if options.map is None:
        _refuse(options, "", "a training without --map", WITHOUT_MAP)
    else:
        _refuse(options, "--map", options.map, MAP_READS)
    _refuse(options, "--kernel", kernel, PARAMETERS)
    chosen = method.name if options.task == next(iter(PROBLEMS)) else f"{method.name} and --task {options.task}"
    _refuse(options, "--solver", chosen, {**METHOD_READS, chosen: method.reads})
    given = {_name(name): words for name, words in method.reads.items() if _was_given(getattr(options, name))}
    refuse_unread(method.options, own, "linear" if options.map else kernel, given)
    _refuse_for_engine(options)
    if getattr(options, "plan", False):
        _refuse(options, "", "--plan", PLAN_READS)


def refuse_for_features(options: argparse.Namespace, kernel: str) -> None:
    """Raise InputError for an option of `features` that has no effect with the map and the kernel."""
    _refuse(options, "--map", options.map, READS)
    _refuse(options, "--kernel", kernel, PARAMETERS)
    _refuse_for_engine(options)


def refuse_for_ingest(options: argparse.Namespace) -> None:
    """Raise InputError for an option of `ingest` that has no effect with or without workers."""
    if options.workers is None and options.scheduler is None:
        _refuse(options, "", "one process", INGEST_READS)
    else:
        _refuse(options, "", "--workers and --scheduler", INGEST_ON_WORKERS_READS)
    _refuse_for_engine(options)


def _refuse_for_engine(options: argparse.Namespace) -> None:
    if options.scheduler is not None:
        _refuse(options, "", "--scheduler", ENGINE_READS)


def _refuse(options: argparse.Namespace, flag: str, chosen: str, readers: Readers) -> None:
    """Raise InputError for an option that was given, and that is read with other choices of a flag, but not with this.

    A choice without a flag is named in words.
    """
    for name in sorted({name for names in readers.values() for name in names}):
        if name in readers[chosen] or not _was_given(getattr(options, name)):
            continue
        able = [choice for choice, names in readers.items() if name in names]
        others = f"{', '.join(able[:-1])} and {able[-1]}" if len(able) > 1 else able[0]
        raise InputError(
            f"{_name(name)} has no effect with {f'{flag} {chosen}'.strip()}: leave it out; it is for "
            f"{f'{flag} {others}'.strip()}"
        )


def _name(name: str) -> str:
    """Return the option as a user writes it."""
    return f"--{name.replace('_', '-')}"


def _was_given(value: object) -> bool:
    return value is not None and value is not False and value != ()
