"""The interpretation of a command's arguments: parsed values, records of options, and refusals of unused options.

An argument counts as given if it is neither None nor False, the defaults of the arguments that are checked here. The
records of kernels, solvers and maps list the options that each of them reads; a given option that is not read is
refused.
"""

from __future__ import annotations

import argparse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from streamsvm.kernels.names import PARAMETERS
from streamsvm.problems.registry import PROBLEMS, name_losses, settle_multi_class
from streamsvm.solvers.options import READS, FeatureOptions, refuse_unread
from streamsvm.solvers.registry import SOLVERS, SolverRecord, find_solver
from streamsvm.system.errors import InputError
from streamsvm.system.files import is_remote
from streamsvm.system.machine import default_threads, parse_bytes

if TYPE_CHECKING:
    from streamsvm.data.tables.columns import Columns
    from streamsvm.ingestion.ingest import IngestOptions
    from streamsvm.options import TrainOptions

T = TypeVar("T")
MAPPED_KERNEL = "rbf"  # the default of feature maps


def read_count(text: str, name: str = "the argument") -> int:
    """Return a text as a whole number of at least 1. name: the name of the argument in messages."""
    if not text.isdecimal() or int(text) < 1:
        raise InputError(f"{name} is {text!r}; a whole number of at least 1 is expected")
    return int(text)


def read_numbers(text: str) -> tuple[float, ...]:
    """Return the numbers in a text such as "0.1,1,10"."""
    try:
        return tuple(map(float, text.split(",")))
    except ValueError:
        raise InputError(f"{text!r}: write numbers, with commas between them") from None


def read_losses(text: str) -> tuple[str, ...]:
    """Return the names of losses in a text such as "hinge,logistic"."""
    for name in text.split(","):
        if name not in name_losses():
            raise InputError(f"{name!r}: choose from {', '.join(name_losses())}")
    return tuple(text.split(","))


def read_gamma(text: str) -> float | str:
    """Return the value of --gamma: a number, "scale" or "auto"."""
    try:
        return text if text in ("scale", "auto") else float(text)
    except ValueError:
        raise InputError(f"{text!r}: write a number, scale or auto") from None


def read_gammas(text: str) -> tuple[float | str, ...]:
    """Return the values of gamma in a text such as "scale,0.1,1"."""
    try:
        return tuple(map(read_gamma, text.split(",")))
    except InputError:
        raise InputError(f"{text!r}: write numbers, scale or auto, with commas between them") from None


def read_place(text: str) -> str | Path:
    """Return the URL of an object store as it is, and the path of a local file as a Path."""
    return text if is_remote(text) else Path(text)


def read_shuffle(text: str) -> int | None:
    """Return the seed that --shuffle gives, or None for "no"."""
    if text == "no":
        return None
    if not text.isdecimal():
        raise InputError(f"--shuffle {text!r}: give a seed (a whole number) or no")
    return int(text)


def read_bytes(text: str | None) -> int | None:
    """Return the bytes of a size such as "2GB"; None if it was not given."""
    return None if text is None else parse_bytes(text)


def read_workers(options: argparse.Namespace) -> int | None:
    """Return the number of worker processes of --workers, or None for threads in this process."""
    if options.workers == "auto":
        return default_threads()
    return None if options.workers is None else read_count(options.workers, "--workers")


def read_class_weight(text: str | None) -> dict[str, float] | str | None:
    """Return the value of --class-weight: weights by label, "balanced", or None if it is not given."""
    if text is None or text == "balanced":
        return text
    try:
        return {label: float(weight) for label, weight in (part.rsplit("=", 1) for part in text.split(","))}
    except ValueError:
        raise InputError(f"--class-weight {text!r}: write balanced, or label=weight,label=weight") from None


def read_own_options(texts: Sequence[str]) -> dict[str, str]:
    """Return the values of --option by name, as strings that the solver itself parses and checks."""
    for text in texts:
        if "=" not in text:
            raise InputError(f"--option {text!r}: write name=value")
    return dict(text.split("=", 1) for text in texts)


def split_names(texts: Sequence[str]) -> tuple[str, ...]:
    """Return the names in texts such as "a,b"."""
    return tuple(name for text in texts for name in text.split(",") if name)


def make_record(kind: type[T], arguments: argparse.Namespace, /, **known: Any) -> T:
    """Return a record of options from known values, the arguments named like its fields, and its defaults.

    Tuples are ignored, since they hold the values of a grid.
    """
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    given = {name: getattr(arguments, name, None) for name in names}
    given = {name: value for name, value in given.items() if value is not None and not isinstance(value, tuple)}
    return kind(**given | known)


def read_columns(options: argparse.Namespace) -> Columns:
    """Return the roles of the columns of a table."""
    from streamsvm.data.tables.columns import Columns

    lists = {name: split_names(texts) for name, texts in vars(options).items() if isinstance(texts, list)}
    lists.pop("sources")
    return make_record(Columns, options, require_label=not options.unlabelled, **lists)


def read_file_options(options: argparse.Namespace) -> dict[str, Any]:
    """Return the arguments for reading a file, under the parameter names of the readers."""
    return {"file_format": options.format, **{k: getattr(options, k) for k in ("label", "header", "sep", "decimal")}}


