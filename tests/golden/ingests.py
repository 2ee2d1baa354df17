"""Thirty ingests: the bytes of every file of each dataset, by their SHA-256."""

from __future__ import annotations

import hashlib
import shlex
from pathlib import Path
from typing import Any

from tests.golden.processes import do

INGESTS = """
dense.svm
dense.svm --dense --chunk-bytes 2KB
dense.svm --sparse --chunk-bytes 2KB --shuffle 7
classes.svm --codec lz4
classes.svm --codec zstd --shuffle no
sparse.svm --chunk-bytes 1KB --shard-bytes 4KB
whole.npz --dtype float16
sparse.svm --scale maxabs
queries.svm
numbers.svm --regression --scale standard
dense.svm --unlabelled
dense.svm classes.svm --chunk-bytes 4KB
rows.npy
whole.npz --dtype bfloat16 --codec lz4
sparse.npz
rows.csv --label y
rows.csv --label y --scale standard --chunk-bytes 2KB
weighed.csv --label y --sample-weight w --qid q --scale minmax
rows.csv --label a --regression
whole.npz --dtype int8
mixed.csv --label y --one-hot auto --missing mean
mixed.csv --label y --one-hot colour --hash 6 --missing zero
mixed.csv --label y --one-hot auto --missing indicator --sparse
mixed.csv --label y --text day --one-hot colour,day --hash 4 --drop gaps --missing zero
rows.parquet --label y
rows.parquet --label y --drop b,c --index a
rows.arrow --label y --shuffle 3
rows.orc --label y
rows.jsonl --label y
parts --label y
"""


def list_ingests() -> list[str]:
    """Return the arguments of the ingests."""
    return [each for each in INGESTS.split("\n") if each]


def record(folder: Path) -> dict[str, Any]:
    """Return, for each ingest, the SHA-256 of its files by their names within the dataset."""
    found = {}
    for k, arguments in enumerate(list_ingests()):
        files, options = split_arguments(arguments)
        name = f"ingested{k}.zarr"
        ended = do(folder, "ingest", *files, name, *options)
        found[arguments] = {"said": ended.err != "", "files": hash_files(folder / name)}
    return found


def split_arguments(arguments: str) -> tuple[list[str], list[str]]:
    """Return the files, and the options after them."""
    given = shlex.split(arguments)
    n_files = next((i for i, each in enumerate(given) if each.startswith("--")), len(given))
    return given[:n_files], given[n_files:]


def hash_files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file below a folder."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()[:16] for path in paths}
