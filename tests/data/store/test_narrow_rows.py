"""Dense rows that are stored as float16, bfloat16 or int8: the rows and models of float32, in fewer bytes."""

from __future__ import annotations

import json
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from streamsvm import LinearSVC, delete, ingest
from streamsvm.data.open import open_dataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.manifest import make_fingerprint
from streamsvm.numeric.stored_types import narrow, widen
from streamsvm.system.errors import InputError, IntegrityError
from streamsvm.train import TrainOptions, train
from tests.commands import Run, run
from tests.conftest import run_python

__all__ = ["run"]

RANDOM = np.random.default_rng(8)
X = RANDOM.normal(size=(2000, 12))
VALUES: dict[str, Any] = {
    "float16": X.astype(np.float16),
    "bfloat16": (X.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32),
    "int8": np.clip(X * 30, -127, 127).astype(np.int8),
}
Y = np.where(X[:, 0] + X[:, 1] > 0, 1, -1)
BYTES = {"float16": 2, "bfloat16": 2, "int8": 1}


def store(folder: Path, dtype: str, stored: str, **given: Any) -> Dataset:
    return ingest(VALUES[dtype], folder / f"{stored}.zarr", Y, chunk_bytes=12 * 4 * 300, dtype=stored, **given)


@pytest.mark.parametrize("codec", ["crc32c", "lz4"])
@pytest.mark.parametrize("dtype", VALUES)
def test_rows_are_the_same_in_fewer_bytes(tmp_path: Path, dtype: str, codec: str) -> None:
    wide, narrow = (store(tmp_path, dtype, each, codec=codec) for each in ("float32", dtype))
    assert narrow.meta["format"] == 7
    np.testing.assert_array_equal(narrow.chunk_starts, wide.chunk_starts)
    assert narrow.nbytes == wide.nbytes
    assert wide.stored_bytes - narrow.stored_bytes == X.size * (4 - BYTES[dtype])
    for index in range(wide.n_chunks):
        pairs = zip(narrow.tiles(index), wide.tiles(index), strict=True)
        assert all(np.array_equal(one.X, other.X) and one.X.dtype == np.float32 for one, other in pairs)  # type: ignore[arg-type]
    rows = np.array([1999, 3, 700])
    np.testing.assert_array_equal(narrow.take(rows).X, wide.take(rows).X)
    if codec == "crc32c":
        sizes = [path.stat().st_size for path in (tmp_path / f"{dtype}.zarr/X/c").rglob("*") if path.is_file()]
        assert sizes == [300 * 12 * BYTES[dtype] + 4] * 7


@pytest.mark.parametrize("dtype", VALUES)
def test_models_have_the_same_bits_and_read_fewer_bytes(tmp_path: Path, dtype: str) -> None:
    wide, narrow = (store(tmp_path, dtype, each) for each in ("float32", dtype))
    options = TrainOptions(C=0.01, tol=1e-6, resident_rows=100)
    results = [train(each, options) for each in (wide, narrow)]
    assert results[0].model_sha256 == results[1].model_sha256
    assert results[1].passes == results[0].passes
    assert results[1].read_bytes < results[0].read_bytes


@pytest.mark.parametrize("dtype", VALUES)
def test_damage_is_found(tmp_path: Path, dtype: str) -> None:
    dataset = store(tmp_path, dtype, dtype)
    file = tmp_path / f"{dtype}.zarr/X/c/3/0"
    content = bytearray(file.read_bytes())
    content[1000] ^= 1
    file.write_bytes(content)
    with pytest.raises(IntegrityError, match=r"X/c/3/0: chunk is damaged"):
        list(dataset.tiles(3))
    with pytest.raises(IntegrityError, match=r"X/c/3/0: chunk is damaged"):
        dataset.take(np.arange(900, 1200))


def test_a_manifest_of_another_type_contradicts_itself(tmp_path: Path) -> None:
    store(tmp_path, "int8", "int8")
    file = tmp_path / "int8.zarr/zarr.json"
    for number, dtype, message in (
        (2, "int8", "format 2 does not fit its contents, which need 7"),
        (7, "float32", "format 7 does not fit its contents, which need 2"),
        (7, "float64", "X has the type float64"),
    ):
        group = json.loads(file.read_text())
        meta = group["attributes"]["streamsvm"]
        meta["format"], meta["arrays"]["X"]["dtype"] = number, dtype
        meta.pop("sha256")
        meta["sha256"] = make_fingerprint(meta)
        other = tmp_path / "other.zarr"
        other.mkdir(exist_ok=True)
        (other / "zarr.json").write_text(json.dumps(group))
        with pytest.raises(IntegrityError, match=message):
            open_dataset(other)


