"""Damaged checkpoints, models, histories and settings of a run: refused by name, and no flipped bit goes unnoticed."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import io
import os
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from streamsvm.data.store.dataset import Dataset
from streamsvm.models.model import load
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError
from streamsvm.system.npz import pack_arrays, unpack_arrays
from tests.runs.test_run_folder import OPTIONS, dataset, run  # noqa: F401


class Bomb:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, (str(self.marker),)


def pickled(path: Path) -> bytes:
    """An .npz file of the same names, one of them pickled."""
    arrays = unpack_arrays(path)
    arrays[next(iter(arrays))] = np.array([Bomb(path.parent / "exploded")], dtype=object)
    buffer = io.BytesIO()
    np.savez(buffer, **arrays)
    return buffer.getvalue()


DAMAGES: dict[str, Callable[[Path], bytes]] = {
    "empty": lambda path: b"",
    "cut": lambda path: path.read_bytes()[:-30],
    "text": lambda path: b"not a zip file\n" * 100,
    "npy": lambda path: npy_bytes(np.arange(3.0)),
    "pickled": pickled,
    "other": lambda path: pack_arrays({"other": np.ones(2)}),
}


def npy_bytes(array: npt.NDArray[Any]) -> bytes:
    import io

    buffer = io.BytesIO()
    np.save(buffer, array)
    return buffer.getvalue()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_checkpoint_is_an_input_error(damage: str, run: Path, dataset: Dataset) -> None:
    checkpoint = run / "checkpoint.npz"
    checkpoint.write_bytes(DAMAGES[damage](checkpoint))
    with pytest.raises(InputError, match=r"checkpoint\.npz: "):
        train(dataset, OPTIONS, out=run, resume=True)
    assert not (run / "exploded").exists()


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_model_is_an_input_error(damage: str, run: Path) -> None:
    model = run / "model.npz"
    model.write_bytes(DAMAGES[damage](model))
    with pytest.raises(InputError, match=r"model\.npz: "):
        load(run)
    assert not (run / "exploded").exists()


def test_a_checkpoint_is_no_model_nor_the_other_way_round(run: Path, dataset: Dataset) -> None:
    with pytest.raises(InputError, match="not a model"):
        load(run / "checkpoint.npz")
    shutil.copy(run / "model.npz", run / "checkpoint.npz")
    with pytest.raises(InputError, match=r"checkpoint\.npz: "):
        train(dataset, OPTIONS, out=run, resume=True)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("history.jsonl", '{"step": 1}\n'),
        ("history.jsonl", '{"step": 1}\n{"st\n{"step": 3}\n'),
        ("history.jsonl", '{"step": 1}\n{"step": 2}\n{"step": 3}\n'),
        ("history.jsonl", "\xff\xff"),
        ("history.jsonl", None),
        ("settings.json", "{"),
        ("settings.json", "[1, 2]"),
        ("settings.json", None),
    ],
)
def test_damaged_history_and_settings_are_input_errors(
    name: str, content: str | None, run: Path, dataset: Dataset
) -> None:
    (run / name).unlink()
    if content is not None:
        (run / name).write_text(content, encoding="latin-1")
    with pytest.raises(InputError, match=f"run/{name}: "):
        train(dataset, OPTIONS, out=run, resume=True)


def test_a_digit_that_has_changed_in_the_history_is_found(run: Path, dataset: Dataset) -> None:
    """It is JSON still; the checkpoint knows a checksum of the lines that it counts."""
    history = run / "history.jsonl"
    content = history.read_bytes()
    at = content.index(b'"objective": ') + len(b'"objective": ')
    history.write_bytes(content[:at] + (b"9" if content[at : at + 1] != b"9" else b"8") + content[at + 1 :])
    with pytest.raises(InputError, match=r"run/history\.jsonl: missing or damaged"):
        train(dataset, OPTIONS, out=run, resume=True)
    history.write_bytes(content + b'{"step": 4, "not counted by the checkpoint')
    assert train(dataset, OPTIONS, out=run, resume=True).model_sha256 == train(dataset, OPTIONS).model_sha256


@pytest.mark.slow("flips bits of every file of a run")
def test_no_flipped_bit_goes_unnoticed(tmp_path: Path) -> None:
    """The file is refused, or what is found in it is right. (Readers find out what is missing.)

    The arrays are longer than what is read at once, so that no checksum is seen where a flipped header says less.
    """
    arrays = {"w": np.arange(1111.0), "n": np.array(3), "text": np.array("with status")}
    content, file = pack_arrays(arrays), tmp_path / "arrays.npz"
    places = [*range(200), 5000, *range(len(content) - 700, len(content))]
    harmless = 0
    for at, bit in product(places, range(8)):
        file.write_bytes(content[:at] + bytes([content[at] ^ (1 << bit)]) + content[at + 1 :])
        try:
            found = unpack_arrays(file)
        except InputError:
            continue
        harmless += 1
        assert found.keys() <= arrays.keys(), at
        for name, value in found.items():
            assert value.tobytes() == arrays[name].tobytes(), (at, name)
            assert (value.shape, value.dtype) == (arrays[name].shape, arrays[name].dtype), (at, name)
    assert harmless < 8 * len(places) / 3
