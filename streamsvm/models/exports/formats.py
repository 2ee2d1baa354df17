"""The formats by name. The module of a format is imported when it is needed, so that a line here costs nothing."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from streamsvm.errors import InputError

if TYPE_CHECKING:
    from streamsvm.models.exports.exported import Exported
    from streamsvm.models.model import Model


class Format(NamedTuple):
    """The module and the name of a format's writer, and one line for the command line."""

    module: str
    writer: str
    help: str


FORMATS = {
    "liblinear": Format("streamsvm.models.exports.liblinear", "write_liblinear", "a model file of LIBLINEAR"),
    "libsvm": Format("streamsvm.models.exports.libsvm", "write_libsvm", "a model file of LIBSVM"),
    "onnx": Format("streamsvm.models.exports.onnx_graph", "write_onnx", "a graph of ONNX"),
    "csv": Format("streamsvm.models.exports.csv_table", "write_csv", "a table of the weights by feature"),
    "json": Format("streamsvm.models.exports.json_text", "write_json", "all that the model is, as text"),
}


def find_writer(name: str) -> Callable[[Model], Exported]:
    """Return the writer of the format with this name; InputError if there is none."""
    if name not in FORMATS:
        raise InputError(f"format {name!r}: choose from {', '.join(FORMATS)}")
    writer: Callable[[Model], Exported] = getattr(import_module(FORMATS[name].module), FORMATS[name].writer)
    return writer
