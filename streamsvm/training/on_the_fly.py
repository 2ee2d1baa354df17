"""Features on the fly: a map is found first, and then a linear method is trained on rows that are mapped in each pass.

Nothing is written but what a run's folder holds: `map.npz` keeps what the passes that look for the map have found, from
which a resumed run makes the same map. Otherwise `training.features` writes the features once, as a dataset.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamsvm.data.mapped import Mapped
from streamsvm.data.source import RowSource
from streamsvm.errors import InputError, say_count
from streamsvm.interrupts import caught
from streamsvm.methods.feature_map.options import FeatureOptions
from streamsvm.methods.set_up import choose_method, set_up, set_up_map, settle_task
from streamsvm.numeric.feature_maps import Features
from streamsvm.numeric.one_blas_thread import one_blas_thread
from streamsvm.options import TrainOptions
from streamsvm.training.feature_checkpoint import FeatureCheckpoint
from streamsvm.training.features import Report, look_for_map, open_for_map
from streamsvm.training.grid_folder import GridFolder
from streamsvm.training.result import Listener, Result
from streamsvm.training.run_folder import MAP_FILE, RunFolder
from streamsvm.training.spent import NOTHING, Spent
from streamsvm.training.statistics import put_stand_in
from streamsvm.training.train import open_for, train

if TYPE_CHECKING:
    from distributed import Client


@dataclass(frozen=True)
class LearnedRows:
    """The rows that a training learns from, with its settings, and the arguments of `train` that go with the rows.

    spent: what has been spent on the map, if there is one.
    """

    source: RowSource
    options: TrainOptions
    arguments: dict[str, Any] = field(default_factory=dict)
    spent: Spent = NOTHING


def train_on_features(
    source: RowSource,
    features: FeatureOptions,
    options: TrainOptions,
    out: str | Path | None = None,
    resume: bool = False,
    client: Client | None = None,
    listener: Listener = lambda _: None,
    overwrite: bool = False,
    keep_dual: bool = False,
    report: Report | None = None,
) -> Result:
    """Find a feature map, and train a linear model on the features of all rows, which are made in each pass.

    Parameters
    ----------
    source : RowSource
        The raw rows.
    features : FeatureOptions
        The map, its rank and its seed. Where a dataset would be written has no effect.
    options : TrainOptions
        The settings of the training; kernel, gamma, degree and coef0 are those of the kernel that is approximated.
    report : callable, optional
        Called with the number of rows of each group of chunks that was read for the map.
    out, resume, client, listener, overwrite, keep_dual
        See `train`.

    Returns
    -------
    Result
        The model, which takes raw rows, and what it cost; the passes that found the map are counted.

    Raises
    ------
    InputError, MemoryBudgetError, ConnectionError, KeyboardInterrupt
        As `train` and `make_features`.
    """
    with open_rows(source, features, options, out, resume, overwrite, client, keep_dual, report) as rows:
        return train(
            rows.source,
            rows.options,
            out,
            client=client,
            listener=listener,
            keep_dual=keep_dual,
            **rows.arguments,
        )


def make_linear(features: FeatureOptions, options: TrainOptions, source: RowSource) -> TrainOptions:
    """Return the settings of the linear method that learns from the features. InputError if there is none."""
    method = choose_method(replace(options, kernel="linear"))
    if method.kernels != ("linear",):
        raise InputError(
            f"solver {method.name}: it evaluates kernels itself; features (--map) are for solvers of linear models"
        )
    if features.map != "polynomial" and features.rank > source.n_rows:
        raise InputError(
            f"rank is {features.rank}; {source.name} has {say_count(source.n_rows, 'row')}, which make at most as many "
            "features"
        )
    return replace(options, kernel="linear", gamma="scale")


@contextmanager
def open_rows(
    source: RowSource,
    features: FeatureOptions | None,
    options: TrainOptions,
    out: str | Path | None = None,
    resume: bool = False,
    overwrite: bool = False,
    client: Client | None = None,
    keep_dual: bool = False,
    report: Report | None = None,
    for_grid: bool = False,
) -> Iterator[LearnedRows]:
    """Find a feature map, and open the rows that it maps; without `features` these are the rows as they are.

    The other arguments and the errors are those of `train_on_features`. Settings that cannot be trained, and a training
    that would exceed the memory, are refused before rows are read. While there is a map, the folder of the run is
    locked until the end of the block. Without a folder nothing is kept of the passes that look for the map. for_grid:
    whether the folder is that of a grid, and the arguments are those of `tune`.
    """
    options = settle_task(source, options)
    if features is None:
        yield LearnedRows(source, options, {"resume": resume, "overwrite": overwrite})
        return
    linear = make_linear(features, options, source)
    features = replace(features, chunk_bytes=1)  # No chunk of features is written, so none needs memory.
    folder: RunFolder | GridFolder | None = None
    if out is not None:
        folder = GridFolder(out, None, resume, overwrite) if for_grid else RunFolder(out, {}, resume, overwrite)
    with caught(), one_blas_thread(), closing(folder) if folder else nullcontext():
        _refuse_early(source, features, options, linear, client, keep_dual)
        if folder:
            folder.take_over()
        began, kept = time.monotonic(), None if folder is None else FeatureCheckpoint(folder.path / MAP_FILE)
        found = look_for_map(source, features, options, kept, resume, client, report)
        mapped = Mapped(source, Features(found.map, source.scaling, source.feature_names))
        spent = Spent(found.passes, found.read_bytes, time.monotonic() - began, found.projected_bytes)
        arguments = {"resume": True, "lock": folder.lock if folder else None, **({} if for_grid else {"spent": spent})}
        yield LearnedRows(mapped, linear, arguments, spent)


def _refuse_early(
    source: RowSource,
    features: FeatureOptions,
    options: TrainOptions,
    linear: TrainOptions,
    client: Client | None,
    keep_dual: bool,
) -> None:
    """Set the training up on a map of the same size, and project the memory if this process carries both out."""
    for_map = set_up_map(source, features, put_stand_in(options))
    mapped = Mapped(source, Features(for_map.stand_in(), source.scaling, source.feature_names))
    fit = set_up(mapped, linear, keep_dual)
    if client is None and linear.workers is None and linear.scheduler is None:
        with open_for_map(source, for_map, options, None):
            pass
        with open_for(mapped, linear, [[fit]], None):
            pass