def read_ingest_options(options: argparse.Namespace) -> IngestOptions:
    """Return the options with which `ingest` writes a dataset."""
    from streamsvm.ingestion.ingest import IngestOptions

    sizes = {name: read_bytes(getattr(options, name)) for name in ("chunk_bytes", "shard_bytes")}
    return make_record(IngestOptions, options, shuffle=read_shuffle(options.shuffle), **sizes)


def read_settings(options: argparse.Namespace) -> TrainOptions:
    """Return the settings of `train` or `tune`; those with a grid of values, such as several C, keep their defaults."""
    from streamsvm.options import TrainOptions

    options.task, options.multi_class = settle_multi_class(options.task, options.multi_class)
    kernel = None if options.map else options.kernel
    method = find_solver(options.solver, options.task, options.loss, options.penalty, kernel)
    known = {"kernel": options.kernel or (MAPPED_KERNEL if options.map else method.kernels[0])}
    own = read_own_options(options.option)
    refuse_for_training(options, method, known["kernel"], own)
    class_weight, limits = read_class_weight(options.class_weight), read_limits(options)
    return make_record(TrainOptions, options, class_weight=class_weight, options=own, **known, **limits)


def read_limits(options: argparse.Namespace) -> dict[str, Any]:
    """Return the memory limit and the number of workers, under the names of TrainOptions."""
    return {"memory_bytes": read_bytes(options.memory), "workers": read_workers(options)}


def read_map(options: argparse.Namespace) -> FeatureOptions | None:
    """Return the feature map of --map, or None."""
    return None if options.map is None else make_record(FeatureOptions, options, overwrite=False)


def read_axes(options: argparse.Namespace) -> dict[str, list[Any]]:
    """Return the losses and other settings with several values for `tune` to try, by name.

    The first value becomes the setting. InputError if another option has no effect with one of the losses.
    """
    from streamsvm.runs.tune import AXES

    axes: dict[str, list[Any]] = {}
    for name in AXES:
        values = list(getattr(options, name) or ())
        setattr(options, name, values[0] if values else None)
        if len(values) > 1:
            axes[name] = list(map(read_class_weight, values)) if name == "class_weight" else values
    for loss in axes.get("loss", []):
        read_settings(argparse.Namespace(**{**vars(options), "loss": loss}))
    return axes


Readers = Mapping[str, Collection[str]]  # for each choice, the names of the options that are read

SOLVER_READS: dict[str, set[str]] = {}  # Several solvers may share a name.
for each in SOLVERS:
    SOLVER_READS.setdefault(each.name, set()).update(each.reads)
# The arguments that a map reads during training, without the seed, which training itself reads.
MAP_READS: dict[str, tuple[str, ...]] = {name: tuple(x for x in READS[name] if x != "seed") for name in READS}


def refuse_for_training(options: argparse.Namespace, method: SolverRecord, kernel: str, own: Mapping[str, str]) -> None:
    """Raise InputError for an option of `train` or `tune` that has no effect. own: the values of --option."""
    if options.map is None:
        _refuse(options, "", "a training without --map", {"a training without --map": (), "--map": ("rank",)})
    else:
        _refuse(options, "--map", options.map, MAP_READS)
    _refuse(options, "--kernel", kernel, PARAMETERS)
    chosen = method.name if options.task == next(iter(PROBLEMS)) else f"{method.name} and --task {options.task}"
    _refuse(options, "--solver", chosen, {**SOLVER_READS, chosen: method.reads})
    given = {_name(name): words for name, words in method.reads.items() if _was_given(getattr(options, name))}
    refuse_unread(method.options, own, "linear" if options.map else kernel, given)
    _refuse_for_engine(options)
    if getattr(options, "plan", False):
        _refuse(options, "", "--plan", {"--plan": (), "a training": ("resume", "overwrite")})


def refuse_for_features(options: argparse.Namespace, kernel: str) -> None:
    """Raise InputError for an option of `features` that has no effect with the map and the kernel."""
    _refuse(options, "--map", options.map, READS)
    _refuse(options, "--kernel", kernel, PARAMETERS)
    _refuse_for_engine(options)


def refuse_for_ingest(options: argparse.Namespace) -> None:
    """Raise InputError for an option of `ingest` that has no effect with or without workers."""
    here, there = "one process", "--workers and --scheduler"
    if options.workers is None and options.scheduler is None:
        _refuse(options, "", here, {here: (), there: ("memory", "resume")})
    else:
        _refuse(options, "", there, {there: (), here: ("like", "append")})
    _refuse_for_engine(options)


def _refuse_for_engine(options: argparse.Namespace) -> None:
    if options.scheduler is not None:
        _refuse(options, "", "--scheduler", {"--scheduler": (), "processes on this machine": ("workers",)})


def _refuse(options: argparse.Namespace, flag: str, chosen: str, readers: Readers) -> None:
    """Raise InputError for a given option that is read with other choices of a flag, but not with the chosen one.

    flag: empty if the choices are described in words.
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
