"""Text that is compressed, or comes by standard input."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from streamsvm.data.rows.source import SourceRows
from streamsvm.data.sources.svmlight import read_svmlight
from streamsvm.system.errors import InputError
from tests.data.sources.test_text import PACKERS, SMALL, good_lines, message_of, put_on_stdin, read_all, small  # noqa: F401


@pytest.mark.slow("compresses much text")
@pytest.mark.parametrize("suffix", PACKERS)
def test_compressed_files(suffix: str, tmp_path: Path) -> None:
    text = b"".join(b"1 1:%.17g\n" % number for number in np.random.default_rng(0).random(40_000))
    plain, packed = tmp_path / "plain.svm", tmp_path / f"packed.svm{suffix}"
    plain.write_bytes(text)
    archive = bytearray(PACKERS[suffix](text))
    packed.write_bytes(archive)
    assert read_all([packed], block_bytes=70_000) == read_all([plain])
    packed.write_bytes(archive[:-20_000])
    taken: list[SourceRows] = []
    with pytest.raises(InputError) as caught:
        taken.extend(read_svmlight([packed], 2, 1000))
    assert taken
    assert str(caught.value) == f"{packed}: the compressed data are truncated"
    archive[10:20] = b"\xff" * 10
    for corrupt in (archive, SMALL):
        packed.write_bytes(corrupt)
        assert message_of([packed]).startswith(f"{packed}: the compressed data are corrupt")


def test_standard_input(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    path = tmp_path / "same.svm"
    path.write_bytes(good_lines(500))
    pipe = put_on_stdin(monkeypatch, good_lines(500))
    assert read_all(["-"], block_bytes=1000) == read_all([path], block_bytes=1000)
    assert not pipe.closed
    put_on_stdin(monkeypatch, b"1 1:1\n1 1:x\n")
    assert message_of(["-"]).startswith("<stdin>:2:3: ")
