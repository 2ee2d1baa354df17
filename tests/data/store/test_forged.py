"""Forged datasets: every checksum is right, and yet what they hold would lead compiled code astray."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from streamsvm.cli.info import verify
from streamsvm.data.open import open_dataset
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.manifest import FEATURES
from streamsvm.kernels.kernel import Kernel
from streamsvm.runs.features import make_features
from streamsvm.solvers.options import FeatureOptions
from streamsvm.system.errors import InputError, IntegrityError
from tests.data.conftest import Write, make_rows
from tests.data.forging import FORGERIES, edit_manifest, forge, set_fact, shorten_last_row
from tests.kernel_problems import ask_for

CASES = [(kind, name) for kind, forgeries in FORGERIES.items() for name in forgeries]


@pytest.fixture(scope="module")
def genuine(write: Write, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A dataset of each kind, with at least 4 chunks."""
    folder, number = tmp_path_factory.mktemp("genuine"), np.arange(200.0)
    made = {kind: folder / kind for kind in ("dense", "sparse", "features")}
    for layout in ("dense", "sparse"):
        options: dict[str, Any] = {"layout": layout, "chunk_bytes": 960, "scale": "maxabs"}
        write(make_rows(0), number % 3, number / 7, np.arange(200) // 9, to=made[layout], **options)
    rows = write(make_rows(0), number % 3, layout="dense")
    options = FeatureOptions("cholesky", 5, chunk_bytes=960)
    make_features(rows, made["features"], options, ask_for(Kernel("rbf", 0.5)))
    return made


def take_all(dataset: Dataset) -> None:
    dataset.take(np.arange(dataset.n_rows)[::-1])
    dataset.take(np.arange(0, dataset.n_rows, 2))
    dataset.sum_weights()


def read_all(dataset: Dataset) -> None:
    for index in range(dataset.n_chunks):
        dataset.read(index)


@pytest.mark.parametrize("kind", FORGERIES)
def test_the_genuine_datasets_are_verified(kind: str, genuine: dict[str, Path]) -> None:
    assert verify(open_dataset(genuine[kind])) == {"verified_rows": 200, "verified": True}


@pytest.mark.parametrize(("kind", "name"), CASES)
def test_what_is_forged_is_refused(kind: str, name: str, genuine: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "forged.zarr"
    shutil.copytree(genuine[kind], path)
    FORGERIES[kind][name](path)
    for run in (verify, take_all, read_all):
        if run is take_all and name == "chunks begin elsewhere":
            continue  # rows by number are the same rows
        with pytest.raises(InputError) as caught:
            run(open_dataset(path))
        assert str(path) in str(caught.value)


@pytest.mark.parametrize(("row", "limit"), [(0, 1), (199, None)], ids=["first", "last"])
def test_a_row_taken_alone_meets_the_ends_of_all_items(
    row: int, limit: int | None, genuine: dict[str, Path], tmp_path: Path
) -> None:
    path = tmp_path / "forged.zarr"
    shutil.copytree(genuine["sparse"], path)
    if limit is None:
        shorten_last_row(path)
    else:
        forge(path, "X/indptr", 0, limit)
    with pytest.raises(IntegrityError, match=r"X/indptr/c/\d+: row limits"):
        open_dataset(path).take(np.array([row]))


def test_counts_of_classes_are_compared_with_the_rows(genuine: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "forged.zarr"
    shutil.copytree(genuine["dense"], path)
    set_fact("class_counts", [66, 67, 67])(path)
    with pytest.raises(IntegrityError, match="'class_counts'"):
        verify(open_dataset(path))


def test_names_of_arrays_do_not_lead_out_of_the_dataset(genuine: dict[str, Path], tmp_path: Path) -> None:
    for foreign in ("features/../../other", "/etc/passwd", "X/../y", FEATURES + "evil", "features/rows/../matrix"):
        path = tmp_path / "forged.zarr"
        shutil.copytree(genuine["features"], path)

        def list_it(meta: dict[str, Any], foreign: str = foreign) -> None:
            meta["arrays"][foreign] = meta["arrays"]["features/matrix"]

        edit_manifest(path, list_it)
        with pytest.raises(IntegrityError, match="lists unknown arrays"):
            open_dataset(path)
        shutil.rmtree(path)


def test_a_finite_sum_is_not_needed(write: Write) -> None:
    """Values whose sum overflows are as good as others: each is looked at before they are refused."""
    X = np.full((300, 4), 3e38, np.float32)
    for layout in ("dense", "sparse"):
        dataset = write(X, np.arange(300.0) % 2, layout=layout)
        assert verify(dataset)["verified_rows"] == 300
        assert dataset.take([3, 5]).n_rows == 2
