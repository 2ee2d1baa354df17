"""The reader of AnnData objects, in memory or backed by a file, and of `.h5ad` files, which anndata opens backed.

Rows are read a few at a time, whether X is dense or CSR. Labels and the like are columns of obs, and the names of
observations and variables name rows and features.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.sparse import csr_array, issparse

from streamsvm.data.arrays import read_arrays
from streamsvm.data.formats import ENCODED, name_option
from streamsvm.data.pieces import comes_from, is_backed
from streamsvm.data.remote_files import copied
from streamsvm.data.source_rows import SourceRows
from streamsvm.data.tables import Columns
from streamsvm.errors import InputError

ROLES = {"label": "y", "qid": "qid", "sample_weight": "sample_weight", "groups": "groups"}


def is_anndata(source: object) -> bool:
    """Tell whether a value is an AnnData object."""
    return comes_from(source, "anndata") and hasattr(source, "obs_names")


def read_h5ad(paths: Sequence[str | Path], columns: Columns) -> Iterator[SourceRows]:
    """Yield the rows of `.h5ad` files, which are read in place. Raises InputError for files that are not such."""
    try:
        anndata = importlib.import_module("anndata")
    except ImportError as error:
        raise InputError("reading .h5ad needs anndata: pip install 'streamsvm[anndata]'") from error
    for path in map(str, paths):
        with copied(path) as copy:
            try:
                opened = anndata.read_h5ad(copy, backed="r")
            except Exception as error:
                raise InputError(f"{path}: no .h5ad file that anndata reads ({error})") from error
            with closing(opened.file):
                yield from read_anndata(opened, columns, path)


def read_anndata(data: Any, columns: Columns, where: str = "X") -> Iterator[SourceRows]:
    """Yield the rows of an AnnData object. columns: label, qid, sample_weight and groups are columns of obs.

    Raises InputError for a column that obs does not have, and for X that is sparse by columns.
    """
    for name in ENCODED:
        if getattr(columns, name) not in (None, ()):
            raise InputError(f"{where}: {name_option(name)} is for tables, and has no effect on AnnData: leave it out")
    if is_backed(data.X) and data.X.format != "csr":
        raise InputError(f"{where}: X is stored by columns ({data.X.format}); store it as csr_matrix")
    given = {ROLES[role]: _find(data, role, columns, where) for role in ROLES if getattr(columns, role) is not None}
    if "y" not in given and columns.require_label:
        raise InputError(f"{where}: which column of obs is the label? --label COLUMN (label=... in Python)")
    names = tuple(map(str, data.var_names))
    chosen = None if columns.features in (None, names) else _find_features(names, columns.features or (), where)
    n_rows = 0
    for rows in read_arrays(data.X, **{name: values for name, values in given.items() if values is not None}):
        X = rows.X if chosen is None else rows.X[:, chosen]
        X = csr_array(X) if issparse(X) else np.ascontiguousarray(X)
        texts = np.array(list(map(str, data.obs_names[n_rows : n_rows + rows.n_rows])), object)
        yield replace(rows, X=X, feature_names=columns.features or names, row_names=texts)
        n_rows += rows.n_rows


def _find(data: Any, role: str, columns: Columns, where: str) -> Any:
    """Return a column of obs. A label that is missing although none is needed is None."""
    name = getattr(columns, role)
    if name in data.obs.columns:
        return data.obs[name]
    if role == "label" and not columns.require_label:
        return None
    there = ", ".join(map(str, data.obs.columns[:12])) or "none"
    raise InputError(f"{where}: no column {name!r} in obs, the {role}; there are {there}")


def _find_features(names: tuple[str, ...], wanted: Sequence[str], where: str) -> list[int]:
    """Return the places of the features of a model among the variables."""
    place = {name: j for j, name in enumerate(names)}
    for name in wanted:
        if name not in place:
            raise InputError(f"{where}: no variable {name!r}, which is a feature of the model")
    return [place[name] for name in wanted]
