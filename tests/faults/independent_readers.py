"""Readers that share no code with streamsvm: what an accepted file holds, row by row, according to others.

Each compares what streamsvm has read with that, and returns what differs, or an empty text.
"""

from __future__ import annotations

import csv
import gzip
import io
import json
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from scipy import sparse

from streamsvm.data.sources.files_of_arrays import read_npy
from streamsvm.data.sources.svmlight import read_svmlight
from streamsvm.data.tables.columns import Columns
from streamsvm.models.model import KernelModel, load
from streamsvm.numeric.rows import CsrRows
from streamsvm.system.errors import InputError
from tests.data.pieces import read_csv, read_parquet

WIDE = 10**5  # columns that are not written out
CSR = ("data", "indices", "indptr")
BOOLEANS = {"true": 1.0, "false": 0.0}


def join(pieces: Any) -> dict[str, Any]:
    """Pieces of a source, one below the other, X dense."""
    read = list(pieces)
    width = max(rows.X.shape[1] for rows in read)
    if width > WIDE:
        return {"wide": True, "rows": read}
    X = np.zeros((sum(rows.n_rows for rows in read), width), np.float32)
    at = 0
    for rows in read:
        X[at : at + rows.n_rows, : rows.X.shape[1]] = rows.X.toarray() if sparse.issparse(rows.X) else rows.X
        at += rows.n_rows
    joined = {"X": X, "names": read[0].feature_names}
    for name in ("labels", "qid", "sample_weight"):
        parts = [getattr(rows, name) for rows in read]
        joined[name] = None if parts[0] is None else [value for part in parts for value in part.tolist()]
    return joined


def count_items(found: dict[str, Any]) -> list[int]:
    """Items of each row of a matrix that is too wide to be written out."""
    return [int(n) for piece in found["rows"] for n in np.diff(piece.X.indptr)]


def unpack(path: Path) -> bytes:
    return gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()


def to_float32(values: Any) -> Any:
    with np.errstate(all="ignore"):
        return np.asarray(values).astype(np.float32)


def compare(name: str, found: Any, expected: Any) -> str:
    """What differs; numbers within one unit in the last place of float32, texts exactly."""
    if found is None or expected is None:
        return "" if found is expected else f"{name}: {found!r:.60} instead of {expected!r:.60}"
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        return f"{name}: shape {found.shape} instead of {expected.shape}"
    if "U" in (found.dtype.kind, expected.dtype.kind):
        same = found.astype(str) == expected.astype(str)
    else:
        f, e = found.astype(np.float64), expected.astype(np.float64)
        same = np.abs(f - e) <= np.maximum(1.2e-7 * np.abs(e), 1.5e-45)
    if np.all(same):
        return ""
    at = np.argmin(same)
    return f"{name}: {found.flat[at]!r} instead of {expected.flat[at]!r}"


def judge_svmlight(path: Path, block_bytes: int) -> str:
    """Lines are split at newlines, rows at blanks and colons."""
    found = join(read_svmlight([path], 1, block_bytes))
    rows = [line.partition(b"#")[0].split() for line in unpack(path).split(b"\n")]
    rows = [row for row in rows if row]
    labels, qids, items = [], [], []
    for label, *pairs in rows:
        labels.append(float(label))
        with_qid = bool(pairs) and pairs[0].startswith(b"qid:")
        qids.append(int(pairs[0][4:]) if with_qid else None)
        items.append({int(j) - 1: float(v) for j, _, v in (pair.partition(b":") for pair in pairs[with_qid:])})
    if "wide" in found:
        return "" if count_items(found) == [len(row) for row in items] else "the numbers of items differ"
    width = max((max(row, default=-1) + 1 for row in items), default=0)
    X = np.zeros((len(items), width))
    for i, row in enumerate(items):
        for j, value in row.items():
            X[i, j] = value
    faults = [compare("X", found["X"], to_float32(X)), compare("labels", found["labels"], labels)]
    faults.append(compare("qid", found["qid"], qids if qids and qids[0] is not None else None))
    return next(filter(None, faults), "")


def number(token: str) -> float:
    word = token.strip().lower()
    return BOOLEANS[word] if word in BOOLEANS else float(word)


def is_number(token: str) -> bool:
    try:
        return np.isfinite(number(token)) and "_" not in token
    except ValueError:
        return False


