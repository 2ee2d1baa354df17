"""Ingest in one process: rows are streamed into a dataset on disk, which appears whole or not at all.

The first pass reads the source, spills the rows to random runs on disk, and determines their shape, their classes and
the ranges of their features. The second pass reads the runs, permutes each of them, scales its rows, replaces labels by
class codes, and writes the dataset. Both passes need bounded memory.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt

from streamsvm.data.open import open_dataset
from streamsvm.data.remote.files import AHEAD_BYTES, PUT_BYTES
from streamsvm.data.rows.source import LabelLists, SourceRows
from streamsvm.data.store.dataset import Dataset
from streamsvm.data.store.destination import Upload, open_destination
from streamsvm.data.store.layouts import check_targets
from streamsvm.data.store.manifest import ENCODING, LABEL_COLUMN, QID_COLUMN, READ_AS
from streamsvm.data.tables.checks import parse_number, show_text
from streamsvm.data.tables.columns import Columns
from streamsvm.ingestion.segments import RUN_BYTES, Spill, SpilledRows
from streamsvm.ingestion.write import CODECS, LARGEST_CHUNK_BYTES, DatasetWriter, Shape
from streamsvm.numeric import stored_types
from streamsvm.numeric.encoding import Encoding
from streamsvm.numeric.rows import CsrRows, Matrix, Rows, count_nonzeros, drop_zeros, permute_rows, permute_to_dense
from streamsvm.numeric.stored_types import KINDS, STORED_AS, FeatureStatistics, Scaling
from streamsvm.system import interrupts
from streamsvm.system.errors import InputError, NeedsOptionError
from streamsvm.system.files import is_remote
from streamsvm.system.machine import default_threads, parse_bytes
from streamsvm.system.threads import work_ahead

LOGGER = logging.getLogger("streamsvm")
Coder = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.int32]]
MOVING = ("standard", "minmax")  # scalings that subtract an offset from the features
MANY_CLASSES, FEW_ROWS = 100, 10  # more classes, with fewer rows each, are probably numbers or names


@dataclass
class Survey:
    """The findings of the first pass about the rows.

    name: the name of the rows in messages. options: the options of the dataset. n_items: the number of stored values of
    sparse rows, or of non-zeros of dense rows. has_numbers: whether some labels are numbers other than booleans. texts:
    a provisional code for each text label. anchor (d,): the value that is subtracted from each feature before
    statistics are computed (see numeric.stored_types); None: nothing is subtracted. The first rows determine the
    anchor. If later sparse rows have more features, zeros are appended to it.
    """

    name: str
    options: IngestOptions
    statistics: FeatureStatistics | None = None
    n_rows: int = 0
    n_features: int = 0
    n_items: int = 0
    longest_row: int = 0
    fields: set[str] = field(default_factory=set)
    labels: set[float] = field(default_factory=set)
    has_numbers: bool = False
    texts: dict[str, int] = field(default_factory=dict)
    feature_names: tuple[str, ...] | None = None
    encoding: Encoding | None = None
    anchor: npt.NDArray[np.float64] | None = None

    def choose_anchor(self, rows: SourceRows) -> None:
        """Choose the anchor, given the first rows."""
        may_move = self.options.scale in MOVING and self.options.layout != "sparse"
        self.anchor = stored_types.look_at_features(rows.X, rows.feature_names, may_move, self.name, self.anchor)

    def add(self, rows: SourceRows) -> tuple[Matrix, dict[str, Any]]:
        """Add rows to the survey, and return the features and vectors in the form in which they are spooled."""
        self._grow(rows.X.shape[1])
        X = stored_types.round_features(rows.X, self.anchor)
        found: dict[str, Any] = {name: getattr(rows, name) for name in ("sample_weight", "qid", "groups")}
        vectors = {name: values for name, values in found.items() if values is not None}
        if not self.options.regression:
            rows.require_classes()
        if isinstance(rows.labels, LabelLists):
            if self.options.regression:
                raise InputError(f"{self.name}: rows have lists of labels, but a regression needs one number per row")
            vectors["label_sets"], self.has_numbers = rows.labels, True
            self.labels.update(np.unique(rows.labels.values).tolist(), map(float, rows.labels.known or ()))
        elif rows.labels is not None and self.options.regression:
            if rows.labels.dtype.kind not in "bf":
                i = next((i for i, label in enumerate(rows.labels) if parse_number(label) is None), 0)
                shown, at = show_text(rows.labels[i]), self.n_rows + i + 1
                raise InputError(
                    f"{self.name}: the label {shown!r} of row {at:,} is text; a target must be a number: correct it, "
                    "or omit --regression"
                )
            vectors["target"] = rows.labels.astype(np.float64)
            check_targets(vectors["target"], self.name)
        elif rows.labels is not None:
            vectors["label"] = self._number_labels(rows.labels)
        self._set_fields(set(vectors))
        self.n_rows += X.shape[0]
        self.feature_names, self.encoding = rows.feature_names, rows.encoding
        self._count_items(X, rows.X)
        self._check_labels()
        return X, vectors

    def merge(self, other: Survey) -> None:
        """Add the findings of another survey, except for the statistics of features."""
        if not other.n_rows:
            return
        self._set_fields(other.fields)
        self.feature_names, self.encoding = other.feature_names, other.encoding
        self.n_rows, self.n_items = self.n_rows + other.n_rows, self.n_items + other.n_items
        self._grow(other.n_features)
        self.longest_row = max(self.longest_row, other.longest_row)
        self.labels |= other.labels
        self.has_numbers = self.has_numbers or other.has_numbers
        for text in other.texts:
            self.texts.setdefault(text, len(self.texts))
        self._check_labels()

    def _grow(self, n_features: int) -> None:
        self.n_features = max(self.n_features, n_features)
        if self.anchor is not None:
            self.anchor = np.pad(self.anchor, (0, max(0, self.n_features - len(self.anchor))))

    def _set_fields(self, fields: set[str]) -> None:
        if self.n_rows and fields != self.fields:
            raise InputError(
                f"{self.name}: only some rows have {', '.join(sorted(fields ^ self.fields))}; give it for all rows or "
                "for none"
            )
        self.fields = fields

    def _check_labels(self) -> None:
        if self.labels and self.texts:
            raise InputError(
                f"{self.name}: some labels are numbers, and others are text; `--text COLUMN` reads all labels of a "
                "table as text"
            )
        if len(self.labels) > MOST_CLASSES or len(self.texts) > MOST_CLASSES:
            expected = f"at most {MOST_CLASSES:,} different labels are possible"
            raise NeedsOptionError(f"{self.name}: {expected}; use --regression (regression=True) to predict numbers")

    def _number_labels(self, labels: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        if labels.dtype.kind in "bf":
            self.labels.update(np.unique(labels).tolist())
            self.has_numbers = self.has_numbers or labels.dtype.kind == "f"
            return labels.astype(np.float64, copy=False)
        values, codes = np.unique(labels, return_inverse=True)
        numbers = [self.texts.setdefault(text, len(self.texts)) for text in values.tolist()]
        return np.asarray(numbers, np.float64)[codes]

    def _count_items(self, X: Matrix, raw: Any) -> None:
        if isinstance(X, CsrRows):
            n_items, longest = len(X.data), int(np.diff(X.indptr).max(initial=0))
        else:
            stored = X if self.anchor is None else stored_types.round_features(raw, None)
            n_items, longest = count_nonzeros(np.require(stored, requirements=("C", "W")))
        self.n_items += n_items
        self.longest_row = max(self.longest_row, longest)
        if self.statistics:
            self.statistics.add(X, self.n_features)

    def find_scaling(self) -> Scaling | None:
        """Return the scaling of the features, or None if they are not scaled."""
        if self.options.scale == "none" or self.statistics is None:
            return None
        return self.statistics.scaling(self.options.scale, self.n_rows, self.anchor)

    def classes(self) -> npt.NDArray[Any] | None:
        """Return the distinct labels, sorted, or None if the rows have no labels. They are booleans if all are."""
        if not self.fields & {"label", "label_sets"}:
            return None
        if self.texts:
            return np.array(sorted(self.texts))
        values = np.array(sorted(self.labels))  # empty if all lists of labels are empty
        if len(values) and not self.has_numbers:
            return values.astype(np.bool_)
        is_whole = len(values) and np.all(values == np.floor(values)) and np.abs(values).max() < 2**53
        return values.astype(np.int64) if is_whole else values

    def make_coder(self) -> Coder:
        """Return a function from the spooled labels of some rows to their codes: their positions in `classes`."""
        if self.texts:
            rank = np.empty(len(self.texts), np.int32)
            rank[[self.texts[text] for text in sorted(self.texts)]] = np.arange(len(self.texts))
            return lambda labels: rank[labels.astype(np.int64)]
        known = np.array(sorted(self.labels))
        return lambda labels: np.searchsorted(known, labels).astype(np.int32)


def check_survey(survey: Survey) -> None:
    """Raise InputError for unusable labels. Warn if labels seem to be targets of a regression, or names of rows."""
    name, classes = survey.name, survey.classes()
    if "label_sets" in survey.fields:
        if classes is None or len(classes) < 2:
            raise InputError(
                f"{name}: the label sets contain fewer than two different labels, but at least two are needed"
            )
    elif classes is not None and len(classes) < 2:
        told = f"{name}: every row has the label {show_text(classes[0])}"
        if survey.options.needs_two_classes:
            raise NeedsOptionError(f"{told}, but at least two classes are needed")
        LOGGER.warning(f"{told}: --task one-class (OneClassSVM) learns from such rows; a classifier needs two classes")
    elif classes is not None and len(classes) > MANY_CLASSES and survey.n_rows < FEW_ROWS * len(classes):
        LOGGER.warning(
            f"{name}: {len(classes):,} classes in {survey.n_rows:,} rows: if the labels are numbers to predict, use "
            "--regression; if this is not the label column, name it with --label"
        )
    if survey.options.regression and "target" not in survey.fields:
        raise InputError(f"{name}: a regression needs a number as the label of each row")


@dataclass(frozen=True)
class IngestOptions:
    """Options of a new dataset.

    Attributes
    ----------
    layout : {"dense", "sparse"} or None
        The storage form of rows. By default, the share of non-zeros decides.
    chunk_bytes : int, str or None
        Size of a chunk, in bytes or as text ("64MB"). By default, the size of the dataset decides.
    shard_bytes : int, str or None
        Size of a file with several raw chunks, in bytes or as text; 0 makes each chunk a file. By default, the size of
        the dataset decides. Each compressed chunk is always a file.
    codec : {"crc32c", "lz4", "zstd"}
        The compression. Every codec adds a checksum; "crc32c" does not compress.
    scale : {"none", "minmax", "maxabs", "standard"}
        The scaling of the features. It is recorded, so that models apply it to raw rows.
    shuffle : int or None
        The seed of the shuffle; None keeps the order. Rows with query ids are not shuffled, to keep queries together.
    regression : bool
        Whether the labels are numbers to be predicted (targets) rather than classes or ranks. They are stored as
        float64.
    needs_two_classes : bool
        Whether to refuse labels of a single class. By default, there is a warning.
    overwrite : bool
        Whether to replace an existing dataset at the destination.
    dtype : {"float32", "float16", "bfloat16", "int8"}
        The type in which dense rows are stored. The narrow types take a half or a quarter of the bytes of float32. All
        values must be exact in this type; they are widened to float32 for computations.
    label_column : str or None
        The column of the labels in a table, if the user named it. It is recorded.
    qid_column : str or None
        The column of the query ids in a table. It is recorded.
    read_as : mapping or None
        The syntax of the files, as `ingestion.readers.describe_syntax` describes it. It is recorded.
    source_state : mapping or None
        The state of the source. It is recorded, to recognise that the dataset was made from this source.
    append : bool
        Whether to append the rows to the dataset at the destination. The dataset then decides all
        options but the seed and the chunk size.
    new_classes : bool
        Whether appended rows may have labels that do not occur in the dataset.
    """

    layout: str | None = None
    chunk_bytes: int | None = None
    shard_bytes: int | None = None
    codec: str = "crc32c"
    scale: str = "none"
    shuffle: int | None = 0
    regression: bool = False
    needs_two_classes: bool = False
    overwrite: bool = False
    append: bool = False
    dtype: str = "float32"
    label_column: str | None = None
    qid_column: str | None = None
    new_classes: bool = False
    read_as: Mapping[str, Any] | None = None
    source_state: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        """Convert sizes given as text to bytes. Raises InputError for a text that is not a size."""
        for name in ("chunk_bytes", "shard_bytes"):
            if isinstance(size := getattr(self, name), str):
                object.__setattr__(self, name, parse_bytes(size, name))


def check_options(options: IngestOptions) -> None:
    """Raise InputError for an option with an invalid value."""
    choices = {"layout": (None, "dense", "sparse"), "codec": CODECS, "scale": KINDS, "dtype": STORED_AS}
    for name, allowed in choices.items():
        value = getattr(options, name)
        if value not in allowed:
            raise InputError(f"{name} {value!r}: choose from {', '.join(filter(None, allowed))}")
    if options.new_classes and not options.append:
        raise InputError("--new-classes (new_classes=True) needs --append (append=True)")
    if options.dtype != "float32" and options.scale != "none":
        raise InputError(f"dtype {options.dtype} cannot represent scaled values exactly: omit --scale")
    for name, least in {"shuffle": 0, "chunk_bytes": 1, "shard_bytes": 0}.items():
        value = getattr(options, name)
        if value is not None and not value >= least:  # nan is not
            raise InputError(f"{name} {value}: a whole number of at least {least} is expected")
    if options.shard_bytes and options.codec != "crc32c":
        raise InputError(f"--shard-bytes (shard_bytes) needs raw chunks, but {options.codec} compresses chunks")


SCALED_BYTES = 72  # for each hashed feature: five statistics, two sums of a piece, and offset and factor, in float64
IN_READING_BYTES = 48 << 20  # a block of text and what is made of it, in a thread


def count_bytes(columns: Columns, options: IngestOptions, to_store: bool, threads: int = 1) -> int:
    """Return the memory that a process needs to ingest with some threads. to_store: whether into an object store."""
    chunk_bytes = options.chunk_bytes or LARGEST_CHUNK_BYTES
    scaled = 0 if columns.hash_bits is None or options.scale == "none" else SCALED_BYTES << columns.hash_bits
    read = (threads - 1) * IN_READING_BYTES
    return 5 * RUN_BYTES + 3 * chunk_bytes + to_store * 2 * (AHEAD_BYTES + PUT_BYTES) + scaled + read


def prepare_rows(
    rows: SpilledRows, mine: npt.NDArray[np.int64], survey: Survey, code: Coder, shape: Shape, scaling: Scaling | None
) -> Rows:
    """Return rows of a run in their final form: permuted, dense or sparse, scaled, and with class codes.

    mine: the numbers of these rows in the run, in the order in which they are written. code: from `Survey.make_coder`.
    Raises InputError for values that are not exact in the stored type; its message begins with the name of the rows.
    """
    if scaling is not None and survey.anchor is not None:
        scaling = replace(scaling, offset=scaling.offset - survey.anchor)
    X = _scale(_lay_out(rows.X, mine, survey, shape.sparse), scaling)
    if shape.dtype != "float32":
        X = narrow_rows(X, shape.dtype, survey.name)
    vectors = {name: values[mine] for name, values in rows.vectors.items()}
    if "label" in vectors:
        vectors["y"] = code(vectors.pop("label"))
    if "label_sets" in vectors:
        vectors["label_sets"] = vectors["label_sets"].to_bits(survey.classes())
    return Rows(0, X, **vectors)


def _lay_out(X: Matrix, mine: npt.NDArray[np.int64], survey: Survey, sparse: bool) -> Matrix:
    """Return the rows of X with the numbers `mine`, as sparse or dense rows."""
    if isinstance(X, CsrRows) and not sparse:
        return permute_to_dense(X, mine, survey.n_features, 0.0 if survey.anchor is None else -survey.anchor)
    X = permute_rows(X, mine)
    if isinstance(X, CsrRows):
        return CsrRows(X.data, X.indices, X.indptr, survey.n_features)
    return drop_zeros(X) if sparse else X


def _scale(X: Matrix, scaling: Scaling | None) -> Matrix:
    if scaling is None:
        return X
    if isinstance(X, CsrRows):
        data = ((X.data - scaling.offset[X.indices]) * scaling.factor[X.indices]).astype(np.float32)
        return CsrRows(data, X.indices, X.indptr, X.n_features)
    return ((X - scaling.offset) * scaling.factor).astype(np.float32)


def narrow_rows(X: Any, dtype: str, name: str) -> Any:
    """Convert rows to the stored type. Raises InputError with an example if a value is not exact in this type."""
    stored_types.load_widening(dtype)
    stored, wide = stored_types.narrow(X, dtype), np.empty(X.shape, np.float32)
    stored_types.widen(stored, wide)
    bad = wide != X
    if bad.any():
        i, j = divmod(int(np.argmax(bad)), X.shape[1])
        value = f"the value {X[i, j]!s} of feature {j + 1}"
        raise InputError(f"{name}: {dtype} cannot represent {value}; omit --dtype, or round the values")
    return stored


MOST_CLASSES = 100_000
DENSE_FROM = 1 / 3  # from this share of non-zeros on, dense rows are about as small as sparse rows, and faster to read
PART_ITEMS = 1 << 18  # the number of values that are scaled and written together; they fit into the caches
MOST_THREADS = 4  # the maximum number of threads that scale rows; more do not help, since one thread writes

Report = Callable[[int], None]


def write_dataset(
    pieces: Iterator[SourceRows],
    destination: str | Path,
    name: str,
    expected_bytes: int,
    options: IngestOptions,
    report: Report = lambda _: None,
) -> Dataset:
    """Write rows as a dataset, and open it.

    Parameters
    ----------
    pieces : iterator of SourceRows
        The rows in pieces of any size.
    destination : str or Path
        Path or URL of the new dataset.
    name : str
        The name of the rows in messages.
    expected_bytes : int
        Approximate size of the rows. A wrong guess costs time, and no memory.
    options : IngestOptions
        Options of the dataset.
    report : callable, optional
        Called with the number of rows read so far.

    Raises
    ------
    InputError
        For bad input. No new dataset is left at the destination.
    """
    check_options(options)
    with (
        open_destination(destination, options.overwrite) as folder,
        TemporaryDirectory(prefix="spill", dir=folder if isinstance(folder, Path) else None) as spill_folder,
    ):
        statistics = None if options.scale == "none" else FeatureStatistics.start()
        survey = Survey(name, options, statistics)
        spill = set_aside(pieces, Path(spill_folder), survey, expected_bytes, report)
        check_survey(survey)
        write_rows(spill, folder, survey, survey.find_scaling())
    return open_dataset(destination)


def set_aside(pieces: Iterator[SourceRows], folder: Path, survey: Survey, expected_bytes: int, report: Report) -> Spill:
    """Make the first pass: spill all rows to a folder, and add them to the survey."""
    spill: Spill | None = None
    with closing(pieces) if isinstance(pieces, Generator) else nullcontext():  # readers hold files and threads
        for rows in pieces:
            if spill is None:
                survey.choose_anchor(rows)
                spill = Spill(folder, None if rows.qid is not None else survey.options.shuffle, expected_bytes)
            spill.add(*survey.add(rows))
            report(survey.n_rows)
            interrupts.check()
    if spill is None or not survey.n_rows:
        raise InputError(f"{survey.name}: no rows")
    spill.split_large_runs()
    return spill


def write_rows(
    spill: Spill,
    folder: Path | Upload,
    survey: Survey,
    scaling: Scaling | None,
    about: Mapping[str, Any] | None = None,
) -> None:
    """Make the second pass: write the spilled rows as a dataset.

    about: additional manifest entries if the rows are appended to a dataset. In this case, the scaling is not written,
    since the dataset has it already.
    """
    shape, fields = find_shape(survey, spill.dense_features is not None, scaling)
    prepare = partial(prepare_rows, survey=survey, code=survey.make_coder(), shape=shape, scaling=scaling)
    options, threads, part_rows = survey.options, min(default_threads(), MOST_THREADS), count_part_rows(shape)
    with ThreadPoolExecutor(1) as storing, ThreadPoolExecutor(threads) as preparing:
        writer = DatasetWriter(folder, shape, fields, options.chunk_bytes, options.codec, storing, options.shard_bytes)
        for run in range(len(spill.run_bytes)):
            rows, order = spill.read_shuffled(run)
            spill.remove(run)
            parts = iter(np.split(order, range(part_rows, len(order), part_rows)))  # small, as scaling copies them
            for _, prepared in work_ahead(parts, partial(prepare, rows), preparing, threads + 1):
                writer.append(prepared)
                interrupts.check()
            del rows, order, parts  # frees the memory before the next run is read
        writer.finish(describe_rows(spill.seed, survey) | dict(about or {}), scaling if about is None else None)


def find_shape(survey: Survey, is_dense: bool, scaling: Scaling | None) -> tuple[Shape, tuple[str, ...]]:
    """Return the shape of the dataset and the names of its vectors. is_dense: whether the source has dense rows."""
    name, options = survey.name, survey.options
    if not survey.n_items:
        raise InputError(f"{name}: every feature of every row is zero, so there is nothing to learn from")
    sparse = options.layout == "sparse"
    if options.layout is None:
        sparse = not is_dense and survey.n_items < DENSE_FROM * survey.n_rows * survey.n_features
    if sparse and scaling is not None and np.any(scaling.offset):
        raise InputError(f"{name}: --scale {scaling.kind} would fill sparse rows; use --dense or --scale maxabs")
    if sparse and options.dtype != "float32":
        raise InputError(f"{name}: its rows are sparse, but --dtype {options.dtype} needs dense rows: add --dense")
    classes = survey.classes()
    fields = tuple("y" if n == "label" else n for n in survey.fields)
    sizes = (survey.n_rows, survey.n_features, survey.n_items, survey.longest_row)
    return Shape(*sizes, sparse, 0 if classes is None else len(classes), options.dtype), fields


def count_part_rows(shape: Shape) -> int:
    """Return the number of rows that are scaled and written together."""
    row_items = shape.n_items // shape.n_rows + 1 if shape.sparse else shape.n_features
    return max(1, PART_ITEMS // row_items)


def describe_rows(seed: int | None, survey: Survey) -> dict[str, Any]:
    """Return the manifest entries about the rows. seed: the seed with which they were shuffled."""
    classes, options = survey.classes(), survey.options
    state = None if options.source_state is None else dict(options.source_state)
    recorded = {LABEL_COLUMN: options.label_column, QID_COLUMN: options.qid_column, READ_AS: options.read_as}
    recorded["source_state"] = state
    # without folders, so that the fingerprint does not depend on the working directory
    names = [each if is_remote(each) else Path(os.path.abspath(each)).name for each in survey.name.split(", ")]
    return {
        "classes": None if classes is None else classes.tolist(),
        "feature_names": survey.feature_names,
        "shuffle": seed,
        "source": ", ".join(names),
        **({} if survey.encoding is None else {ENCODING: survey.encoding.as_json()}),
        **{key: value for key, value in recorded.items() if value is not None},
    }
