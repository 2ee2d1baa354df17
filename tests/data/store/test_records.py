"""Records among the scratch files hold values of declared types, and a damaged one is as good as none."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from streamsvm.data.store.shared_files import SharedFolder, find_record, pack_record, read_record
from streamsvm.system.errors import IntegrityError


@dataclass(frozen=True)
class Part:
    numbers: np.ndarray
    names: dict[str, tuple[int, float | None]]


class Pair(NamedTuple):
    first: Part
    labels: set[float]


def test_a_record_gives_back_its_value(tmp_path: Path) -> None:
    scratch, part = SharedFolder(tmp_path), Part(np.arange(3, dtype=np.uint16), {"a": (1, None), "ä": (2, 0.1)})
    scratch.keep("record", pack_record([Pair(part, {2.5, -1.0}), "text", True]))
    (pair, *rest) = read_record(scratch, "record", (Part, Pair))
    assert (pair.first.names, pair.labels, rest) == (part.names, {2.5, -1.0}, ["text", True])
    np.testing.assert_array_equal(pair.first.numbers, part.numbers, strict=True)


@pytest.mark.parametrize("types", [(Part, Pair), (Part,)])
def test_a_damaged_record_and_one_of_other_types_are_none(types: tuple[Any, ...], tmp_path: Path) -> None:
    scratch = SharedFolder(tmp_path)
    content = bytearray(pack_record(Pair(Part(np.zeros(9), {}), set())))
    content[len(content) // 2] ^= Pair in types
    scratch.keep("record", bytes(content))
    assert find_record(scratch, "record", types) is None
    for name in ("record", "missing"):
        with pytest.raises(IntegrityError, match=f"{name}: is damaged or missing"):
            read_record(scratch, name, types)
