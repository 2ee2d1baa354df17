"""Tables 1 and 2 of Platt 1998: his support vectors, relative times and scaling exponents beside ours.

    python pipelines/papers/platt_1998.py --data FOLDER [--out FOLDER] [--small]

FOLDER holds, plain or .xz, itself or in subfolders adult, web and mnist: a7a (or a6a, the very rows of the paper) and
w8a of the LIBSVM site, and MNIST's train-images-idx3-ubyte and train-labels-idx1-ubyte. Experiments without their data
are left out. Prints Markdown; --out keeps it, with a log-log picture of seconds against rows (needs matplotlib: the
extra `plots`). --small: at most 2,000 rows of each. Exit status: 0 if all runs converged, 1 if not, 2 without data.

The solver is the paper's (two loops, a step a pair, shrinking, tol 1e-3), in one thread; times are CPU seconds, as his.
Subsets for the exponents are nested and random: the first rows of a dataset that was shuffled when it was written.
"""

from __future__ import annotations

import argparse
import lzma
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import numpy.typing as npt

import streamsvm
from streamsvm.data.dataset import Dataset
from streamsvm.errors import InputError
from streamsvm.methods.decomposition.platt import PlattResult, solve_by_platt
from streamsvm.numeric.kernels import Kernel
from streamsvm.numeric.rows import Rows

SMALL_ROWS = 2000
CACHE_BYTES = 40 * 10**6
LINEAR = Kernel("linear")
QUINTIC = Kernel("poly", gamma=0.05, degree=5)  # with no multiplier at C, as he says, gamma plays no part
GAUSSIAN = Kernel("rbf", gamma=0.05)  # "variance of 10": sigma^2 = 10, exp(-d^2 / (2 sigma^2))
OTHER_READING = Kernel("rbf", gamma=0.1)  # 2 sigma^2 = 10
FILES = {"adult": ("a6a", "a7a"), "web": ("w8a",), "mnist": ("train-images-idx3-ubyte",)}


@dataclass(frozen=True)
class Experiment:
    """A row of Tables 1 and 2; seconds and exponent are SMO's."""

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
HEADER = (
    "| experiment | C | inputs | cache | rows | support vectors, his | ours (at C + free) "
    "| time / AdultLin, his | ours | CPU seconds | exponent, his | ours | kernel evaluations |"
)
READINGS = "| data | 2 sigma^2 | support vectors, his | ours | difference |"


@dataclass(frozen=True)
class Measured:
    """An experiment's subsets, CPU seconds on each, and the solution on all rows."""

    sizes: list[int]
    seconds: list[float]
    result: PlattResult
    C: float

    def fit_exponent(self) -> float | None:
        """Slope of the line through the log of seconds against the log of rows."""
        if len(self.sizes) < 2:
            return None
        return float(np.polyfit(np.log(self.sizes), np.log(self.seconds), 1)[0])

    def count_support(self) -> tuple[int, int]:
        """Support vectors at C, and free ones."""
        at_bound = np.count_nonzero(self.result.alpha == self.C)
        return int(at_bound), int(np.count_nonzero(self.result.alpha)) - int(at_bound)


def main() -> int:
    options = parse_arguments()
    try:
        if options.out is not None:
            import matplotlib  # noqa: F401  before hours of work, not after

            options.out.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory() as work:
            text, measured = run_all(Data(options.data, Path(work), SMALL_ROWS if options.small else None))
    except ImportError:
        print('platt_1998.py: --out draws with matplotlib: python -m pip install "streamsvm[plots]"', file=sys.stderr)
        return 2
    except InputError as error:
        print(f"platt_1998.py: {error}", file=sys.stderr)
        return 2
    if options.out is not None:
        (options.out / "platt_1998.md").write_text(text)
        draw(measured, options.out / "platt_1998.png")
    failed = [name for name, one in measured.items() if not one.result.converged]
    if failed:
        print(f"platt_1998.py: no convergence: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Platt 1998, Tables 1 and 2")
    default = os.environ.get("STREAMSVM_DATA")
    parser.add_argument(
        "--data", type=Path, default=default and Path(default), help="folder of the text files ($STREAMSVM_DATA)"
    )
    parser.add_argument("--out", type=Path, help="keep the tables and a picture in this folder")
    parser.add_argument("--small", action="store_true", help=f"at most {SMALL_ROWS:,} rows of each data set")
    return parser.parse_args()


class Data:
    """The datasets of a folder, each written when it is first asked for."""

    def __init__(self, folder: Path | None, work: Path, most_rows: int | None) -> None:
        self.folder, self.work, self.most_rows = folder, work, most_rows
        self.files = {name: file for name in FILES if (file := find_file(folder, name)) is not None}
        if "adult" not in self.files:
            raise InputError(
                f"a7a not found {f'in {folder}' if folder else '(--data and $STREAMSVM_DATA name no folder)'}: get it "
                "from the LIBSVM site's page 'LIBSVM Data: Classification (Binary Class)'; name its folder by --data"
            )

    def limit(self, n_rows: int) -> int:
        """Return how many of an experiment's rows are asked for."""
        return min(n_rows, self.most_rows or n_rows)

    def open(self, name: str, layout: str) -> Dataset:
        """Open the dataset of one of FILES as sparse or dense rows."""
        place, file = self.work / f"{name}-{layout}.zarr", self.files[name]
        if place.exists():
            return streamsvm.open(place)
        if name != "mnist":
            return streamsvm.ingest(file, place, layout=layout)
        images = read_idx(file).reshape(-1, 784).astype(np.float32) / 255
        digits = read_idx(file.with_name(file.name.replace("images-idx3", "labels-idx1")))
        return streamsvm.ingest(images, place, np.where(digits == 8, 1, -1), layout=layout)

    def take(self, name: str, layout: str, n_rows: int) -> Rows:
        """Rows in memory: the first n_rows, which are in random order."""
        dataset = self.open(name, layout)
        return dataset.take(np.arange(min(n_rows, dataset.n_rows)))


