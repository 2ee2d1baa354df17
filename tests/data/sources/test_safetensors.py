"""safetensors files: the rows of their tensors, and messages for files that are none. They are written here by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm import ingest
from streamsvm.models.predict import predict
from streamsvm.system.errors import InputError
from streamsvm.train import TrainOptions, train

X = np.random.default_rng(4).normal(size=(500, 6)).astype(np.float32)
Y = (X[:, 0] > 0).astype(np.int64)
KINDS = {"float64": "F64", "float32": "F32", "float16": "F16", "uint16": "BF16", "int64": "I64", "int8": "I8"}


def write(path: Path, **tensors: Any) -> Path:
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    content = b""
    for name, values in tensors.items():
        place = [len(content), len(content) + values.nbytes]
        header[name] = {"dtype": KINDS[str(values.dtype)], "shape": list(values.shape), "data_offsets": place}
        content += values.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + content)
    return path


def test_the_rows_of_each_type(tmp_path: Path) -> None:
    bits = (X.view(np.uint32) >> 16).astype(np.uint16)
    of_bits = (bits.astype(np.uint32) << 16).view(np.float32)
    for number, (values, expected) in enumerate(
        ((X, X), (X.astype(np.float16), X.astype(np.float16)), (bits, of_bits), (np.ones((500, 2), np.int8), None))
    ):
        file = write(tmp_path / "rows.safetensors", y=Y, X=values)
        dataset = ingest(file, tmp_path / f"{number}.zarr", shuffle=None)
        found = np.concatenate([dataset.read(index).X for index in range(dataset.n_chunks)])  # type: ignore[arg-type]
        np.testing.assert_array_equal(found, np.ones((500, 2)) if expected is None else expected.astype(np.float32))
        labels = dataset.column("y")
        assert labels is not None
        assert labels.tolist() == Y.tolist()
    narrow = ingest(write(tmp_path / "b.safetensors", X=bits, y=Y), tmp_path / "b.zarr", dtype="bfloat16")
    assert narrow.dtype == "bfloat16"


def test_a_tensor_of_another_name_to_predict(tmp_path: Path) -> None:
    dataset = ingest(write(tmp_path / "rows.safetensors", embeddings=X, y=Y), tmp_path / "rows.zarr")
    model = train(dataset, TrainOptions(C=1.0)).model
    predict(model, write(tmp_path / "new.safetensors", embeddings=X), tmp_path / "out.csv")
    assert len((tmp_path / "out.csv").read_text().splitlines()) in (500, 501)


def test_rows_and_labels_in_pieces(tmp_path: Path) -> None:
    from streamsvm.data.sources.files_of_arrays import read_safetensors

    file = write(tmp_path / "rows.safetensors", X=(X.view(np.uint32) >> 16).astype(np.uint16), y=Y)
    pieces = list(read_safetensors([file], piece_bytes=8 * 6 * 64))
    assert [rows.n_rows for rows in pieces] == [64] * 7 + [52]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "it has only 0 bytes"),
        (b"\x01" + b"\0" * 8, "it has only 9 bytes"),
        (b"\x01" + b"\0" * 39, "it claims a header of 1 byte; 2 to 32 are possible"),
        (b"\x21" + b"\0" * 39, "it claims a header of 33 bytes; 2 to 32 are possible"),
        (b"\xff" * 40, "it claims a header of 18,446,744,073,709,551,615 bytes"),
        (b"\x02" + b"\0" * 7 + b"[]", "its header is not a JSON object"),
        (b"\x02" + b"\0" * 7 + b"{}", "which tensor has the rows"),
        (b"\x05" + b"\0" * 7 + b'{"a":', "not a safetensors file"),
    ],
)
def test_what_is_no_such_file(content: bytes, message: str, tmp_path: Path) -> None:
    (tmp_path / "rows.safetensors").write_bytes(content)
    with pytest.raises(InputError, match=message):
        ingest(tmp_path / "rows.safetensors", tmp_path / "rows.zarr")
    assert not (tmp_path / "rows.zarr").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"data_offsets": [0, 10]}, "does not fit its shape"),
        ({"data_offsets": [0, 1 << 60], "shape": [1 << 30, 1 << 28]}, "truncated"),
        ({"data_offsets": [-8, 4]}, "not a list of numbers"),
        ({"shape": ["a", 2]}, "not a list of numbers"),
        ({"shape": 3}, "not a safetensors file"),
    ],
)
def test_headers_that_lie(changed: dict[str, Any], message: str, tmp_path: Path) -> None:
    about = {"dtype": "F32", "shape": [3, 2], "data_offsets": [0, 24], **changed}
    text = json.dumps({"X": about}).encode()
    (tmp_path / "rows.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + bytes(24))
    with pytest.raises(InputError, match=message):
        ingest(tmp_path / "rows.safetensors", tmp_path / "rows.zarr")


def test_more_rows_than_labels(tmp_path: Path) -> None:
    file = write(tmp_path / "rows.safetensors", X=X, y=Y[:10])
    with pytest.raises(InputError, match=r"y: has 10 rows, but .* has 500"):
        ingest(file, tmp_path / "rows.zarr")


def test_names_of_tensors_do_not_steer_a_terminal(tmp_path: Path) -> None:
    path = write(tmp_path / "two.safetensors", **{"\x1b[31mX\n": X, "b": X})
    with pytest.raises(InputError, match="which tensor has the rows") as caught:
        ingest(path, tmp_path / "d.zarr")
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("how", ["list", "pattern", "folder"])
def test_several_files_are_rows_one_after_another(how: str, tmp_path: Path) -> None:
    folder = tmp_path / "parts"
    folder.mkdir()
    files = [write(folder / f"{k}.safetensors", X=X[k::2], y=Y[k::2]) for k in range(2)]
    source = {"list": files, "pattern": str(folder / "*.safetensors"), "folder": folder}[how]
    dataset = ingest(source, tmp_path / "rows.zarr", shuffle=None)
    np.testing.assert_array_equal(dataset.read(0).X, np.concatenate([X[::2], X[1::2]]))  # type: ignore[arg-type]
    np.testing.assert_array_equal(dataset.column("y"), np.concatenate([Y[::2], Y[1::2]]))  # type: ignore[arg-type]


def test_an_index_tells_where_tensors_lie(tmp_path: Path) -> None:
    write(tmp_path / "a-1-of-2.safetensors", X=X)
    write(tmp_path / "a-2-of-2.safetensors", y=Y, X=np.zeros((3, 3), np.float32))
    index = tmp_path / "a.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"X": "a-1-of-2.safetensors", "y": "a-2-of-2.safetensors"}}))
    for source in (index, tmp_path):
        dataset = ingest(source, tmp_path / "out" / "rows.zarr", shuffle=None, overwrite=True)
        np.testing.assert_array_equal(dataset.read(0).X, X)  # type: ignore[arg-type]
        assert dataset.column("y") is not None
    index.write_text(json.dumps({"weight_map": {"X": "../a.safetensors"}}))
    with pytest.raises(InputError, match=r"'\.\./a\.safetensors' is not the name of a file in the folder of the index"):
        ingest(index, tmp_path / "no.zarr")
    for damaged in ("[]", '{"weight_map": ["X"]}', '{"weight_map": "X"}'):
        index.write_text(damaged)
        with pytest.raises(InputError, match="not a safetensors file"):
            ingest(index, tmp_path / "no.zarr")


def test_vectors_that_an_index_names_are_not_left_out(tmp_path: Path) -> None:
    """Weights that are not in their file would be weights of 1."""
    write(tmp_path / "a.safetensors", X=X, y=Y)
    index = tmp_path / "a.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(("X", "y", "sample_weight"), "a.safetensors")}))
    with pytest.raises(InputError, match="its file has no tensor 'sample_weight' of numbers"):
        ingest(index, tmp_path / "no.zarr")


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ({"X": X[:, :4], "y": Y}, r"b\.safetensors: 4 features and y, but .*a\.safetensors has 6 features and y"),
        ({"X": X}, r"b\.safetensors: 6 features and no vectors, but .*a\.safetensors has 6 features and y"),
    ],
)
def test_files_of_other_rows_are_refused(second: dict[str, Any], message: str, tmp_path: Path) -> None:
    files = [write(tmp_path / "a.safetensors", X=X, y=Y), write(tmp_path / "b.safetensors", **second)]
    with pytest.raises(InputError, match=message):
        ingest(files, tmp_path / "rows.zarr")