def judge_csv(path: Path, block_bytes: int) -> str:
    """Rows are those of Python's csv module; the label is the first column, or has the name of one."""
    columns = Columns(label="1") if block_bytes % 2 else Columns()
    found = join(read_csv([path], columns, block_bytes))
    csv.field_size_limit(1 << 30)
    text = unpack(path).decode(errors="surrogateescape").removeprefix("\ufeff")
    rows = [row for row in csv.reader(io.StringIO(text, newline="")) if len(row) > 1 or (row and row[0].strip())]
    csv.field_size_limit(1 << 17)
    first = [cell.strip() for cell in rows[0]]
    numbered = [str(j + 1) for j in range(len(first))]
    has_header = set(found["names"]) <= set(first) and len(found["X"]) == len(rows) - 1
    if not has_header and (len(found["X"]) != len(rows) or not set(found["names"]) <= set(numbered)):
        return f"{len(found['X'])} rows instead of {len(rows)}"
    names = first if has_header else numbered
    features = [names.index(name) for name in found["names"]]
    label = next(j for j in range(len(names)) if j not in features)
    if has_header and all(is_number(first[j]) for j in features) and is_number(first[label]):
        return "a row of numbers was taken for a header"
    rows = rows[1:] if has_header else rows
    labels: list[Any] = [row[label].strip() for row in rows]
    if isinstance(found["labels"][0], float):
        labels = [number(token) for token in labels]
    X = [[number(row[j]) for j in features] for row in rows]
    return compare("X", found["X"], to_float32(X)) or compare("labels", found["labels"], labels)


def judge_npy(path: Path, block_bytes: int) -> str:
    found = join(read_npy([path], block_bytes))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        X = np.load(path, allow_pickle=False)
    return compare("X", found["X"], to_float32(X))


def judge_npz(path: Path, block_bytes: int) -> str:
    found = join(read_npy([path], block_bytes))
    with warnings.catch_warnings(), np.load(path, allow_pickle=False) as arrays:
        warnings.simplefilter("ignore")
        if "X" in arrays:
            X = to_float32(arrays["X"])
        else:
            parts = tuple(arrays[name] for name in ("data", "indices", "indptr"))
            if "wide" in found:
                items = sparse.csr_array(parts, shape=tuple(arrays["shape"]))
                items.sum_duplicates()
                return "" if count_items(found) == np.diff(items.indptr).tolist() else "the numbers of items differ"
            with np.errstate(all="ignore"):
                X = to_float32(sparse.csr_array(parts, shape=tuple(arrays["shape"])).astype(float).toarray())
        faults = [compare("X", found["X"], X)]
        for name, member in (("labels", "y"), ("qid", "qid"), ("sample_weight", "sample_weight")):
            expected = arrays[member].reshape(-1) if member in arrays else None
            if expected is not None and expected.dtype.kind == "S":
                expected = np.char.decode(expected, "utf-8")
            faults.append(compare(name, found[name], expected))
    return next(filter(None, faults), "")


def judge_parquet(path: Path, block_bytes: int) -> str:
    found = join(read_parquet([path], Columns(label="y"), 1 + block_bytes % 50))
    table = pq.read_table(path)
    X = np.column_stack([table.column(name).cast("float64", safe=False).to_numpy() for name in found["names"]])
    wanted = {name for name in table.column_names if name != "y"}
    if set(found["names"]) != wanted:
        return f"features {found['names']} instead of {sorted(wanted)}"
    return compare("X", found["X"], to_float32(X)) or compare("labels", found["labels"], table.column("y").to_pylist())


def write_out(arrays: dict[str, Any], shape: tuple[int, int]) -> Any:
    return to_float32(sparse.csr_array(tuple(arrays[name] for name in CSR), shape=shape).astype(float).toarray())


def judge_model(path: Path, block_bytes: int) -> str:
    """What was read is what the file holds, and gives finite scores or a clear error."""
    model = load(path)
    with warnings.catch_warnings(), np.load(path, allow_pickle=False) as arrays:
        warnings.simplefilter("ignore")
        held = {name: arrays[name] for name in arrays}
    about, saved = json.loads(str(held.pop("about"))), model.to_arrays()
    told = json.loads(saved.pop("about"))
    for name, values in held.items():
        if name not in saved or name in CSR:  # items of one column are added up
            continue
        if np.asarray(saved[name]).tobytes() != np.ascontiguousarray(values).tobytes():
            return f"{name} differs"
    if "data" in saved and isinstance(model, KernelModel):
        shape = (model.support_vectors.shape[0], min(model.support_vectors.shape[1], 1 + int(held["indices"].max())))
        theirs, ours = (write_out(arrays, shape) for arrays in (held, saved))
        if compare("support vectors", ours, theirs):
            return "the support vectors differ"
    if not set(saved) <= set(held):
        return f"{set(saved) - set(held)} came from nowhere"
    differing = [name for name in sorted(set(told) & set(about)) if told[name] != about[name]]
    if differing:
        return f"{differing[0]}: {told[differing[0]]!r:.50} instead of {about[differing[0]]!r:.50}"
    d = model.n_features
    if d < 1000:
        rows = np.linspace(-1, 1, 3 * d).reshape(3, d).astype(np.float32)
        csr = CsrRows(np.ones(2, np.float32), np.array([0, d - 1], np.int32), np.array([0, 1, 2]), d)
        for X in (rows, csr):
            with suppress(InputError):  # scores that overflow
                if not np.isfinite(model.decide(X)).all():
                    return "scores that are not finite"
    return ""


JUDGES = {
    "svmlight": judge_svmlight,
    "csv": judge_csv,
    "npy": judge_npy,
    "npz": judge_npz,
    "parquet": judge_parquet,
    "model": judge_model,
}
