"""Models for other programs, in a file that they read."""

from __future__ import annotations

from pathlib import Path

from streamsvm.data.destination import check_file, new_file
from streamsvm.errors import InputError
from streamsvm.models.exports.formats import find_writer
from streamsvm.models.model import Model

NO_MAP = "the model learned from features that a map makes of the rows, and no format of `export` carries a map"


def export(model: Model, out: str | Path, to: str, overwrite: bool = False) -> tuple[str, ...]:
    """Write a model to a file that another program reads, wholly or not at all.

    The other program gives raw rows the scores that the model gives them: a scaling of the training rows is folded into
    the weights of linear models, x' = (x - o) * s:

        w.x' + b = (w * s).x + b - (w * s).o

    Parameters
    ----------
    model : LinearModel, RankModel or KernelModel
    out : path
    to : {"liblinear", "libsvm", "onnx", "csv", "json"}
        The format: a model file of LIBLINEAR or LIBSVM, a graph of ONNX, a table of the weights, or a description.
    overwrite : bool, default=False
        Whether a file of this name is replaced.

    Returns
    -------
    tuple of str
        Sentences about what the format has no place for, such as names of classes.

    Raises
    ------
    InputError
        If the format has no such models, or if the file cannot be written.
    """
    write = find_writer(to)
    if model.features is not None:
        raise InputError(f"{NO_MAP}; use `predict`, or train without --map")
    out = Path(out)
    check_file(out, overwrite)
    exported = write(model)
    with new_file(out, overwrite) as file:
        for part in exported.parts:
            file.write(part if isinstance(part, bytes) else part.encode())
    return exported.notes
