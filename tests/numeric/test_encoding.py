"""The encoding of a table: hashes are those of scikit-learn, and a record of another form is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.utils import murmurhash3_32

from streamsvm.data.sources import formats
from streamsvm.numeric import encoding
from streamsvm.numeric.encoding import Column, Encoding, hash_texts, read_encoding
from streamsvm.numeric.rows import CsrRows, to_dense

WHOLE = Encoding(
    (
        Column("age", "number", 38.5, True),
        Column("work", "one_hot", categories=("a", "b"), indicator=True),
        Column("city", "hash"),
        Column("born", "date", -3.0),
    ),
    "indicator",
    3,
)
NAN = np.nan


def test_hashes_are_those_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    texts = [bytes(rng.integers(0, 256, n, dtype=np.uint8)) for n in (*range(40), *rng.integers(0, 30, 200))]
    cells, limits = np.frombuffer(b"".join(texts), np.uint8), np.cumsum([0, *map(len, texts)]).astype(np.int32)
    for prefix, seed in ((b"", 0), (b"city=", 0), ("größe=".encode(), 7)):
        found = hash_texts(np.frombuffer(prefix, np.uint8), cells, limits, seed)
        assert found.tolist() == [murmurhash3_32(prefix + text, seed=seed) for text in texts]


def test_codes_become_features() -> None:
    codes = np.array([[1, 0, 3, 10], [NAN, 1, -3, NAN], [0, NAN, NAN, 0], [2, -1, 8, 1]], np.float32)
    X = WHOLE.encode(codes)
    assert isinstance(X, CsrRows)
    #   age, its indicator, work a and b, its indicator, born, and the eight hashed features
    wanted = np.zeros((4, 14), np.float32)
    wanted[0, [0, 2, 5, 8]] = 1, 1, 10, 1
    wanted[1, [0, 1, 3, 5, 8]] = 38.5, 1, 1, -3, -1
    wanted[2, 4] = 1
    wanted[3, [0, 5, 13]] = 2, 1, 1
    assert np.array_equal(to_dense(X), wanted)
    assert WHOLE.n_features == 14
    names = ("age", "age missing", "work=a", "work=b", "work missing")
    assert Encoding(WHOLE.columns[:2]).feature_names == names


def test_hashes_that_meet_are_added_up() -> None:
    encoding = Encoding((Column("a", "hash"), Column("b", "hash")), None, 2)
    X = encoding.encode(np.array([[2, 2], [2, -2], [4, 1]], np.float32))
    assert isinstance(X, CsrRows)
    assert to_dense(X).tolist() == [[0, 2, 0, 0], [0, 0, 0, 0], [1, 0, 0, 1]]


def test_numbers_alone_make_dense_rows() -> None:
    X = Encoding((Column("a", "number", 5.0), Column("b", "number")), "mean").encode(
        np.array([[1, 2], [NAN, 4]], np.float32)
    )
    assert isinstance(X, np.ndarray)
    assert X.tolist() == [[1, 2], [5, 4]]


def test_a_record_is_read_as_it_was_written() -> None:
    assert read_encoding(WHOLE.as_json()) == WHOLE


FAULTS = [
    ("bits", 23),
    ("bits", None),
    ("bits", True),
    ("missing", "median"),
    ("seed", -1),
    ("index", 3),
    ("columns", []),
    ("columns", None),
    ("more", 1),
]
IN_COLUMN = [
    ("kind", "text"),
    ("name", 1),
    ("name", "work"),
    ("fill", float("nan")),
    ("fill", 1e39),
    ("fill", "1"),
    ("indicator", 1),
    ("categories", ["a"]),
    ("categories", "a"),
    ("more", 1),
]


@pytest.mark.parametrize(("part", "value"), FAULTS)
def test_a_record_of_another_form_is_refused(part: str, value: Any) -> None:
    with pytest.raises(ValueError, match="encoding"):
        read_encoding({**WHOLE.as_json(), part: value})


@pytest.mark.parametrize(("part", "value"), IN_COLUMN)
def test_a_column_of_another_form_is_refused(part: str, value: Any) -> None:
    about = WHOLE.as_json()
    about["columns"][0][part] = value
    with pytest.raises(ValueError, match="encoding"):
        read_encoding(about)


@pytest.mark.parametrize("categories", [["b", "a"], ["a", "a"], [1], [f"{i:06}" for i in range(20_001)]])
def test_categories_are_texts_that_ascend_and_not_too_many(categories: list[Any]) -> None:
    about = WHOLE.as_json()
    about["columns"][1]["categories"] = categories
    with pytest.raises(ValueError, match="encoding"):
        read_encoding(about)


def test_the_ways_of_missing_values_are_those_of_the_command() -> None:
    assert formats.MISSING == encoding.MISSING
