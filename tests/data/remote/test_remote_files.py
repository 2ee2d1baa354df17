"""Source files in an object store give the rows that they give on a disk; what goes wrong is told as it is there."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.data.remote import files
from streamsvm.ingestion.readers import ingest
from streamsvm.system.errors import InputError
from tests.commands import Run, run
from tests.object_server import ObjectServer, Request

__all__ = ["run"]
random = np.random.default_rng(0)
X = random.normal(size=(500, 4)).astype(np.float32)
Y = np.where(X[:, 0] > 0, 1, -1)


def make_files(folder: Path) -> dict[str, bytes]:
    """The same rows in several formats, by the name of the file."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(X, columns=list("abcd")).assign(label=Y)
    frame.to_csv(folder / "rows.csv", index=False)
    frame.to_parquet(folder / "rows.parquet")
    np.savez(folder / "rows.npz", X=X, y=Y)
    np.save(folder / "rows.npy", np.column_stack((X, Y)))
    lines = [f"{y} " + " ".join(f"{j + 1}:{v:.9g}" for j, v in enumerate(x)) for x, y in zip(X, Y, strict=True)]
    (folder / "rows.txt").write_text("\n".join(lines) + "\n")
    (folder / "rows.csv.gz").write_bytes(gzip.compress((folder / "rows.csv").read_bytes()))
    return {file.name: file.read_bytes() for file in folder.iterdir()}


@pytest.mark.parametrize("name", ["rows.csv", "rows.csv.gz", "rows.txt", "rows.parquet", "rows.npz"])
def test_the_rows_are_those_of_the_file(
    name: str, server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "RANGE_BYTES", 1000)  # several ranges, one of which fails
    server.objects[f"bucket/{name}"] = make_files(tmp_path)[name]
    met: list[Any] = []

    def fail_once(request: Request) -> str | None:
        met.append(request.range)
        return "reset" if request.range is not None and met.count(request.range) == 1 else None

    server.fault = fail_once
    here = ingest(tmp_path / name, tmp_path / "here.zarr")
    there = ingest(f"s3://bucket/{name}", tmp_path / "there.zarr")
    for one, other in zip(here.layout.arrays, there.layout.arrays, strict=True):
        np.testing.assert_array_equal(one.checksums, other.checksums)
    assert there.meta["source"] == f"s3://bucket/{name}"


def test_models_predict_rows_of_files(server: ObjectServer, tmp_path: Path, run: Run) -> None:
    server.objects["bucket/rows.csv"] = make_files(tmp_path)["rows.csv"]
    assert run("ingest", "s3://bucket/rows.csv", "s3://bucket/rows.zarr").code == 0
    assert run("train", "s3://bucket/rows.zarr", "--out", tmp_path / "run").code == 0
    for place, out in (("s3://bucket", "there"), (tmp_path, "here")):
        assert run("predict", tmp_path / "run", f"{place}/rows.csv", "--out", tmp_path / f"{out}.csv").code == 0
    assert (tmp_path / "there.csv").read_bytes() == (tmp_path / "here.csv").read_bytes()
    assert run("evaluate", tmp_path / "run", "s3://bucket/rows.csv", "--json").result["accuracy"] > 0.9


@pytest.mark.parametrize("name", ["rows.csv", "rows.txt", "rows.parquet", "rows.npz", "rows.npy"])
def test_a_missing_file_is_told(name: str, server: ObjectServer, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=f"^s3://bucket/{name}: No such file or directory"):
        ingest(f"s3://bucket/{name}", tmp_path / "rows.zarr")


@pytest.mark.parametrize("name", ["rows.csv", "rows.txt", "rows.parquet"])
def test_a_file_that_is_replaced_while_it_is_read_is_refused(
    name: str, server: ObjectServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "RANGE_BYTES", 1000)
    monkeypatch.setattr(files, "RANGES_AHEAD", 1)
    key, content = f"bucket/{name}", make_files(tmp_path)[name]
    server.objects[key] = content

    def replace(request: Request) -> str | None:
        if request.range is not None and request.range[0] == 1000:
            server.objects[key] = content[:-2] + b"5\n"
        return None

    server.fault = replace
    with pytest.raises(InputError, match=f"^s3://bucket/{name}: "):
        ingest(f"s3://bucket/{name}", tmp_path / "rows.zarr")
    assert not (tmp_path / "rows.zarr").exists()
