"""A dataset as `ingest` wrote it: a Zarr group, and the manifest that describes its arrays."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import zarr

from streamsvm.data.checks import VECTORS
from streamsvm.data.csr_layout import CsrLayout
from streamsvm.data.dataset import Dataset
from streamsvm.data.dense_layout import DenseLayout
from streamsvm.data.disk_cache import open_cache
from streamsvm.data.layouts import Layout
from streamsvm.data.manifest import (
    ATTRIBUTE,
    check_manifest,
    open_stored,
)
from streamsvm.data.object_store import open_store
from streamsvm.data.store import StoredArray
from streamsvm.data.stored_features import read_features, read_scaling
from streamsvm.errors import InputError, IntegrityError, ReadError
from streamsvm.urls import is_remote


def read_manifest(text: str, group: zarr.Group, meta: dict[str, Any], cache: str | None = None) -> Dataset:
    """Return the dataset that a manifest describes, once it is checked. Raises as `open_dataset`."""
    fingerprint = check_manifest(text, meta)
    copies = None if cache is None else open_cache(cache, fingerprint)
    stored = partial(open_stored, text, group, meta["arrays"], copies)
    classes = meta["classes"]
    dataset = Dataset(
        path=text,
        features=read_features(text, meta, stored),
        layout=_open_layout(meta, stored),
        vectors={name: stored(name) for name in VECTORS if name in meta["arrays"]},
        n_rows=meta["n_rows"],
        chunk_starts=np.asarray(meta["chunk_starts"], np.int64),
        classes=None if classes is None else np.asarray(classes),
        class_counts=None if classes is None else np.asarray(meta["class_counts"], np.int64),
        fingerprint=fingerprint,
        scaling=read_scaling(text, meta, stored),
        feature_names=None if meta["feature_names"] is None else tuple(meta["feature_names"]),
        meta=meta,
        cache=cache,
    )
    if copies is not None:
        if not all(array.is_raw for array in dataset.layout.arrays):
            raise InputError(f"{text}: --cache keeps raw chunks, and those of this dataset are compressed")
        copies.make_room(dataset.nbytes)
    return dataset


def open_group(path: str) -> tuple[zarr.Group, dict[str, Any]]:
    """Return the Zarr group at a path, and its manifest, which is empty for files that are not of streamsvm."""
    if "://" not in path and not Path(path).exists():
        raise InputError(f"{path}: no such dataset")
    store = open_store(path.rstrip("/")) if is_remote(path) else path
    try:
        group = zarr.open_group(store, mode="r", use_consolidated=False)
        stored_meta: Any = group.attrs.asdict().get(ATTRIBUTE, {})
        meta: dict[str, Any] = dict(stored_meta)
    except ReadError:
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RuntimeError) as error:
        if is_remote(path) and isinstance(error, FileNotFoundError):
            raise InputError(f"{path}: no such dataset") from error
        if Path(path, "zarr.json").is_file():
            raise IntegrityError(f"{path}/zarr.json: damaged ({error})") from error
        why = "" if Path(path).is_file() else f" ({error})"
        raise InputError(
            f"{path}: not a dataset; `streamsvm ingest`, or streamsvm.ingest in Python, makes one from files{why}"
        ) from error
    return group, meta


def _open_layout(meta: dict[str, Any], stored: Callable[[str], StoredArray]) -> Layout:
    if not meta["sparse"]:
        return DenseLayout(stored("X"), is_narrow=meta["arrays"]["X"]["dtype"] != "float32")
    data, indices, indptr = (stored(f"X/{name}") for name in ("data", "indices", "indptr"))
    return CsrLayout(data, indices, indptr, meta["n_features"], meta["longest_row"])
