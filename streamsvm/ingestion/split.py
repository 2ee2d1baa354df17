"""A dataset is split into two: rows to train on, and rows that are held out, to measure models on them.

The rows are copied as they are stored, with the scaling and the encoding of the dataset. Each row is read twice: once
to count its values, and once to copy it.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt

from streamsvm.data.open import open_dataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.destination import open_destination
from streamsvm.data.store.edits import require_editable
from streamsvm.data.store.manifest import ENCODING, LABEL_COLUMN, QID_COLUMN, READ_AS
from streamsvm.ingestion.edit import copy_rows, count_items
from streamsvm.options import check_count
from streamsvm.system.errors import InputError, say_count
from streamsvm.system.files import refuse_inputs
from streamsvm.system.interrupts import caught

Flags = npt.NDArray[np.bool_]
KEPT = ("shuffle", ENCODING, LABEL_COLUMN, QID_COLUMN, READ_AS)  # the manifest entries that both parts get


def split(
    path: str | Path,
    train: str | Path,
    held_out: str | Path,
    share: float = 0.2,
    *,
    seed: int = 0,
    overwrite: bool = False,
) -> tuple[Dataset, Dataset]:
    """Copy the rows of a dataset to two new datasets: rows to train on, and a random share of held-out rows.

    Each class is split evenly, and at least one of its rows stays in `train`. Groups, or else queries, are split whole.
    Both datasets have the scaling and the encoding of the dataset, which depend on all of its rows.

    Parameters
    ----------
    path : path or URL
        A dataset that ingest wrote.
    train, held_out : path or URL
        The new datasets.
    share : float, default=0.2
        The share of the rows to hold out, between 0 and 1.
    seed : int, default=0
        The seed of the draw.
    overwrite : bool, default=False
        Whether to replace existing datasets.

    Returns
    -------
    tuple of Dataset
        The opened datasets `train` and `held_out`.

    Raises
    ------
    InputError
        If the rows cannot be split in this way. No new dataset is left.
    """
    for out, inputs in ((train, [path]), (held_out, [path, train])):
        refuse_inputs(out, inputs)
    dataset = open_dataset(path)
    require_editable(dataset, "split")
    return split_dataset(dataset, dataset.path, train, held_out, share, seed, overwrite)


def split_dataset(
    dataset: Dataset, name: str, train: str | Path, held_out: str | Path, share: float, seed: int, overwrite: bool
) -> tuple[Dataset, Dataset]:
    """See `split`. name: the name of the rows in messages, which the new datasets record as their source."""
    is_out = draw_rows(dataset, name, share, seed)
    about = {"source": name, **{entry: dataset.meta[entry] for entry in KEPT if entry in dataset.meta}}
    with caught(), open_destination(held_out, overwrite) as second, open_destination(train, overwrite) as first:
        for folder, numbers in ((first, np.flatnonzero(~is_out)), (second, np.flatnonzero(is_out))):
            n_items, counts = count_items(dataset, numbers)
            codes = None
            if dataset.classes is not None and not dataset.has_label_sets:  # rare classes may have no held-out row
                about["classes"], codes = dataset.classes[counts > 0].tolist(), np.cumsum(counts > 0) - 1
            copy_rows(dataset, numbers, n_items, folder, about, dataset.scaling, dataset.dtype, codes=codes)
    return open_dataset(train), open_dataset(held_out)


def require_share(share: float) -> None:
    """Raise InputError unless a share lies between 0 and 1."""
    if not 0.0 < share < 1.0:
        raise InputError(f"share is {share}; it must be between 0 and 1")


def draw_rows(dataset: Dataset, name: str, share: float, seed: int) -> Flags:
    """Return the flags of the rows to hold out, (n,). Raises InputError if a side would have no rows, or lack a class.

    The rows are put in random order, and then sorted by class; the held-out rows are evenly spaced in this order. If
    rows have groups or queries, the first of these in random order are held out.
    """
    require_share(share)
    check_count("seed", seed, 0)
    rng, n, y = np.random.default_rng(seed), dataset.n_rows, dataset.column("y")
    units = dataset.column("groups" if "groups" in dataset.vectors else "qid")
    if units is None:
        order = rng.permutation(n)
        order, is_out = order if y is None else order[np.argsort(y[order], kind="stable")], np.zeros(n, np.bool_)
        is_out[order] = np.diff(np.floor(np.arange(n + 1) * share + 0.5)) > 0
    else:
        _, place, sizes = np.unique(units, return_inverse=True, return_counts=True)
        order = rng.permutation(len(sizes))
        middles = np.cumsum(sizes[order]) - sizes[order] / 2
        is_out = np.isin(place, order[middles <= share * n])
    drawn = int(is_out.sum())
    if y is not None and dataset.classes is not None:
        kept = np.bincount(y[~is_out], minlength=len(dataset.classes))
        if units is None:
            is_out &= kept[y] > 0  # a class with few rows
        elif (lost := kept[y] == 0).any():
            label = dataset.classes.tolist()[y[lost][0]]
            raise InputError(f"{name}: too few groups have the class {label!r}: choose another share or seed")
    if is_out.all() or not is_out.any():
        would = f"would hold out {'all' if is_out.all() else 'none'} of the {say_count(n, 'row')}"
        would += ", because one row of each class is kept" * (drawn > 0 and not is_out.any())
        raise InputError(f"{name}: a share of {share} {would}; choose another share or seed")
    return is_out
