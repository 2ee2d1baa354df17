"""Compiles the parsers of text and the hash of texts, or loads them from the cache, before a file is read."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from streamsvm.numeric.compilation import load_or_compile_here
from streamsvm.numeric.nonzeros import count_nonzeros
from streamsvm.numeric.permute import permute_rows, permute_to_dense
from streamsvm.numeric.rows import CsrRows

PARSERS = ("svmlight", "csv", "hash")


@lru_cache
def compile_parser(name: str) -> None:
    """Load the compiled functions of a format, which are compiled first if need be; formats without any are left."""
    if name in PARSERS:
        load_or_compile_here(name, run_parser)


def compile_ingest(kind: str, hashes: bool) -> None:
    """Load what a worker needs for an ingest: the parser of a format, and the functions that count and permute rows.

    hashes: whether texts are hashed.
    """
    compile_parser(kind)
    if hashes:
        compile_parser("hash")
    load_or_compile_here("rows", run_row_functions)


def run_row_functions(_: str) -> None:
    """Call the functions on one row, sparse and dense."""
    order, dense = np.zeros(1, np.int64), np.ones((1, 1), np.float32)
    sparse = CsrRows(np.ones(1, np.float32), np.zeros(1, np.int32), np.array([0, 1]), 1)
    permute_rows(sparse, order)
    permute_rows(dense, order)
    permute_to_dense(sparse, order, 1)
    count_nonzeros(dense)


def run_parser(name: str) -> None:
    """Call the functions of a name on one row."""
    if name == "svmlight":
        from streamsvm.data.svmlight import parse_lines

        for lists in (False, True):
            parse_lines(np.frombuffer(bytearray(b"1 1:1\n"), np.uint8), lists=lists)
    elif name == "csv":
        from streamsvm.data.csv_parser import count_line_ends, parse_table

        text = bytearray(b"1,a\n\n")
        parse_table(text, count_line_ends(text), ",", [0], [1], 2)
    else:
        from streamsvm.numeric.murmur_hash import hash_texts

        hash_texts(np.zeros(1, np.uint8), np.zeros(1, np.uint8), np.zeros(2, np.int32), 0)
