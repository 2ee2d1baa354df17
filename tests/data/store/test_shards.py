"""Shards: several chunks in a file or object, which Zarr reads, and of which each chunk is verified alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from zarr.codecs import Crc32cCodec

from streamsvm.cli.info import verify
from streamsvm.data.open import open_dataset
from streamsvm.data.store.array import StoredArray
from streamsvm.data.store.chunks import Shards
from streamsvm.data.store.dataset import Dataset
from streamsvm.ingestion.readers import ingest
from streamsvm.ingestion.write import Shape
from streamsvm.models.model import LinearModel
from streamsvm.options import TrainOptions
from streamsvm.runs.train import train
from streamsvm.system.errors import InputError, IntegrityError, WriteError
from tests.data.conftest import Collect, Write, chunk_files, file_hashes, flip, make_rows, replaced
from tests.data.forging import edit_manifest, find_file
from tests.object_server import ObjectServer, Request
from tests.remote import upload

LAYOUTS = ("dense", "sparse")
SMALL: dict[str, Any] = {"chunk_bytes": 480, "shard_bytes": 1000}
NUMBER = np.arange(200.0)
LABELS = NUMBER**2 // 7 % 3


@pytest.fixture(scope="module")
def pairs(write: Write, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Dataset, Dataset]]:
    """For each layout the same rows in shards and in a file for each chunk, with small parts."""
    made = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("streamsvm.ingestion.write.PART_BYTES", 96)
        patch.setattr("streamsvm.ingestion.write.VECTOR_PART_BYTES", 32)
        patch.setattr("streamsvm.ingestion.write.TABLE_BYTES", 40)
        for layout in LAYOUTS:
            one, other = (
                write(make_rows(0), LABELS, NUMBER / 7, NUMBER // 9, layout=layout, **{**SMALL, **options})
                for options in ({}, {"shard_bytes": 0})
            )
            made[layout] = one, other
    return made


def read_all(dataset: Dataset, collect: Collect) -> dict[str, Any]:
    return collect(rows for k in range(dataset.n_chunks) for rows in dataset.tiles(k))


def list_arrays(dataset: Dataset) -> dict[str, StoredArray]:
    """The arrays in shards, with the checksums of their parts."""
    arrays = (*dataset.layout.arrays, *dataset.vectors.values())
    found = {array.name: array for array in arrays} | {f"parts/{array.name}": array.parts for array in arrays}
    return {name: array for name, array in found.items() if array is not None and array.shards.chunks_per_shard > 1}


def find_last(array: StoredArray) -> tuple[Path, int]:
    """The file of the last shard, and the first chunk in it."""
    last = (array.shards.n_files - 1) * array.shards.chunks_per_shard
    return find_file(array, last), last


def assert_same(found: dict[str, Any], wanted: dict[str, Any]) -> None:
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_rows_are_those_of_single_chunks(layout: str, pairs: Any, collect: Collect) -> None:
    sharded, plain = pairs[layout]
    assert sharded.meta["format"] == 8
    assert plain.meta["format"] == 2
    assert sharded.n_chunks == plain.n_chunks > 8
    arrays = list_arrays(sharded)
    assert {"y", "qid", "sample_weight", "parts/y"} < set(arrays)
    assert any(array.shards.n_files > 2 for array in arrays.values())
    for name, array in arrays.items():
        counts = [len(chunk_files(Path(each.path), name)) for each in (sharded, plain)]
        assert counts == [array.shards.n_files, array.n_chunks]
    assert_same(read_all(sharded, collect), read_all(plain, collect))
    some = np.arange(3, 200, 17)
    assert_same(collect([sharded.take(some)]), collect([plain.take(some)]))
    assert verify(sharded)["verified"]
    for name, entry in sharded.meta["arrays"].items():
        assert entry["checksums"] == plain.meta["arrays"][name]["checksums"]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_zarr_alone_reads_every_value(layout: str, pairs: Any) -> None:
    sharded, plain = (zarr.open_group(each.path, mode="r") for each in pairs[layout])
    for name in list_arrays(pairs[layout][0]):
        found: Any = sharded[name]
        assert found.shards is not None
        np.testing.assert_array_equal(found[...], plain[name][...])  # type: ignore[index]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_the_files_are_those_that_zarr_writes(layout: str, pairs: Any, tmp_path: Path) -> None:
    for name in list_arrays(pairs[layout][0]):
        files = chunk_files(Path(pairs[layout][0].path), name)
        ours: Any = zarr.open_group(pairs[layout][0].path, mode="r")[name]
        theirs = zarr.create_array(
            str(tmp_path / name),
            shape=ours.shape,
            chunks=ours.chunks,
            shards=ours.shards,
            dtype=ours.dtype,
            compressors=(Crc32cCodec(),),
            fill_value=0,
            config={"write_empty_chunks": True},
        )
        theirs[...] = ours[...]
        assert [file.read_bytes() for file in files] == [file.read_bytes() for file in chunk_files(tmp_path, name)]


def test_models_have_the_same_bits(pairs: Any) -> None:
    for layout in LAYOUTS:
        one, other = (train(each, TrainOptions(C=0.1)).model for each in pairs[layout])
        assert isinstance(one, LinearModel)
        assert isinstance(other, LinearModel)
        assert one.coef.tobytes() == other.coef.tobytes()


# --- what is damaged


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_damaged_chunk_is_named_with_its_shard(layout: str, pairs: Any) -> None:
    dataset = pairs[layout][0]
    for array in list_arrays(dataset).values():
        (file, first), n_bytes = find_last(array), array.shards.chunk_bytes
        content, n_here = file.read_bytes(), array.n_chunks - first
        for at in (0, n_bytes - 1, (n_here - 1) * n_bytes, n_here * n_bytes - 1):
            with replaced(file, flip(content, at)), pytest.raises(IntegrityError) as caught:
                verify(open_dataset(dataset.path))
            assert f"{file}, chunk {first + at // n_bytes}: chunk is damaged" in str(caught.value)
        file = find_file(array, 0)
        content = file.read_bytes()
        one, other, rest = content[:n_bytes], content[n_bytes : 2 * n_bytes], content[2 * n_bytes :]
        assert one != other
        with replaced(file, other + one + rest), pytest.raises(IntegrityError, match=f"{file}, chunk [01]: chunk is"):
            verify(open_dataset(dataset.path))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_shard_that_is_missing_or_of_another_size_is_named(layout: str, pairs: Any) -> None:
    dataset = pairs[layout][0]
    for array in list_arrays(dataset).values():
        file, _ = find_last(array)
        content = file.read_bytes()
        for changed in (None, b"", content[:-1], content + b"0", content[:-70]):
            with replaced(file, changed), pytest.raises(IntegrityError, match=f"{file}: shard (is missing|has)"):
                verify(open_dataset(dataset.path))


def test_the_index_which_only_others_read_is_verified_on_request(pairs: Any, collect: Collect) -> None:
    dataset, plain = pairs["dense"]
    file = find_file(dataset.layout.arrays[0], 0)
    for at in (-1, -5, -30):
        with replaced(file, flip(file.read_bytes(), at)):
            opened = open_dataset(dataset.path)
            assert_same(read_all(opened, collect), read_all(plain, collect))
            with pytest.raises(IntegrityError, match=f"{file}, its index: the index is damaged"):
                verify(opened)


@pytest.mark.parametrize(
    "forged",
    [
        {"shards": [10**9, 6]},
        {"shards": [21, 6]},
        {"shards": [0, 6]},
        {"shards": [20, 3]},
        {"shards": [20]},
        {"shards": None},
        {"codecs": []},
        {"codecs": [{"name": "sharding_indexed"}]},
    ],
)
def test_forged_shards_are_refused(forged: dict[str, Any], write: Write, tmp_path: Path) -> None:
    write(make_rows(0), NUMBER % 3, layout="dense", to=tmp_path / "d.zarr", **SMALL)
    edit_manifest(tmp_path / "d.zarr", lambda meta: meta["arrays"]["X"].update(forged))
    with pytest.raises(IntegrityError, match=r"d\.zarr/(X/)?zarr\.json"):
        open_dataset(tmp_path / "d.zarr")


# --- which datasets have shards


def test_large_datasets_have_shards_and_small_ones_have_none() -> None:
    assert Shape(1 << 20, 255, 1, 1, False).shard_bytes() == 0
    assert Shape(1 << 20, 256, 1, 1, False).shard_bytes() == 256 << 20
    assert Shape(1 << 20, 1 << 20, (1 << 27) - 1, 9, True).shard_bytes() == 0
    assert Shape(1 << 20, 1 << 20, 1 << 27, 9, True).shard_bytes() == 256 << 20


def test_a_terabyte_is_some_thousand_objects() -> None:
    shape = Shape(2_500_000_000, 100, 1, 1, False)
    chunk_rows = shape.chunk_bytes() // 400
    n_chunks = -(-shape.n_rows // chunk_rows)
    assert n_chunks > 14_000
    sizes = [row_bytes * chunk_rows for row_bytes in (400, 4)]
    assert sum(Shards(n_chunks, size + 4, 2, shape.shard_bytes() // size).n_files for size in sizes) < 4_000


def test_compressed_chunks_have_no_shards(write: Write) -> None:
    with pytest.raises(InputError, match=r"--shard-bytes .* needs raw chunks, but lz4 compresses chunks"):
        write(make_rows(0), NUMBER % 3, codec="lz4", **SMALL)
    with pytest.raises(InputError, match="shard_bytes -1: a whole number of at least 0 is expected"):
        write(make_rows(0), NUMBER % 3, shard_bytes=-1)


def test_rows_are_appended_and_deleted_without_a_change_of_any_shard(tmp_path: Path, collect: Collect) -> None:
    from streamsvm.ingestion.edit import delete_rows

    path, X = tmp_path / "d.zarr", make_rows(0).toarray()
    ingest(X, path, NUMBER % 3, shuffle=None, **SMALL)
    before = file_hashes(path)
    ingest(X[:90], path, NUMBER[:90] % 3, shuffle=None, append=True, **SMALL)
    delete_rows(path, np.array([3, 250]))
    after = file_hashes(path)
    assert {name for name, value in before.items() if after[name] != value} == {"zarr.json"}
    assert open_dataset(path).meta["base"]["format"] == 8
    assert len(chunk_files(path / "appended" / "1", "X")) == 3  # of five chunks
    found = read_all(open_dataset(path), collect)["X"]
    np.testing.assert_array_equal(found, np.delete(np.concatenate((X, X[:90])), [3, 250], axis=0))
    assert verify(open_dataset(path))["verified"]


# --- in an object store


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_store_has_the_objects_of_the_files_and_ranges_of_them_are_read(
    layout: str, pairs: Any, server: ObjectServer, tmp_path: Path, collect: Collect
) -> None:
    url = "s3://bucket/rows.zarr"
    options: dict[str, Any] = {"layout": layout, "shuffle": 1, "scale": "maxabs", **SMALL}
    here = ingest(make_rows(0), tmp_path / "d.zarr", NUMBER % 3, **options)
    there = ingest(make_rows(0), url, NUMBER % 3, **options)
    assert there.fingerprint == here.fingerprint
    wanted = {f"bucket/rows.zarr/{name}": Path(here.path, name).read_bytes() for name in file_hashes(Path(here.path))}
    assert server.objects == wanted
    server.requests.clear()
    assert_same(read_all(there, collect), read_all(here, collect))
    reads = server.reads("X/c/" if layout == "dense" else "X/data/c/")
    first = here.layout.arrays[0].shards
    assert len(reads) >= first.n_chunks > first.n_files
    lengths = [stop - start for start, stop in (request.range or (0, 10**9) for request in reads)]
    assert max(lengths) <= first.chunk_bytes
    assert verify(there)["verified"]


def test_damage_in_a_store_is_named(pairs: Any, server: ObjectServer) -> None:
    url = upload(server, pairs["dense"][0].path)
    key = "bucket/rows.zarr/X/c/1/0"
    content = server.objects[key]
    for changed, told in (
        (flip(content, 5), r"X/c/1/0, chunk \d+: chunk is damaged"),
        (content[:-1], "X/c/1/0: shard has"),
        (content[:30], "X/c/1/0: shard has"),
        (flip(content, -1), "X/c/1/0, its index: the index is damaged"),
        (None, "X/c/1/0: shard is missing"),
    ):
        server.objects.pop(key)
        if changed is not None:
            server.objects[key] = changed
        with pytest.raises(IntegrityError, match=f"^{url}/{told}"):
            verify(open_dataset(url))
        server.objects[key] = content


def test_a_cache_has_copies_of_chunks(write: Write, server: ObjectServer, tmp_path: Path, collect: Collect) -> None:
    local = write(make_rows(0), NUMBER % 3, layout="dense", **SMALL)
    url = upload(server, local.path)
    cached = open_dataset(url, cache=f"{tmp_path}:1GB")
    assert_same(read_all(cached, collect), read_all(local, collect))
    server.requests.clear()
    assert_same(read_all(cached, collect), read_all(local, collect))
    assert not server.requests
    copies = [file for file in tmp_path.rglob("X/c/*/0") if file.is_file()]
    assert len(copies) == cached.layout.arrays[0].n_chunks
    copies[0].write_bytes(flip(copies[0].read_bytes(), 7))
    with pytest.raises(IntegrityError, match=f"{copies[0]}: chunk is damaged"):
        read_all(cached, collect)
    assert verify(open_dataset(url))["verified"]


@pytest.mark.parametrize("fault", ["500", "reset"])
def test_a_part_of_a_shard_that_fails_is_sent_again_or_nothing_is_left(
    fault: str, server: ObjectServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streamsvm.data.store.destination.PART_BYTES", 5 << 20)
    rows = np.random.default_rng(0).normal(size=(600, 5000)).astype(np.float32)
    options: dict[str, Any] = {"chunk_bytes": 3 << 20, "shard_bytes": 7 << 20, "shuffle": None}
    failed = list[str]()

    def fail(request: Request) -> str | None:
        if request.method != "PUT" or "X/c/1/0" not in request.key or (len(failed) == 2 and not always):
            return None
        failed.append(request.key)
        return fault

    always, server.fault = False, fail
    dataset = ingest(rows, "s3://bucket/one.zarr", np.arange(600) % 2, **options)
    assert verify(dataset)["verified"]
    assert len(failed) == 2
    sizes = [int(request.headers["content-length"]) for request in server.requests if request.method == "PUT"]
    assert max(sizes) <= 5 << 20
    always = True
    kept = set(server.objects)
    with pytest.raises(WriteError, match=r"^s3://bucket/two\.zarr/X/c/1/0: cannot be written: "):
        ingest(rows, "s3://bucket/two.zarr", np.arange(600) % 2, **options)
    assert set(server.objects) == kept
    assert any(request.method == "DELETE" and "uploadId" in request.query for request in server.requests)