@pytest.mark.parametrize("dtype", VALUES)
def test_rows_are_appended_and_deleted(tmp_path: Path, dtype: str) -> None:
    dataset = store(tmp_path, dtype, dtype, shuffle=None)
    more = ingest(VALUES[dtype][:50], tmp_path / f"{dtype}.zarr", Y[:50], append=True, shuffle=None)
    assert more.stored_bytes == dataset.stored_bytes * 2050 // 2000
    delete(tmp_path / f"{dtype}.zarr", rows=[0, 2001])
    left = open_dataset(tmp_path / f"{dtype}.zarr")
    found = np.concatenate([left.read(index).X for index in range(left.n_chunks)])  # type: ignore[arg-type]
    whole = np.concatenate([VALUES[dtype], VALUES[dtype][:50]])
    np.testing.assert_array_equal(found, np.delete(whole, [0, 2001], axis=0).astype(np.float32))


def test_sets_of_labels_beside_them(tmp_path: Path) -> None:
    labels = np.stack([X[:, 0] > 0, X[:, 1] > 0, X[:, 2] > 1], axis=1).astype(int)
    models = [
        LinearSVC(loss="squared_hinge").fit(ingest(VALUES["int8"], tmp_path / f"{each}.zarr", labels, dtype=each))
        for each in ("float32", "int8")
    ]
    np.testing.assert_array_equal(models[0].coef_, models[1].coef_)


