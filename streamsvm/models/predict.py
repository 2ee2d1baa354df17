"""Prediction: a model scores rows a chunk at a time, in their order, and the predictions go to a file as they come."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from streamsvm.data.source import RowSource
from streamsvm.data.tables import Columns
from streamsvm.files import refuse_inputs
from streamsvm.models.model import Model
from streamsvm.models.prediction_files import STANDARD_OUTPUT, choose_writer
from streamsvm.models.predictions import Wanted, check_wanted, predict_parts
from streamsvm.models.scores import score
from streamsvm.urls import is_remote


def predict(
    model: Model,
    data: str | Path | RowSource,
    out: str | Path,
    *,
    file_format: str | None = None,
    label: str | None = None,
    overwrite: bool = False,
    header: str = "auto",
    probabilities: bool = False,
    sep: str | None = None,
    index: str | None = None,
    row_numbers: bool = False,
    top: int | None = None,
    columns: Sequence[str] = (),
    decimal: str | None = None,
) -> int:
    """Write the predicted label and the score of every row to a file, wholly or not at all.

    Parameters
    ----------
    model : LinearModel, RankModel or KernelModel
    data : path or dataset
        A dataset, its path, or a file that `ingest` reads.
    out : path
        A .csv or .parquet file (label and scores, a row each), a .npy file (one array: the labels), or a .zarr folder
        (arrays of label codes and scores); "-" is CSV on standard output. Of rows with any number of labels these are
        lists of labels (.csv, .parquet) or an indicator matrix of 0 and 1 (.npy; .zarr, beside the scores). For a
        ranking there are scores alone, which are higher for higher ranks. Texts in CSV are written such that no
        spreadsheet takes them for formulas (see data.csv_cells). An older file of this name is replaced.
    file_format : str, optional
        The format of a file; by default its name tells the format.
    label : str, optional
        The column of a table that holds labels, which is then no feature. They are not read.
    overwrite : bool, default=False
        Whether an older .zarr folder of this name is replaced. The data themselves never are.
    header : {"auto", "yes", "no"}
        Whether the first row of CSV names the columns. "auto" decides by its cells.
    probabilities : bool, default=False
        Whether there is the probability of each class, too; for models that were trained with them.
    sep : str, optional
        The character that separates the columns of CSV. By default it is found out.
    index : str, optional
        The column of a table that names the rows, by which predictions in .csv, .parquet and .zarr are known ("name").
        By default it is the one of the training table, if there is such a column.
    row_numbers : bool, default=False
        Whether the rows of .csv and .parquet files are numbered from 0 ("row").
    top : int, optional
        Write so many labels for each row, those with the highest scores, for models of several scores.
    columns : sequence of str, optional
        The columns that are written, in this order: "row", "name", "label", "score" and "probability" stand for all
        of a kind, and "score a" for the one of the class a. A .npy file holds the only one. By default all.
    decimal : {",", "."}, optional
        The decimal mark of numbers in CSV; by default the point.

    Returns
    -------
    int
        The number of rows.

    Raises
    ------
    InputError
        If the rows do not suit the model, or if the file cannot be written.
    """
    out, wanted = Path(out), Wanted(probabilities, top, row_numbers, tuple(columns))
    if isinstance(data, str | Path) and not is_remote(data) and str(out) != STANDARD_OUTPUT:
        refuse_inputs(out, [data])
    check_wanted(model, wanted)
    write = choose_writer(model, out, wanted, overwrite)
    read_as = Columns(label=label, header=header, sep=sep, index=index, decimal=decimal, read_label=False)
    scored = score(model, data, False, file_format, read_as)
    return write(predict_parts(model, scored, wanted))
