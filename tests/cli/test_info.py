"""What `info` and `evaluate` say of a dataset and of a model."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from scipy.sparse import csr_array

from streamsvm import ingest
from streamsvm.cli.info import describe, format_description, format_evaluation, verify
from streamsvm.data.open import open_dataset
from streamsvm.system.errors import IntegrityError
from tests.conftest import make_problem


def test_a_dense_dataset(tmp_path: Path) -> None:
    problem = make_problem(1, n=300, d=6)
    about = describe(problem.store(tmp_path / "rows.zarr", chunk_bytes=2400, scale="minmax"))
    expected: dict[str, Any] = {
        "path": str(tmp_path / "rows.zarr"),
        "n_rows": 300,
        "n_features": 6,
        "sparse": False,
        "density": 1.0,
        "classes": {"-1": int(np.sum(problem.y == -1)), "1": int(np.sum(problem.y == 1))},
        "vectors": ["y"],
        "n_chunks": 3,
        "largest_chunk_rows": 100,
        "bytes": 300 * (6 * 4 + 4),
        "codec": "crc32c",
        "scaling": "minmax",
        "shuffle": None,
        "source": "X",
        "manifest": True,
    }
    assert expected.items() <= about.items()
    assert len(about["fingerprint"]) == 64
    assert json.loads(json.dumps(about)) == about


def test_a_sparse_dataset_with_weights(tmp_path: Path) -> None:
    problem = make_problem(2, n=100, d=20, density=0.1, weighted=True)
    assert isinstance(problem.X, csr_array)
    about = describe(problem.store(tmp_path / "rows.zarr", codec="lz4"))
    assert about["sparse"]
    assert about["density"] == pytest.approx(problem.X.nnz / 2000)
    assert about["vectors"] == ["sample_weight", "y"]
    assert about["bytes"] == 8 * problem.X.nnz + 8 * 101 + (4 + 8) * 100
    assert (about["codec"], about["scaling"]) == ("lz4", "none")


def test_verification_reads_every_row_and_names_what_is_damaged(tmp_path: Path) -> None:
    dataset = make_problem(3, n=300).store(tmp_path / "rows.zarr", chunk_bytes=2400)
    assert verify(dataset) == {"verified_rows": 300, "verified": True}
    last = sorted((tmp_path / "rows.zarr/X/c").glob("*/0"))[-1]
    content = last.read_bytes()
    last.write_bytes(content[:-1] + bytes([content[-1] ^ 128]))
    with pytest.raises(IntegrityError, match=last.relative_to(tmp_path).as_posix()):
        verify(open_dataset(tmp_path / "rows.zarr"))


def test_lines_for_people(tmp_path: Path) -> None:
    y = np.arange(1200) % 12
    dataset = ingest(np.eye(12, dtype=np.float32)[y], tmp_path / "rows.zarr", y, layout="sparse", scale="maxabs")
    text = format_description(describe(dataset) | verify(dataset))
    assert [line.strip() for line in text.splitlines()] == [
        str(tmp_path / "rows.zarr"),
        "rows      1,200",
        "features  12, sparse, 8.33% not zero",
        "chunks    1, at most 1,200 rows each, 24.0 kB in all, codec crc32c",
        "scaling   maxabs",
        "classes   0: 100, 1: 100, 2: 100, 3: 100, 4: 100, 5: 100, 6: 100, 7: 100, 8: 100, 9: 100, and 2 more",
        "all 1,200 rows verified",
    ]


def test_queries_and_groups_are_counted(tmp_path: Path) -> None:
    number = np.arange(600)
    X, groups = np.ones((600, 2), np.float32), number % 7
    about = describe(ingest(X, tmp_path / "rows.zarr", number % 2, qid=number // 20, groups=groups, chunk_bytes="1kB"))
    assert (about["n_chunks"], about["n_queries"], about["n_groups"]) == (5, 30, 7)
    text = format_description(about)
    assert "  queries   30 (train --task rank)\n  groups    7, each held out whole by tune" in text


def test_files_of_others_have_no_manifest(tmp_path: Path) -> None:
    problem = make_problem(4, n=50)
    dataset = problem.store(tmp_path / "rows.zarr")
    foreign = tmp_path / "anndata.zarr"
    group = zarr.open_group(str(foreign), mode="w", zarr_format=3)
    group.create_array("X", data=problem.dense())
    group.create_group("obs")
    about = describe(open_dataset(foreign)) | verify(open_dataset(foreign))
    assert (about["n_rows"], about["density"], about["classes"]) == (50, None, None)
    assert (about["manifest"], about["verified"]) == (False, False)
    text = format_description(about)
    assert "no manifest, so a damaged chunk may go unnoticed" in text
    assert "all 50 rows read (there is no manifest to verify them with)" in text
    assert "None" not in text
    shutil.rmtree(foreign)
    assert "manifest" not in format_description(describe(dataset))


def test_an_evaluation_for_people() -> None:
    parts = {
        "no": {"rows": 3, "recall": 2 / 3, "precision": 1.0, "f1": 0.8},
        "yes": {"rows": 1000, "recall": None, "precision": None, "f1": None},
    }
    scores = {"n_rows": 1005, "accuracy": 0.75, "roc_area": 0.5, "average_precision": 0.25, "unknown_labels": 2}
    scores |= {"classes": parts, "confusion": [[2, 1], [0, 1000]]}
    assert format_evaluation(scores).splitlines() == [
        "accuracy 0.7500 on 1,005 rows, ROC area 0.5000, average precision 0.2500",
        "     class  precision  recall      F1  support",
        "        no     1.0000  0.6667  0.8000        3",
        "       yes          -       -       -    1,000",
        "    (mean)     1.0000  0.6667  0.8000    1,003",
        "  true class, and predicted as:",
        "         no    yes",
        "     no   2      1",
        "    yes   0  1,000",
        "  2 rows have a label that the model does not know",
    ]
    assert "ROC" not in format_evaluation(scores | {"roc_area": None, "unknown_labels": 0})
