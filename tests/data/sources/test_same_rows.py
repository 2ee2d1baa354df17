"""All sources give the same rows of the same table."""

from __future__ import annotations

import csv
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import scipy.sparse as sp
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from streamsvm.data.rows.source import SourceRows
from streamsvm.data.sources.arrays import read_arrays
from streamsvm.data.sources.files_of_arrays import read_npy
from streamsvm.data.tables.columns import Columns
from tests.conftest import choose_examples
from tests.data.pieces import read_csv, read_parquet, together


@st.composite
def tables(draw: st.DrawFn) -> dict[str, Any]:
    """A random table: numbers of all magnitudes, labels that are numbers or awkward text."""
    n, d = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    numbers = st.floats(-3.4e38, 3.4e38) | st.integers(-9, 9).map(float) | st.sampled_from([1e-310, -0.0])
    words = st.text(st.sampled_from("aé\",;\n\t'0"), max_size=5).map(lambda text: f"<{text}>")
    labels = draw(
        st.lists(st.integers(-5, 5).map(float), min_size=n, max_size=n) | st.lists(words, min_size=n, max_size=n)
    )
    return {
        "X": draw(arrays(np.float64, (n, d), elements=numbers)),
        "y": np.array(labels),
        "sample_weight": draw(arrays(np.float64, n, elements=st.floats(0, 1e300, allow_subnormal=False))),
        "qid": draw(arrays(np.int64, n, elements=st.integers(-(2**63), 2**63 - 1))),
        "size": draw(st.integers(1, 300)),
        "rows": draw(st.integers(1, n)),
    }


def every_source(table: dict[str, Any], folder: Path) -> Iterator[tuple[str, Iterator[SourceRows]]]:
    """The table in every form, in pieces of random size."""
    size, rows = table["size"], table["rows"]
    X, members = table["X"], {name: table[name] for name in ("y", "sample_weight", "qid")}
    frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])])
    whole = frame.assign(label=members["y"], w=members["sample_weight"], q=members["qid"])
    columns = Columns(qid="q", sample_weight="w")
    for suffix, mark in ((".csv", ","), (".tsv", "\t")):
        with open(folder / f"t{suffix}", "w", newline="") as file:
            csv.writer(file, delimiter=mark).writerows([list(whole), *whole.itertuples(index=False)])
        yield suffix, read_csv([folder / f"t{suffix}"], columns, size)
    pq.write_table(pa.table(dict(whole.items())), folder / "t.parquet", row_group_size=rows + 1)
    yield "parquet", read_parquet([folder / "t.parquet"], columns, rows)
    np.savez(folder / "t.npz", X=X, **members)
    yield "npz", read_npy([folder / "t.npz"], size)
    np.savez_compressed(folder / "f.npz", X=np.asfortranarray(X), **members)
    yield "npz, by columns", read_npy([folder / "f.npz"], size)
    sp.save_npz(folder / "s.npz", sp.csr_matrix(X))
    with zipfile.ZipFile(folder / "s.npz", "a") as archive:
        for name, member in members.items():
            np.save(folder / f"{name}.npy", member)
            archive.write(folder / f"{name}.npy", f"{name}.npy")
    yield "sparse npz", read_npy([folder / "s.npz"], size)
    yield "NumPy", read_arrays(X, **members, piece_bytes=size)
    yield "CSR", read_arrays(sp.csr_array(X), **members, piece_bytes=size)
    yield "pandas", read_arrays(frame, whole["label"], whole["w"], whole["q"], size)
    chunked = {name: da.from_array(v, chunks=1 + i) for i, (name, v) in enumerate(members.items())}
    yield "Dask array", read_arrays(da.from_array(X, chunks=(rows, 1)), **chunked, piece_bytes=size)
    parts = dd.from_pandas(whole, chunksize=rows)
    q = parts["q"].to_dask_array()
    yield "Dask frame", read_arrays(parts[list(frame)], parts["label"], parts["w"], q, size)


@settings(max_examples=choose_examples(7, 20, 20), deadline=None)
@given(table=tables())
def test_every_source_gives_the_same_rows(table: dict[str, Any]) -> None:
    """One table in eleven forms."""
    with np.errstate(under="ignore"):
        X = table["X"].astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        for name, source in every_source(table, Path(folder)):
            read = together(source)
            assert np.array_equal(read["X"], X), name
            assert np.array_equal(read["labels"], table["y"]), name
            assert read["labels"].dtype.kind == table["y"].dtype.kind, name
            assert np.array_equal(read["sample_weight"], table["sample_weight"]), name
            assert np.array_equal(read["qid"], table["qid"]), name
