"""The interpretation of a command's arguments: parsed values, records of options, and refusals of unused options.

An argument counts as given if it is neither None nor False, the defaults of the arguments that are checked here. The
records of kernels, solvers and maps list the options that each kernel, solver or map reads. A given option that is not
read is refused.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from streamsvm.kernels.names import PARAMETERS
from streamsvm.problems.registry import PROBLEMS, name_losses, name_task, settle_multi_class
from streamsvm.solvers.options import READS, FeatureOptions, refuse_unread
from streamsvm.solvers.registry import SOLVERS, SolverRecord, find_solver, name_solvers
from streamsvm.system.errors import InputError
from streamsvm.system.files import is_remote
from streamsvm.system.machine import default_threads

if TYPE_CHECKING:
    from streamsvm.options import TrainOptions

T = TypeVar("T")
MAPPED_KERNEL = "rbf"  # the default of feature maps


def read_count(text: str, least: int = 1) -> int:
    """Parse a whole number that is large enough."""
    if not text.isdecimal() or int(text) < least:
        raise InputError(f"{text!r}: a whole number of at least {least} is expected")
    return int(text)


def read_gamma(text: str) -> float | str:
    """Return the value of --gamma: a number, "scale" or "auto"."""
    try:
        return text if text in ("scale", "auto") else float(text)
    except ValueError:
        raise InputError(f"{text!r}: write a number, scale or auto") from None


def _make_list_reader(read: Callable[[str], T], expected: str) -> Callable[[str], tuple[T, ...]]:
    """Return a reader of values that are separated by commas."""

    def read_all(text: str) -> tuple[T, ...]:
        try:
            return tuple(map(read, text.split(",")))
        except ValueError:
            raise InputError(f"{text!r}: write {expected}, separated by commas") from None

    return read_all


read_numbers = _make_list_reader(float, "numbers")
read_gammas = _make_list_reader(read_gamma, "numbers, scale or auto")


def read_losses(text: str) -> tuple[str, ...]:
    """Parse the names of losses from a string like "hinge,logistic"."""
    for name in text.split(","):
        if name not in name_losses():
            raise InputError(f"{name!r}: choose from {', '.join(name_losses())}")
    return tuple(text.split(","))


READERS, SCORES, FEATURES = "readers", "scores", "feature-maps"
COMPILED = (*name_solvers(), READERS, SCORES, FEATURES)  # what warm-up compiles


def read_compiled(text: str) -> str:
    """Return the name of a solver, or of another part of what warm-up compiles."""
    if text not in COMPILED:
        raise InputError(f"{text!r}: choose from {', '.join(COMPILED)}")
    return text


def read_names(text: str) -> list[str]:
    """Return the names in a string such as "a,b"."""
    return [name for name in text.split(",") if name]


def read_place(text: str) -> str | Path:
    """Return the URL of an object store as it is, and the path of a local file as a Path."""
    return text if is_remote(text) else Path(text)


def read_shuffle(text: str) -> int | None:
    """Return the seed that --shuffle gives, or None for "no"."""
    if text != "no" and not text.isdecimal():
        raise InputError(f"{text!r}: give a seed (a whole number) or no")
    return None if text == "no" else int(text)


def read_workers(text: str) -> int:
    """Return the number of worker processes of --workers."""
    return default_threads() if text == "auto" else read_count(text)


def read_class_weight(text: str) -> dict[str, float] | str:
    """Return the value of --class-weight: weights by label, or "balanced"."""
    if text == "balanced":
        return text
    try:
        return {label: float(weight) for label, weight in (part.rsplit("=", 1) for part in text.split(","))}
    except ValueError:
        raise InputError(f"{text!r}: write balanced, or label=weight,label=weight") from None


def read_pair(text: str) -> tuple[str, str]:
    """Return the name and the value in a string such as "name=value"."""
    name, equals, value = text.partition("=")
    if not equals:
        raise InputError(f"{text!r}: write name=value")
    return name, value


def make_record(kind: type[T], arguments: argparse.Namespace, /, **known: Any) -> T:
    """Return a record of options from known values, the arguments named like its fields, and its defaults.

    Tuples are ignored, since they hold the values of a grid. Lists become tuples.
    """
    names = [each.name for each in fields(kind)]  # type: ignore[arg-type]
    given = {name: getattr(arguments, name, None) for name in names}
    given = {name: value for name, value in given.items() if value is not None and not isinstance(value, tuple)}
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in given.items()}
    return kind(**given | known)


def read_settings(options: argparse.Namespace) -> TrainOptions:
    """Return the settings of `train` or `tune`. A setting with several values, such as several C, keeps its default."""
    from streamsvm.options import TrainOptions

    options.task, options.multi_class = settle_multi_class(options.task, options.multi_class)
    kernel = None if options.map else options.kernel
    method = find_solver(options.solver, options.task, options.loss, options.penalty, kernel)
    default = PROBLEMS[options.task].kernel
    default = MAPPED_KERNEL if options.map else default if default in method.kernels else method.kernels[0]
    kernel, own = options.kernel or default, dict(options.option)
    refuse_for_training(options, method, kernel, own)
    return make_record(TrainOptions, options, kernel=kernel, options=own, memory_bytes=options.memory)


def read_map(options: argparse.Namespace) -> FeatureOptions | None:
    """Return the feature map of --map, or None."""
    return None if options.map is None else make_record(FeatureOptions, options, overwrite=False)


def read_axes(options: argparse.Namespace) -> dict[str, list[Any]]:
    """Return the losses and other settings with several values for `tune` to try, by name.

    The first value becomes the setting. Raises InputError if another option has no effect with one of the losses.
    """
    from streamsvm.runs.tune import AXES

    given = {name: list(getattr(options, name) or ()) for name in AXES}
    vars(options).update({name: values[0] if values else None for name, values in given.items()})
    axes = {name: values for name, values in given.items() if len(values) > 1}
    for loss in axes.get("loss", []):
        read_settings(argparse.Namespace(**{**vars(options), "loss": loss}))
    return axes


Readers = Mapping[str, Collection[str]]  # for each choice, the names of the options that are read

SOLVER_READS = {name: {x for each in SOLVERS if each.name == name for x in each.reads} for name in name_solvers()}
# The arguments that a map reads during training, without the seed, which training itself reads.
MAP_READS: dict[str, tuple[str, ...]] = {name: tuple(x for x in READS[name] if x != "seed") for name in READS}


def refuse_for_training(options: argparse.Namespace, method: SolverRecord, kernel: str, own: Mapping[str, str]) -> None:
    """Raise InputError for an option of `train` or `tune` that has no effect. own: the values of --option."""
    if options.map is None:
        _refuse(options, ["rank"], "without --map", "choose a --map")
    else:
        _refuse_unread(options, "--map", options.map, MAP_READS)
    _refuse_unread(options, "--kernel", kernel, PARAMETERS)
    chosen = method.name if options.task == next(iter(PROBLEMS)) else f"{method.name} and {name_task(options.task)}"
    others = {name: reads for name, reads in SOLVER_READS.items() if name != method.name}
    _refuse_unread(options, "--solver", chosen, {**others, chosen: method.reads})
    given = {_name(name): words for name, words in method.reads.items() if _was_given(getattr(options, name))}
    refuse_unread(method.options, own, "linear" if options.map else kernel, given)
    _refuse_for_engine(options)
    if getattr(options, "plan", False):
        _refuse(options, ["resume", "overwrite"], "with --plan", "train without --plan")


def refuse_for_features(options: argparse.Namespace, kernel: str) -> None:
    """Raise InputError for an option of `features` that has no effect with the map and the kernel."""
    _refuse_unread(options, "--map", options.map, READS)
    _refuse_unread(options, "--kernel", kernel, PARAMETERS)
    _refuse_for_engine(options)


def refuse_for_ingest(options: argparse.Namespace) -> None:
    """Raise InputError for an option of `ingest` that has no effect because workers are, or are not, used."""
    if options.workers is None and options.scheduler is None:
        _refuse(options, ["resume"], "in one process", "use --workers or --scheduler")
    else:
        _refuse(options, ["append", "like"], "with --workers or --scheduler", "ingest in one process")
    if options.holdout is not None:
        given = [_name(name) for name in ("append", "resume", "memory") if _was_given(getattr(options, name))]
        given += ["a URL as destination"] if is_remote(options.destination) else []
        if given:
            remedy = "ingest all rows without --holdout, and use `streamsvm split` afterwards"
            raise InputError(f"--holdout cannot be combined with {given[0]}: {remedy}")
    _refuse_for_engine(options)


def _refuse_for_engine(options: argparse.Namespace) -> None:
    if options.scheduler is not None:
        _refuse(options, ["workers"], "with --scheduler", "use processes on this machine")


def _refuse_unread(options: argparse.Namespace, flag: str, chosen: str, readers: Readers) -> None:
    """Raise InputError for a given option that is read with other choices of a flag, but not with the chosen one."""
    for name in sorted({name for names in readers.values() for name in names} - {*readers[chosen]}):
        able = " or ".join(choice for choice, names in readers.items() if name in names)
        _refuse(options, [name], f"with {flag} {chosen}", f"choose {flag} {able}")


def _refuse(options: argparse.Namespace, names: Iterable[str], where: str, remedy: str) -> None:
    """Raise InputError for a given option that has no effect."""
    for name in names:
        if _was_given(getattr(options, name)):
            raise InputError(f"{_name(name)} has no effect {where}; remove it, or {remedy}")


def _name(name: str) -> str:
    """Return the option as a user writes it."""
    return f"--{name.replace('_', '-')}"


def _was_given(value: object) -> bool:
    return value is not None and value is not False and value != ()
