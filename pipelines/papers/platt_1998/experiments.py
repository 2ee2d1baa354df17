"""The experiments of Platt 1998: the rows of Tables 1 and 2, and their data."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

import streamsvm
from pipelines.data import LIBSVM_PAGE, DataFolder, open_packed
from streamsvm.data.store.dataset import Dataset
from streamsvm.kernels.kernel import Kernel
from streamsvm.numeric.rows import Rows
from streamsvm.system.errors import InputError

LINEAR = Kernel("linear")
QUINTIC = Kernel("poly", gamma=0.05, degree=5)  # gamma does not matter, since no multiplier reaches C
GAUSSIAN = Kernel("rbf", gamma=0.05)  # "variance of 10" read as sigma^2 = 10: exp(-d^2 / (2 sigma^2))
OTHER_READING = Kernel("rbf", gamma=0.1)  # the same words, read as 2 sigma^2 = 10
FILES = {"adult": ("a6a", "a7a"), "web": ("w8a",), "mnist": ("train-images-idx3-ubyte",)}


@dataclass(frozen=True)
class Experiment:
    """A row of Tables 1 and 2. The seconds and the exponent are the published ones of SMO."""

    name: str
    data: str
    kernel: Kernel
    C: float
    layout: str
    cached: bool
    n_rows: int
    n_support: int
    seconds: float
    exponent: float | None


EXPERIMENTS = (
    Experiment("AdultLin", "adult", LINEAR, 0.05, "sparse", False, 11221, 4158, 13.7, 1.8),
    Experiment("AdultLinD", "adult", LINEAR, 0.05, "dense", False, 11221, 4158, 21.9, 1.0),
    Experiment("WebLin", "web", LINEAR, 1, "sparse", False, 49749, 1723, 339.9, 1.6),
    Experiment("WebLinD", "web", LINEAR, 1, "dense", False, 49749, 1723, 4589.1, 1.5),
    Experiment("AdultGaussK", "adult", GAUSSIAN, 1, "sparse", True, 11221, 4206, 442.4, 2.0),
    Experiment("AdultGauss", "adult", GAUSSIAN, 1, "sparse", False, 11221, 4206, 523.3, 2.0),
    Experiment("AdultGaussKD", "adult", GAUSSIAN, 1, "dense", True, 11221, 4206, 1433.0, 2.5),
    Experiment("AdultGaussD", "adult", GAUSSIAN, 1, "dense", False, 11221, 4206, 1810.2, 2.0),
    Experiment("WebGaussK", "web", GAUSSIAN, 5, "sparse", True, 49749, 4484, 2477.9, 1.6),
    Experiment("WebGauss", "web", GAUSSIAN, 5, "sparse", False, 49749, 4484, 2538.0, 1.6),
    Experiment("WebGaussKD", "web", GAUSSIAN, 5, "dense", True, 49749, 4484, 23365.3, 2.6),
    Experiment("WebGaussD", "web", GAUSSIAN, 5, "dense", False, 49749, 4484, 24758.0, 1.6),
    Experiment("MNIST", "mnist", QUINTIC, 100, "sparse", False, 60000, 3450, 19387.9, None),
)


class Data:
    """The datasets of the experiments. Each is written on its first use."""

    def __init__(self, folder: DataFolder, work: Path, most_rows: int | None) -> None:
        self.work, self.most_rows = work, most_rows
        self.files = {name: file for name, files in FILES.items() if (file := folder.find(*files)) is not None}
        if "adult" not in self.files:
            raise folder.explain_missing(f"a7a from {LIBSVM_PAGE}")

    def limit(self, n_rows: int) -> int:
        """Return the number of rows to use for an experiment with n_rows rows."""
        return min(n_rows, self.most_rows or n_rows)

    def open(self, name: str, layout: str) -> Dataset:
        """Open a dataset of FILES with sparse or dense rows."""
        place, file = self.work / f"{name}-{layout}.zarr", self.files[name]
        if place.exists():
            return streamsvm.open(place)
        if name != "mnist":
            return streamsvm.ingest(file, place, layout=layout)
        images = read_idx(file).reshape(-1, 784).astype(np.float32) / 255
        digits = read_idx(file.with_name(file.name.replace("images-idx3", "labels-idx1")))
        return streamsvm.ingest(images, place, np.where(digits == 8, 1, -1), layout=layout)

    def take(self, name: str, layout: str, n_rows: int) -> Rows:
        """Return the first n_rows rows of a dataset, in memory. The dataset was shuffled when it was written."""
        dataset = self.open(name, layout)
        return dataset.take(np.arange(min(n_rows, dataset.n_rows)))


def read_idx(file: Path) -> npt.NDArray[np.uint8]:
    """Read MNIST's file format: two zeros, the type (8: bytes), the number of dimensions, their sizes, the values."""
    with open_packed(file) as packed:
        content = packed.read()
    if content[:3] != b"\0\0\x08":
        raise InputError(f"{file} is no idx file of bytes; download it again from MNIST's page")
    shape = np.frombuffer(content, ">u4", content[3], 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)