@pytest.mark.parametrize(
    ("values", "given", "message"),
    [
        (X, {"dtype": "float16"}, r"float16 cannot represent the value -?[0-9.]+ of feature [0-9]+; omit --dtype"),
        (np.full((9, 2), 1e5), {"dtype": "float16"}, r"float16 cannot represent the value 100000\.0 of feature 1"),
        (np.full((9, 2), 257.0), {"dtype": "bfloat16"}, r"bfloat16 cannot represent the value 257\.0 of feature 1"),
        (np.full((9, 2), 128), {"dtype": "int8"}, r"int8 cannot represent the value 128\.0 of feature 1"),
        (np.full((9, 2), 0.5), {"dtype": "int8"}, r"int8 cannot represent the value 0\.5 of feature 1"),
        (VALUES["int8"], {"dtype": "int8", "scale": "minmax"}, "cannot represent scaled values exactly"),
        (VALUES["int8"], {"dtype": "int8", "layout": "sparse"}, "needs dense rows: add --dense"),
        (VALUES["int8"], {"dtype": "int16"}, "dtype 'int16': choose from float32, float16, bfloat16, int8"),
    ],
)
def test_what_is_refused(tmp_path: Path, values: Any, given: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ingest(values, tmp_path / "rows.zarr", np.arange(len(values)) % 2, **given)
    assert list(tmp_path.iterdir()) == []


def test_on_the_command_line(run: Run, tmp_path: Path) -> None:
    np.save(tmp_path / "X.npy", VALUES["int8"])
    np.save(tmp_path / "y.npy", Y)
    ran = run("ingest", tmp_path / "X.npy", tmp_path / "y.npy", tmp_path / "rows.zarr", "--dtype", "int8")
    assert ran.code == 0, ran.err
    assert run("info", tmp_path / "rows.zarr", "--json").result["dtype"] == "int8"
    assert "12, dense, stored as int8" in run("info", tmp_path / "rows.zarr").out
    np.save(tmp_path / "X.npy", X)
    ran = run("ingest", tmp_path / "X.npy", tmp_path / "y.npy", tmp_path / "other.zarr", "--dtype", "int8")
    assert (ran.code, ran.out) == (2, "")
    assert "feature 1; omit --dtype" in ran.err.splitlines()[-1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_every_value_of_16_bits_is_widened_exactly(dtype: str) -> None:
    bits = np.arange(1 << 16, dtype=np.uint16)
    bits = bits[(bits & (0x7C00 if dtype == "float16" else 0x7F80)) != (0x7C00 if dtype == "float16" else 0x7F80)]
    stored, wide = bits.view(np.float16) if dtype == "float16" else bits, np.empty(len(bits), np.float32)
    widen(stored, wide)
    signs, exponents, fractions = bits >> 15, (bits >> 7) & 0xFF, bits & 0x7F  # of bfloat16
    values = np.ldexp(np.where(exponents > 0, 128.0, 0.0) + fractions, np.maximum(exponents, 1).astype(int) - 134)
    expected = stored.astype(np.float64) if dtype == "float16" else np.where(signs, -values, values)
    np.testing.assert_array_equal(wide.astype(np.float64), expected)
    np.testing.assert_array_equal(narrow(wide, dtype), stored)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_what_is_no_number_stays_none(dtype: str) -> None:
    """So that rows with a right checksum and wrong values are found as float32 ones are."""
    special = np.array([np.inf, -np.inf, np.nan], np.float32)
    wide = np.empty(3, np.float32)
    widen(narrow(special, dtype), wide)
    np.testing.assert_array_equal(wide, special)


def test_bfloat16_of_pytorch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="tensors need PyTorch")
    tensor = torch.tensor(X).to(torch.bfloat16)
    dataset = ingest(tensor, tmp_path / "rows.zarr", Y, dtype="bfloat16", shuffle=None)
    assert dataset.dtype == "bfloat16"
    np.testing.assert_array_equal(dataset.read(0).X, tensor.float().numpy())


def test_bfloat16_of_ml_dtypes(tmp_path: Path) -> None:
    ml_dtypes = pytest.importorskip("ml_dtypes", reason="NumPy's arrays of bfloat16 need ml_dtypes")
    values = X.astype(ml_dtypes.bfloat16)
    dataset = ingest(values, tmp_path / "rows.zarr", Y, dtype="bfloat16", shuffle=None)
    np.testing.assert_array_equal(dataset.read(0).X, values.astype(np.float32))


def in_npy(folder: Path, untyped: Any) -> Any:
    np.save(folder / "X.npy", untyped)
    np.save(folder / "y.npy", Y)
    return [folder / "X.npy", folder / "y.npy"]


def in_npz(folder: Path, untyped: Any) -> Any:
    np.savez(folder / "rows.npz", X=untyped, y=Y)
    return folder / "rows.npz"


def in_hdf5(folder: Path, untyped: Any) -> Any:
    h5py = pytest.importorskip("h5py", reason="HDF5 needs h5py")
    return h5py.File(folder / "rows.h5", "w").create_dataset("X", data=untyped, chunks=(300, 12))


def in_hdf5_as_float(folder: Path, untyped: Any) -> Any:
    """bfloat16 as HDF5 itself describes it: 1 sign, 8 exponent (bias 127) and 7 fraction bits."""
    h5py = pytest.importorskip("h5py", reason="HDF5 needs h5py")
    kind = h5py.h5t.IEEE_F32LE.copy()
    kind.set_fields(15, 7, 8, 0, 7)
    kind.set_size(2)
    kind.set_ebias(127)
    file, space = h5py.File(folder / "rows.h5", "w"), h5py.h5s.create_simple(untyped.shape)
    h5py.h5d.create(file.id, b"X", kind, space).write(space, space, VALUES["bfloat16"])
    return file["X"]


def in_zarr(folder: Path, untyped: Any) -> Any:
    array = zarr.create_array(folder / "X.zarr", shape=untyped.shape, chunks=(300, 12), dtype="V2", zarr_format=2)
    array[:] = untyped
    return array


@pytest.mark.parametrize("kind", [np.asarray, in_npy, in_npz, in_hdf5, in_hdf5_as_float, in_zarr])
def test_bfloat16_of_files_without_a_type_for_it(tmp_path: Path, kind: Any) -> None:
    """numpy.save, h5py and Zarr write arrays of ml_dtypes as two bytes without a type, dtype V2."""
    untyped = (VALUES["bfloat16"].view(np.uint32) >> 16).astype(np.uint16).view("V2")
    source = untyped if kind is np.asarray else kind(tmp_path, untyped)
    y = None if kind in (in_npy, in_npz) else Y  # files hold their own
    with getattr(source, "file", nullcontext()):  # of HDF5
        dataset = ingest(source, tmp_path / "rows.zarr", y, dtype="bfloat16", shuffle=None)
    np.testing.assert_array_equal(dataset.read(0).X, VALUES["bfloat16"])


def test_values_that_are_no_numbers_are_refused_in_bytes_without_a_type(tmp_path: Path) -> None:
    untyped = np.array([[0x3F80, 0x4000], [0x4040, 0x7FC0]], np.uint16).view("V2")  # 1, 2, 3, NaN
    with pytest.raises(InputError, match=r"^X: row 2, column 2 \(counted from 1\): nan"):
        ingest(untyped, tmp_path / "rows.zarr", [0, 1])
    with pytest.raises(InputError, match=r"^X: holds \|V3, not numbers"):
        ingest(np.zeros((2, 2), "V3"), tmp_path / "rows.zarr", [0, 1])


def test_what_widens_float16_is_loaded_when_a_dataset_is_opened(tmp_path: Path) -> None:
    """A pass would compile it in the middle of its tasks otherwise."""
    store(tmp_path, "float16", "float16")
    text = "from streamsvm.data.open import open_dataset; from streamsvm.numeric import stored_types as narrow; "
    ended = run_python(f"{text}open_dataset({str(tmp_path / 'float16.zarr')!r}); print(len(narrow.look_up.signatures))")
    assert (ended.returncode, ended.stdout) == (0, "1\n"), ended.stderr
