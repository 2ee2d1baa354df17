"""Prediction: a model scores rows chunk by chunk, in order, and predictions are written to a file as they arrive.

Predictions are arrays of labels, scores and probabilities. They become columns of a table (Parquet, or CSV in a file or
on standard output), one array (.npy), or a Zarr group.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt
import zarr

from streamsvm.data.store.destination import check_destination, check_file, new_file, new_folder
from streamsvm.data.tables.columns import Columns
from streamsvm.data.tables.written import ParquetOutput, write_cell
from streamsvm.models.evaluate import find_probabilities, require_probabilities
from streamsvm.models.model import Model
from streamsvm.models.score import AS_IT_IS, UNKNOWN_FEATURES, Data, memory_kept_for, score
from streamsvm.problems.classification import choose, choose_labels
from streamsvm.problems.problem import Scored
from streamsvm.system.errors import InputError, say_count
from streamsvm.system.files import refuse_inputs, to_local_path


def predict(
    model: Model,
    data: Data,
    out: str | Path,
    *,
    read_as: Columns = AS_IT_IS,
    file_format: str | None = None,
    overwrite: bool = False,
    probabilities: bool = False,
    row_numbers: bool = False,
    top: int | None = None,
    columns: Sequence[str] = (),
    unknown_features: str = UNKNOWN_FEATURES[0],
    memory_bytes: int | None = None,
    scheduler: str | None = None,
) -> int:
    """Write the predicted label and the score of every row to a file, wholly or not at all.

    Parameters
    ----------
    model : LinearModel, RankModel or KernelModel
    data : path or dataset
        A dataset, its path, or a file that `ingest` reads.
    out : path or URL of an object
        A .csv or .parquet file (label and scores of each row), a .npy file (one array: the labels), or a .zarr folder
        (arrays of label codes and scores); "-" is CSV on standard output. For sets of labels, the labels are lists
        (.csv, .parquet) or an indicator matrix of 0 and 1 (.npy, and .zarr with the scores). A ranking has only scores,
        which are higher for higher ranks. Texts in CSV are written so that spreadsheets do not read them as formulas
        (see data.tables.written). An existing file is replaced.
    read_as : Columns, optional
        How to read a file: its syntax; the column of a table that holds labels, which is skipped; and the column that
        names the rows (by default, the index column of the training table, if it had one). The names of the rows are
        written to .csv, .parquet and .zarr ("name").
    file_format : str, optional
        The format of a file; by default its name decides.
    overwrite : bool, default=False
        Whether to replace an existing .zarr folder. The data itself is never replaced.
    probabilities : bool, default=False
        Whether to write the probability of each class, too; for models that were trained with probabilities.
    row_numbers : bool, default=False
        Whether the rows of .csv and .parquet files are numbered from 0 ("row").
    top : int, optional
        The number of labels to write for each row; the labels with the highest scores are written. Only for models with
        several scores.
    columns : sequence of str, optional
        The columns to write, in this order: "row", "name", "label", "score" and "probability" stand for all columns of
        a kind, and "score a" for the score of class a. A .npy file holds one array. By default all columns are written.
    unknown_features : {"error", "ignore"}
        Whether rows with more features than the model has are refused, or the others are ignored, with one warning of
        their number.
    memory_bytes : int, optional
        The most memory that this process may use. Fewer threads work if necessary. By default there is no limit.
    scheduler : str, optional
        The address of a Dask cluster whose workers score the rows of a dataset; memory_bytes then limits each worker.

    Returns
    -------
    int
        The number of rows.

    Raises
    ------
    InputError
        If the rows do not suit the model, or if the file cannot be written.
    MemoryBudgetError
        If the projected memory exceeds memory_bytes. It is raised before any row is read.
    """
    made = Predictions(model, probabilities, top, row_numbers, tuple(columns))
    if isinstance(data, str | Path) and str(out) != STANDARD_OUTPUT:
        refuse_inputs(out, [data])
    made.check()
    write = choose_writer(made, out, overwrite)
    read_as = replace(read_as, read_label=False)
    parts = score(model, data, False, file_format, read_as, unknown_features, scheduler, memory_bytes)
    with memory_kept_for(model, data, file_format, memory_bytes if scheduler is None else None):
        write(made.predict(parts))
    return made.n_rows


Arrays = dict[str, npt.NDArray[Any]]


@dataclass
class Predictions:
    """The predictions of a model, as they are to be written.

    Attributes
    ----------
    model : Model
        The model.
    probabilities : bool
        Whether to write the probability of each class.
    top : int or None
        The number of labels with the highest scores to write. None writes one label and all scores.
    row_numbers : bool
        Whether to write the number of each row, counted from 0.
    columns : tuple of str
        The arrays and columns to write, in this order; an empty tuple writes all.
    n_rows : int
        The number of rows predicted so far.
    """

    model: Model
    probabilities: bool
    top: int | None
    row_numbers: bool
    columns: tuple[str, ...]
    n_rows: int = 0

    @property
    def has_lists(self) -> bool:
        """Whether the label of a row is a list of labels."""
        return self.model.problem.has_label_sets and self.top is None

    @cached_property
    def names(self) -> dict[str, list[str]]:
        """The names of each array's columns, by the name of the array."""
        problem, classes = self.model.problem, list(map(str, self.model.classes.tolist()))
        several = [str(k + 1) for k in range(self.top)] if self.top else classes
        names = {"row": ["row"], "name": ["name"]} if self.row_numbers else {"name": ["name"]}
        if problem.predicts_labels:
            one = "labels" if problem.has_label_sets else "label"
            names["label"] = [f"label {each}" for each in several] if self.top else [one]
        names["score"] = [f"score {each}" for each in several] if self.model.score_shape else [problem.score_name]
        if self.probabilities:
            names["probability"] = [f"probability {each}" for each in several]
        return names

    def check(self) -> None:
        """Raise InputError for predictions that the model cannot make."""
        if self.probabilities:
            require_probabilities(self.model)
        if self.top is None:
            return
        if not (self.model.problem.predicts_labels and self.model.score_shape):
            raise InputError(
                f"--top {self.top} chooses among the scores of several classes, but the model gives each row one score"
            )
        if self.top > len(self.model.classes):
            raise InputError(f"--top {self.top}: the model has only {say_count(len(self.model.classes), 'class')}")

    def predict(self, scored: Iterable[Scored]) -> Iterator[Arrays]:
        """Yield the predictions of all rows, as the scores arrive.

        row : (n,) int64, row numbers, if requested
        name : (n,) texts, if the rows have names
        label : (n,) or (n, top) int32, positions in the classes of the model; for sets, (n, L) uint8, 0 or 1
        score : (n,) or (n, K) float64
        probability : (n, K) float64, if requested
        """
        for part in scored:
            scores, arrays = part.scores, Arrays()
            if self.row_numbers:
                arrays["row"] = np.arange(self.n_rows, self.n_rows + len(scores))
            if part.row_names is not None:
                arrays["name"] = part.row_names
            found: Arrays = {"score": scores}
            if self.probabilities:
                found["probability"] = find_probabilities(self.model, scores)
            if self.top is not None:
                order = np.argsort(-scores, axis=1, kind="stable")[:, : self.top]
                found = {name: np.take_along_axis(values, order, axis=1) for name, values in found.items()}
                arrays["label"] = order.astype(np.int32)
            elif self.has_lists:
                arrays["label"] = choose_labels(scores).astype(np.uint8)
            elif self.model.problem.predicts_labels:
                arrays["label"] = choose(scores).astype(np.int32)
            yield arrays | found
            self.n_rows += len(scores)

    def choose_columns(self) -> list[str]:
        """Return the names of a table's columns, in order: by default all, except the many scores of sets of labels.

        The name of an array stands for all its columns. Raises InputError for an unknown name.
        """
        names = self.names
        if not self.columns:
            return [each for array, own in names.items() if not (self.has_lists and array == "score") for each in own]
        known = {each: [each] for own in names.values() for each in own} | names
        self._require(known)
        return [each for name in self.columns for each in known[name]]

    def choose_arrays(self) -> list[str]:
        """Return the names of the arrays to write. Raises InputError for an unknown name."""
        self._require(self.names)
        return list(self.columns or self.names)

    def _require(self, known: Iterable[str]) -> None:
        for k, name in enumerate(self.columns):
            if name not in known:
                listed = ", ".join(list(known)[:12])
                raise InputError(f"--columns: there is no column {name[:40]!r}; choose from {listed}")
            if name in self.columns[:k]:
                raise InputError(f"--columns: {name!r} is named twice")

    def tabulate(self, arrays: Arrays, classes: npt.NDArray[Any]) -> dict[str, Any]:
        """Return the columns of a table by name, (n,) each. classes: the values to write for the classes.

        The column of sets of labels is a list of arrays. Raises InputError if row names are requested but the rows have
        none.
        """
        table: dict[str, Any] = {}
        for array, names in self.names.items():
            if array not in arrays:
                continue
            values = arrays[array]
            if array == "label" and self.has_lists:
                rows, codes = np.nonzero(values)
                table[names[0]] = np.split(classes[codes], np.searchsorted(rows, np.arange(1, len(values))))
                continue
            values = classes[values] if array == "label" else values
            table |= zip(names, np.atleast_2d(values.T), strict=True)
        if "name" in self.columns and "name" not in table:
            raise InputError("--columns: the rows have no names; --id COLUMN names them")
        return {name: table[name] for name in self.choose_columns() if name in table}


