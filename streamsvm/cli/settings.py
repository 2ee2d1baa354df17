"""The settings of `ingest`, `train`, `tune` and `features`, read from the arguments of the command line."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from streamsvm.cli.values import parse_count, parse_shuffle
from streamsvm.errors import InputError
from streamsvm.methods.registry import find_method
from streamsvm.problems.registry import settle_multi_class

if TYPE_CHECKING:
    from streamsvm.data.ingest_options import IngestOptions
    from streamsvm.options import TrainOptions


MAPPED_KERNEL = "rbf"  # the default of feature maps


def read_ingest_options(options: argparse.Namespace) -> IngestOptions:
    """Return how `ingest` writes a dataset."""
    from streamsvm.data.ingest_options import IngestOptions
    from streamsvm.machine import parse_bytes

    return IngestOptions(
        layout=options.layout,
        chunk_bytes=None if options.chunk_bytes is None else parse_bytes(options.chunk_bytes),
        shard_bytes=None if options.shard_bytes is None else parse_bytes(options.shard_bytes),
        codec=options.codec,
        scale=options.scale,
        shuffle=parse_shuffle(options.shuffle),
        regression=options.regression,
        overwrite=options.overwrite,
        append=options.append,
        new_classes=options.new_classes,
        dtype=options.dtype,
    )


def count_workers(options: argparse.Namespace) -> int | None:
    """Return the number of worker processes that --workers asks for, or None for threads in this process."""
    from streamsvm.machine import default_threads

    if options.workers == "auto":
        return default_threads()
    return None if options.workers is None else parse_count("--workers", options.workers)


def read_settings(options: argparse.Namespace) -> TrainOptions:
    """Return the settings of `train` and `tune`, except C and gamma, which keep their defaults."""
    from streamsvm.cli.effects import refuse_for_training
    from streamsvm.machine import parse_bytes
    from streamsvm.options import TrainOptions

    options.task, options.multi_class = settle_multi_class(options.task, options.multi_class)
    kernel = None if options.map else options.kernel
    method = find_method(options.solver, options.task, options.loss, options.penalty, kernel)
    kernel, own = options.kernel or (MAPPED_KERNEL if options.map else method.kernels[0]), parse_options(options.option)
    refuse_for_training(options, method, kernel, own)
    return TrainOptions(
        solver=options.solver,
        class_weight=parse_class_weight(options.class_weight),
        memory_bytes=None if options.memory is None else parse_bytes(options.memory),
        threads=options.threads,
        workers=count_workers(options),
        scheduler=options.scheduler,
        max_passes=options.max_passes,
        max_seconds=options.max_seconds,
        seed=options.seed,
        kernel=kernel,
        resident_rows=options.resident_rows,
        task=options.task,
        loss=options.loss,
        penalty=options.penalty,
        options=own,
        **list_given(options, "tol", "degree", "coef0", "epsilon", "nu", "multi_class"),
    )


def read_axes(options: argparse.Namespace) -> dict[str, list[Any]]:
    """Return the losses and the like that `tune` is to try, by name, where there are several values.

    The first of the values becomes the setting; with every loss the other options must have an effect.
    """
    from streamsvm.training.grid import AXES

    axes: dict[str, list[Any]] = {}
    for name in AXES:
        values = list(getattr(options, name) or ())
        setattr(options, name, values[0] if values else None)
        if len(values) > 1:
            axes[name] = list(map(parse_class_weight, values)) if name == "class_weight" else values
    for loss in axes.get("loss", []):
        read_settings(argparse.Namespace(**{**vars(options), "loss": loss}))
    return axes


def list_given(options: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Return the options of these names that were given. The others keep the defaults of TrainOptions."""
    return {name: value for name in names if (value := getattr(options, name)) is not None}


def parse_class_weight(text: str | None) -> dict[str, float] | str | None:
    """Return the value of --class-weight: weights by label, "balanced", or None if it is not given."""
    if text is None or text == "balanced":
        return text
    try:
        return {label: float(weight) for label, weight in (part.rsplit("=", 1) for part in text.split(","))}
    except ValueError:
        raise InputError(f"--class-weight {text!r}: write balanced, or label=weight,label=weight") from None


def parse_options(texts: Sequence[str]) -> dict[str, str]:
    """Return the values of --option by name. They are texts, which the method reads and checks itself."""
    for text in texts:
        if "=" not in text:
            raise InputError(f"--option {text!r}: write name=value")
    return dict(text.split("=", 1) for text in texts)
