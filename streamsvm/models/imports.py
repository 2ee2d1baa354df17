"""The import of linear models from the files of LIBLINEAR, and of LIBSVM with the linear kernel.

LIBLINEAR: the lines before `w` name the solver, the labels and the numbers of classes and features. Each line after it
has the weights of one feature, one for each class if there are more than two. If `bias` is at least 0, one more line
has the weights of a feature that has this value in all rows. Source: `load_model` in LIBLINEAR's linear.cpp.

LIBSVM: f(x) = sum_j c_j z_j.x - rho = w.x + b. The lines before `SV` name the type, the kernel, the labels and rho.
Each line after it has c_j and the items of z_j. A score above 0 is for the first label. Source: `svm_load_model` in
svm.cpp.

Such a model can predict, and training can start from it. It has no certificate, because its training rows are not
known.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from itertools import islice
from pathlib import Path
from typing import TextIO

import numpy as np

from streamsvm.kernels.stored_parts import MOST_FEATURES
from streamsvm.models.model import LinearModel
from streamsvm.numeric.rows import F64
from streamsvm.system.errors import InputError, say_count

LOSSES = {
    "L2R_L1LOSS_SVC_DUAL": "hinge",
    **dict.fromkeys(("L2R_L2LOSS_SVC", "L2R_L2LOSS_SVC_DUAL", "L1R_L2LOSS_SVC"), "squared_hinge"),
    **dict.fromkeys(("L2R_LR", "L2R_LR_DUAL", "L1R_LR"), "logistic"),
}
NAMES = ("solver_type", "nr_class", "label", "nr_feature", "bias")
MOST_LINE = 1 << 24  # characters; a line has a number for each class
MOST_CLASSES = 1 << 20
LIBSVM_NAMES = ("gamma", "degree", "coef0", "probA", "probB", "prob_density_marks", "total_sv", "nr_sv")
NEEDED = ("svm_type", "kernel_type", "nr_class", "rho", "label")
FIRST = b"svm_type"  # the word that a model file of LIBSVM begins with


def read_model_file(path: str | Path) -> LinearModel:
    """Return the linear classifier of a model file of LIBLINEAR or LIBSVM, for raw rows.

    Raises
    ------
    InputError
        If it is not such a file, if streamsvm does not have its loss, or if a model of LIBSVM is not linear or has more
        than two classes.
    """
    program, read = "LIBLINEAR", _read_liblinear
    try:
        with Path(path).open("rb") as file, TextIOWrapper(file, encoding="ascii") as text:
            if file.read(len(FIRST)) == FIRST:
                program, read = "LIBSVM", _read_libsvm
            file.seek(0)
            return read(text)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a model file of {program}: it is not text") from None
    except (ValueError, OverflowError) as error:
        raise InputError(f"{path}: not a model file of {program} that can be read ({error})") from error


def _read_head(file: TextIO, end: str, needed: Sequence[str], known: Sequence[str] = ()) -> dict[str, list[str]]:
    """Return the values of the lines before the line `end`, by name; ValueError for unknown or missing names."""
    head: dict[str, list[str]] = {}
    while (words := file.readline(MOST_LINE).split()) != [end]:
        if len(words) < 2 or words[0] not in (*known, *needed) or words[0] in head:
            raise ValueError(f"{' '.join(words)[:40]!r} where one of {', '.join(needed)} and its value are expected")
        head[words[0]] = words[1:]
    if missing := [name for name in needed if name not in head]:
        raise ValueError(f"{missing[0]} is missing")
    return head


def _read_liblinear(file: TextIO) -> LinearModel:
    """Return the model in a file; ValueError for an unsuitable part."""
    head = _read_head(file, "w", NAMES)
    solver = head["solver_type"][0]
    if solver not in LOSSES:
        raise ValueError(f"solver_type is {solver[:40]!r}; the supported ones are {', '.join(LOSSES)}")
    labels = [int(label) for label in head["label"]]
    if len(labels) != int(head["nr_class"][0]) or not 2 <= len(set(labels)) == len(labels) <= MOST_CLASSES:
        raise ValueError("label does not list nr_class different labels, two or more")
    d, bias = int(head["nr_feature"][0]), float(head["bias"][0])
    if not 1 <= d <= MOST_FEATURES or not math.isfinite(bias):
        raise ValueError("nr_feature or bias has an impossible value")
    n_scores = len(labels) if len(labels) > 2 else 1
    w = _read_weights(file, d + (bias >= 0), n_scores)
    b = bias * w[:, d] if bias >= 0 else np.zeros(n_scores)
    order = np.argsort(labels)
    classes = np.array(sorted(labels), np.int64)
    info = {"solver": f"liblinear {solver}", "task": "classify", "loss": LOSSES[solver]}
    if n_scores == 1:
        sign = 1.0 if order[0] else -1.0  # a score above 0 is for the first label there, for the larger one here
        return LinearModel(sign * w[0, :d], float(sign * b[0]), classes, info=info)
    return LinearModel(np.ascontiguousarray(w[order, :d]), b[order], classes, info=info)


def _read_weights(file: TextIO, n_lines: int, n_scores: int) -> F64:
    """Return the weights of each score, (n_scores, n_lines)."""

    def read_numbers() -> Iterator[float]:
        for number in range(n_lines):
            words = file.readline(MOST_LINE).split()
            if len(words) != n_scores:
                where = f"line {number + 1:,} after w"
                raise ValueError(f"{where} has {say_count(len(words), 'number')}; {n_scores} are expected")
            yield from map(float, words)

    found = np.fromiter(read_numbers(), np.float64).reshape(n_lines, n_scores)
    if any(line.strip() for line in islice(file, 1)):
        raise ValueError("there are more lines after the weights")
    if not np.isfinite(found).all():
        raise ValueError("a weight is not finite")
    return np.ascontiguousarray(found.T)


def _read_libsvm(file: TextIO) -> LinearModel:
    """Return the model in a file; ValueError for an unsuitable part."""
    head = _read_head(file, "SV", NEEDED, LIBSVM_NAMES)
    kind, kernel = head["svm_type"][0], head["kernel_type"][0]
    if kind not in ("c_svc", "nu_svc") or kernel != "linear" or head["nr_class"][0] != "2":
        what = f"it is {kind[:20]} of {head['nr_class'][0][:20]} classes with the kernel {kernel[:20]}"
        raise ValueError(f"{what}; only c_svc and nu_svc of two classes with the linear kernel are supported")
    labels, b = [int(label) for label in head["label"]], -float(head["rho"][0])
    if len(labels) != 2 or labels[0] == labels[1]:
        raise ValueError("label does not list two different labels")
    w = _add_vectors(file)
    if not (np.isfinite(w).all() and math.isfinite(b)):
        raise ValueError("a number is not finite")
    sign = 1.0 if labels[0] > labels[1] else -1.0  # a score above 0 is for the larger label here
    info = {"solver": f"libsvm {kind}", "task": "classify", "loss": "hinge"}
    return LinearModel(sign * w, sign * b, np.array(sorted(labels), np.int64), info=info)


def _add_vectors(file: TextIO) -> np.ndarray:
    """Return w = sum_j c_j z_j, whose length is the largest index."""
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
