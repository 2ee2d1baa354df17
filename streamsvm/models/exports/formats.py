"""The formats by name. The module of a format is imported on first use, so an entry here costs nothing."""

from __future__ import annotations

from typing import NamedTuple


class Format(NamedTuple):
    """The writer of a format, "package.module:name", and its help on the command line."""

    writer: str
    help: str


FORMATS = {
    "liblinear": Format("streamsvm.models.exports.libsvm:write_liblinear", "a model file of LIBLINEAR"),
    "libsvm": Format("streamsvm.models.exports.libsvm:write_libsvm", "a model file of LIBSVM"),
    "onnx": Format("streamsvm.models.exports.onnx_graph:write_onnx", "a graph of ONNX"),
    "csv": Format("streamsvm.models.exports.texts:write_csv", "a table of the weights by feature"),
    "json": Format("streamsvm.models.exports.texts:write_json", "the whole model, as text"),
}