def find_file(folder: Path | None, name: str) -> Path | None:
    """Return the first of a data set's files that is there, plain or .xz."""
    if folder is None:
        return None
    files = (
        place / (file_name + ending)
        for file_name in FILES[name]
        for place in (folder, folder / name)
        for ending in ("", ".xz")
    )
    return next((file for file in files if file.is_file()), None)


def read_idx(file: Path) -> npt.NDArray[np.uint8]:
    """Bytes of MNIST's format: two zeros, the type (8: bytes), the number of dimensions, each as 4 bytes; values."""
    content = lzma.decompress(file.read_bytes()) if file.suffix == ".xz" else file.read_bytes()
    if content[:3] != b"\0\0\x08":
        raise InputError(f"{file}: not an idx file of bytes")
    shape = np.frombuffer(content, ">u4", content[3], 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


def run_all(data: Data) -> tuple[str, dict[str, Measured]]:
    """Run every experiment whose data are there; print and return the tables."""
    lines: list[str] = []
    measured: dict[str, Measured] = {}

    def write(line: str) -> None:
        lines.append(line)
        print(line, flush=True)

    if data.most_rows:
        write(f"At most {data.most_rows:,} rows: his figures are for all.\n")
    write(HEADER + "\n" + "|---" * 13 + "|")
    for experiment in EXPERIMENTS:
        if experiment.data in data.files:
            measured[experiment.name] = measure(experiment, data)
            write(format_row(experiment, measured[experiment.name], measured["AdultLin"].seconds[-1]))
    write(f"\nWhat 'variance of 10' means\n\n{READINGS}\n" + "|---" * 5 + "|")
    for name in ("AdultGaussK", "WebGaussK"):
        if name in measured:
            experiment = next(one for one in EXPERIMENTS if one.name == name)
            other = solve(experiment, data, data.limit(experiment.n_rows), OTHER_READING)[0]
            for result, variance in ((measured[name].result, 20), (other, 10)):
                count, his = np.count_nonzero(result.alpha), experiment.n_support
                write(f"| {experiment.data} | {variance} | {his:,} | {count:,} | {count / his - 1:+.1%} |")
    return "\n".join(lines) + "\n", measured


def measure(experiment: Experiment, data: Data) -> Measured:
    """Solve for an eighth, a quarter, half and all of the rows; where he has no exponent, for all."""
    n_rows = min(data.limit(experiment.n_rows), data.open(experiment.data, experiment.layout).n_rows)
    sizes = [n_rows // part for part in (8, 4, 2, 1)] if experiment.exponent else [n_rows]
    solve(experiment, data, 20, experiment.kernel)  # compiles
    runs = [solve(experiment, data, size, experiment.kernel) for size in sizes]
    return Measured(sizes, [seconds for _, seconds in runs], runs[-1][0], experiment.C)


def solve(experiment: Experiment, data: Data, n_rows: int, kernel: Kernel) -> tuple[PlattResult, float]:
    """Solution on the first rows, and CPU seconds."""
    rows = data.take(experiment.data, experiment.layout, n_rows)
    y, costs = np.where(rows.y == 1, 1.0, -1.0), np.full(rows.n_rows, float(experiment.C))
    start = time.thread_time()
    result = solve_by_platt(rows.X, y, costs, kernel, cache_bytes=CACHE_BYTES if experiment.cached else 0)
    return result, time.thread_time() - start


def format_row(experiment: Experiment, measured: Measured, first_seconds: float) -> str:
    at_bound, free = measured.count_support()
    his, ours = experiment.exponent, measured.fit_exponent()
    cells = (
        experiment.name, f"{experiment.C:g}", experiment.layout, "40 MB" if experiment.cached else "",
        f"{measured.sizes[-1]:,}", f"{experiment.n_support:,}", f"{at_bound + free:,} ({at_bound:,} + {free:,})",
        f"{experiment.seconds / EXPERIMENTS[0].seconds:.1f}", f"{measured.seconds[-1] / first_seconds:.1f}",
        f"{measured.seconds[-1]:.2f}", "" if his is None else f"{his:.1f}", "" if ours is None else f"{ours:.1f}",
        f"{measured.result.n_kernel_evaluations:,}",
    )  # fmt: skip
    return "| " + " | ".join(cells) + " |"


def draw(measured: dict[str, Measured], file: Path) -> None:
    """Seconds against rows, both on logarithmic axes, with the exponents in the legend."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
    colors: dict[str, str] = {}
    for name, one in measured.items():
        exponent = one.fit_exponent()
        label = name if exponent is None else f"{name}: {exponent:.1f}"
        color = colors.setdefault(name.removesuffix("D"), f"C{len(colors)}")  # dense and sparse alike, but for the line
        axes.loglog(one.sizes, one.seconds, "o--" if name.endswith("D") else "o-", color=color, label=label)
    axes.set(xlabel="rows", ylabel="CPU seconds", title="Platt's SMO: time against rows, and exponents")
    axes.legend()
    figure.savefig(file, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    sys.exit(main())