def gather(parts: Iterator[Arrays], least_rows: int) -> Iterator[Arrays]:
    """Join successive parts until each has at least `least_rows` rows, and yield them. The last one may have fewer."""
    held: list[Arrays] = []
    for part in parts:
        held.append(part)
        if sum(len(each["score"]) for each in held) >= least_rows:
            yield _join(held)
            held = []
    if held:
        yield _join(held)


def cut(part: Arrays, most_rows: int) -> Iterator[Arrays]:
    """Yield successive rows of a part, at most `most_rows` at a time."""
    for at in range(0, len(part["score"]), most_rows):
        yield {name: values[at : at + most_rows] for name, values in part.items()}


def _join(parts: list[Arrays]) -> Arrays:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def fit_rows(n_values: int, width: tuple[int, ...]) -> int:
    """Return the number of rows of shape `width` that have about `n_values` values in total."""
    return max(1, n_values // max(1, math.prod(width)))


ZARR_CHUNK_VALUES = 1 << 18
CSV_ROWS = 1 << 15  # rows whose texts are in memory: a row takes hundreds of bytes, but a few bytes in a file
PARQUET_ROWS = 1 << 16  # the minimum for a row group
EMPTY_CELL = '""'  # many readers skip an empty line
STANDARD_OUTPUT = "-"


def choose_writer(made: Predictions, out: str | Path, overwrite: bool) -> Callable[[Iterator[Arrays]], None]:
    """Return the function that writes predictions to the file `out`.

    Raise InputError, before rows are read, for a file that cannot be written or cannot hold the requested columns.
    """
    if str(out) == STANDARD_OUTPUT:
        made.choose_columns()
        return partial(_write_csv, made, nullcontext(sys.stdout.buffer))
    writers, ending = {".csv": _write_csv, ".parquet": _write_parquet, ".npy": _write_npy}, Path(out).suffix.lower()
    if ending not in (*writers, ".zarr"):
        raise InputError(f"{out}: the name must end in .csv, .parquet, .npy or .zarr, or be - for standard output")
    if ending in (".npy", ".zarr"):
        _check_arrays(made, out, ending == ".npy")
    else:
        made.choose_columns()
    if ending == ".zarr":
        check_destination(to_local_path(out), overwrite)
        return partial(_write_zarr, made, new_folder(Path(out), overwrite))
    check_file(out, overwrite=True)
    return partial(writers[ending], made, new_file(out))


def _check_arrays(made: Predictions, out: str | Path, is_npy: bool) -> None:
    """Raise InputError for row numbers, columns or several arrays that a .npy or .zarr file cannot hold."""
    if made.row_numbers:
        raise InputError(f"{out}: a file of this kind cannot hold row numbers: choose .csv or .parquet")
    made.choose_arrays()
    is_one = len(made.columns) <= 1 and made.columns != ("name",)
    if is_npy and not (is_one and made.probabilities == (made.columns == ("probability",))):
        raise InputError(
            f"{out}: a .npy file holds one array: the labels, or the array that --columns names (score or "
            "probability); for more, choose .csv, .parquet or .zarr"
        )


Opened = AbstractContextManager[BinaryIO]


def _write_csv(made: Predictions, opened: Opened, parts: Iterator[Arrays]) -> None:
    cells = np.array([write_cell(label) for label in made.model.classes.tolist()])
    with opened as file:
        for arrays in parts:
            if "name" in arrays:
                arrays["name"] = np.array([write_cell(name) for name in arrays["name"].tolist()], object)
            if not made.n_rows:
                file.write(f"{','.join(map(write_cell, made.tabulate(arrays, cells)))}\n".encode())
            for some in cut(arrays, fit_rows(CSV_ROWS, made.model.score_shape)):
                columns = map(_write_cells, made.tabulate(some, cells).values())
                file.write("".join(f"{','.join(line)}\n" for line in zip(*columns, strict=True)).encode())


def _write_cells(values: Any) -> list[str]:
    """Return the CSV cells of a column of numbers, of formatted cells, or of lists of formatted cells."""
    if isinstance(values, list):
        return [" ".join(each.tolist()) or EMPTY_CELL for each in values]
    if values.dtype.kind == "f":
        return [f"{value:.9g}" for value in values.tolist()]
    return list(map(str, values.tolist()))


def _write_parquet(made: Predictions, opened: Opened, parts: Iterator[Arrays]) -> None:
    with opened as file, ParquetOutput(file) as output:
        for arrays in gather(parts, fit_rows(PARQUET_ROWS, made.model.score_shape)):
            output.append(made.tabulate(arrays, made.model.classes))


def _write_npy(made: Predictions, opened: Opened, parts: Iterator[Arrays]) -> None:
    about, shape = {}, (0,)
    name = next(iter(made.columns), "label" if made.model.problem.predicts_labels else "score")
    with opened as file:
        for arrays in parts:
            are_codes = name == "label" and not made.has_lists
            values = made.model.classes[arrays[name]] if are_codes else arrays[name]
            if not made.n_rows:
                about = {"descr": np.lib.format.dtype_to_descr(values.dtype), "fortran_order": False}
                shape = values.shape
                np.lib.format.write_array_header_1_0(file, {**about, "shape": (0, *shape[1:])})
            file.write(values.tobytes())  # `tofile` does not notice a full disk
        file.seek(0)  # the header leaves room for a larger number of rows
        np.lib.format.write_array_header_1_0(file, {**about, "shape": (made.n_rows, *shape[1:])})


def _write_zarr(made: Predictions, opened: AbstractContextManager[Path], parts: Iterator[Arrays]) -> None:
    written: dict[str, zarr.Array[Any]] = {}
    with opened as folder:
        group = zarr.open_group(folder, mode="w", zarr_format=3)
        group.attrs["classes"] = made.model.classes.tolist()
        for arrays in gather(parts, fit_rows(ZARR_CHUNK_VALUES, made.model.score_shape)):
            for name in filter(arrays.__contains__, made.choose_arrays()):
                values = arrays[name]
                if name not in written:
                    width = values.shape[1:]
                    chunks = (fit_rows(ZARR_CHUNK_VALUES, width), *width)
                    dtype: Any = str if name == "name" else values.dtype
                    written[name] = group.create_array(name, shape=(0, *width), chunks=chunks, dtype=dtype)
                written[name].append(values)
