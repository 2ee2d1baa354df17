"""Public data as rows of two classes, for the benchmarks of linear SVMs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array, vstack
from sklearn.datasets import load_svmlight_file
from sklearn.feature_extraction.text import TfidfTransformer

from streamsvm.data.sources.in_memory import ArrayDataset


def load(folder: Path, name: str) -> ArrayDataset:
    """Return rows and labels of two classes."""
    if name == "covtype":
        rows = np.loadtxt(folder / "covtype/covtype.csv", delimiter=",", dtype=np.float32, skiprows=1)
        return _make(rows[:, :-1] / np.maximum(1, np.abs(rows[:, :-1]).max(axis=0)), rows[:, -1] == 1)
    if name in ("news20", "bydate"):
        path = {"news20": "news20/news20", "bydate": "newsgroups_lda/news20bydate.train.svm"}[name]
        counts, labels = load_svmlight_file(str(folder / path))
        first_ten = np.isin(labels, np.unique(labels)[:10])
        return _make(csr_array(TfidfTransformer().fit_transform(counts)), first_ten)
    if name == "skin":
        rows = np.loadtxt(folder / "skin_nonskin/Skin_NonSkin.txt", delimiter=",", dtype=np.float32, skiprows=1)
        return _make(rows[:, :-1] / 255, rows[:, -1] == 1)
    if name == "waveform":
        table = np.loadtxt(folder / "waveform/waveform.data", delimiter=",", dtype=str, skiprows=1)
        return _make(table[:, :-1].astype(np.float32), table[:, -1] == "y1")
    paths = {
        "a9a": ["adult/a9a"],
        "w8a": ["web/w8a"],
        "ijcnn1": ["ijcnn1/ijcnn1.trn", "ijcnn1/ijcnn1.val"],
        "phishing": ["phishing/phishing"],
        "mushrooms": ["mushrooms/mushrooms"],
        "letter": ["letter/letter.scale"],
        "splice": ["splice_libsvm/splice.txt"],
        "banana": ["banana/banana.all.txt"],
    }[name]
    loaded = [load_svmlight_file(str(folder / path)) for path in paths]
    X, y = csr_array(vstack([X for X, _ in loaded])), np.concatenate([y for _, y in loaded])
    return _make(X, y <= 13 if name == "letter" else y == np.max(y))  # the letters A to M, or the second of two classes


def _make(X: Any, positive: npt.NDArray[np.bool_]) -> ArrayDataset:
    return ArrayDataset(X.astype(np.float32), positive.astype(np.int32), np.array([-1, 1]))
