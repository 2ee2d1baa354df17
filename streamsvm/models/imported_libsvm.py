"""A model file of LIBSVM with the linear kernel becomes a linear model, to predict with and to start from.

    f(x) = sum_j c_j z_j.x - rho = w.x + b

The lines before `SV` name the type, the kernel, the labels and rho; then a line has c_j and the items of z_j. A score
above 0 is for the first label. Nothing is known of the rows, so that such a model has no certificate.
Source: `svm_load_model` in LIBSVM's svm.cpp.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import TextIO

import numpy as np

from streamsvm.errors import InputError
from streamsvm.models.model import LinearModel
from streamsvm.numeric.saved_parts import MOST_FEATURES

NAMES = ("gamma", "degree", "coef0", "probA", "probB", "prob_density_marks", "total_sv", "nr_sv")
NEEDED = ("svm_type", "kernel_type", "nr_class", "rho", "label")
FIRST = "svm_type"  # the word that a model file of LIBSVM begins with


def is_libsvm(path: str | Path) -> bool:
    """Tell whether a file begins as a model file of LIBSVM does."""
    try:
        with Path(path).open("rb") as file:
            return file.read(len(FIRST)) == FIRST.encode()
    except OSError:  # reading the file reports it
        return False


def read_libsvm(path: str | Path) -> LinearModel:
    """Return the linear classifier of two classes of a model file of LIBSVM, for raw rows.

    Raises
    ------
    InputError
        If it is no such file, or if its model is no linear classifier of two classes.
    """
    try:
        with Path(path).open(encoding="ascii") as file:
            return _read(file)
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (ValueError, OverflowError) as error:
        raise InputError(f"{path}: this is no model file of LIBSVM that can be read ({error})") from error


def _read(file: TextIO) -> LinearModel:
    """Return the model of a file; ValueError for an unsuitable part."""
    head = _read_head(file)
    kind, kernel = head["svm_type"][0], head["kernel_type"][0]
    if kind not in ("c_svc", "nu_svc") or kernel != "linear" or head["nr_class"][0] != "2":
        what = f"it is {kind[:20]} of {head['nr_class'][0][:20]} classes with the kernel {kernel[:20]}"
        raise ValueError(f"{what}; c_svc and nu_svc of two classes with the linear kernel are read")
    labels, b = [int(label) for label in head["label"]], -float(head["rho"][0])
    if len(labels) != 2 or labels[0] == labels[1]:
        raise ValueError("label has not two different labels")
    w = _add_vectors(file)
    if not (np.isfinite(w).all() and math.isfinite(b)):
        raise ValueError("a number is not finite")
    sign = 1.0 if labels[0] > labels[1] else -1.0  # a score above 0 is for the larger label here
    info = {"solver": f"libsvm {kind}", "task": "classify", "loss": "hinge"}
    return LinearModel(sign * w, sign * b, np.array(sorted(labels), np.int64), info=info)


def _read_head(file: TextIO) -> dict[str, list[str]]:
    """Return the values of the lines before `SV` by name; all of NEEDED are there."""
    head: dict[str, list[str]] = {}
    while (words := file.readline().split()) != ["SV"]:
        if len(words) < 2 or words[0] not in (*NAMES, *NEEDED) or words[0] in head:
            raise ValueError(f"{' '.join(words)[:40]!r} where one of {', '.join(NEEDED)} and its value are expected")
        head[words[0]] = words[1:]
    if missing := [name for name in NEEDED if name not in head]:
        raise ValueError(f"{missing[0]} is missing")
    return head


def _add_vectors(file: TextIO) -> np.ndarray:
    """Return w = sum_j c_j z_j; it has as many features as the largest index."""
    sums: dict[int, float] = {}
    for number, line in enumerate(file, 1):
        coef, *items = line.split() or [""]
        for item in items:
            index, found, value = item.partition(":")
            j = int(index)
            if not found or not 1 <= j <= MOST_FEATURES:
                raise ValueError(f"line {number:,} after SV has {item[:40]!r} where index:value is expected")
            sums[j] = sums.get(j, 0.0) + float(coef) * float(value)
    if not sums:
        raise ValueError("there are no support vectors")
    w = np.zeros(max(sums))
    w[np.fromiter(sums, np.int64) - 1] = np.fromiter(sums.values(), np.float64)
    return w
