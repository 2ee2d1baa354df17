"""Which solver keeps rows near the margin in memory, and how many: it depends on the features and on the memory."""

from __future__ import annotations

from dataclasses import replace

from streamsvm.data.source import RowSource
from streamsvm.errors import InputError
from streamsvm.methods.cutting_plane import block_ascent_setup, one_read_setup
from streamsvm.methods.cutting_plane.multiplier_qp import MOST_ROWS
from streamsvm.methods.cutting_plane.options import CuttingPlaneOptions
from streamsvm.methods.fit import Fit
from streamsvm.options import TrainOptions

MOST_FEATURES = 400  # with more features the matrices of `one_read` cost more than the reads that it saves
MOST_BYTES = 256 << 20  # of arrays in memory: for more of them one read, which threads share, is over sooner
TOO_MANY_FEATURES = (
    f"The data are read block by block (block-ascent): one-read is for up to {MOST_FEATURES} features, and the rows "
    "have {:,}."
)
NO_SCRATCH = "scratch has no effect with acceleration={}, which is chosen here: leave it out"
NO_ROWS = "The memory has no room for the resident rows with which fewer reads of the data are enough."


def set_up(source: RowSource, options: TrainOptions, own: CuttingPlaneOptions) -> Fit | None:
    """Return the fit with the resident rows that are asked for or that fit into memory; None if too few fit.

    Rows of up to MOST_FEATURES features are for one read, if enough of them fit, and others for ascent on blocks.
    """
    fit = _choose(source, options, own)
    if own.scratch is not None and (fit is None or fit.scratch is None):
        raise InputError(NO_SCRATCH.format("line-search" if fit is None else fit.settings["acceleration"]))
    return fit


def _choose(source: RowSource, options: TrainOptions, own: CuttingPlaneOptions) -> Fit | None:
    """Return the fit, or None as `set_up` does."""
    if own.acceleration != "block-ascent" and source.n_features <= MOST_FEATURES:
        return _set_up_narrow(source, options, own)
    fit = block_ascent_setup.set_up(source, options, own)
    if fit is None or own.acceleration != "one-read":
        return fit
    return replace(fit, note=TOO_MANY_FEATURES.format(source.n_features))


def _set_up_narrow(source: RowSource, options: TrainOptions, own: CuttingPlaneOptions) -> Fit | None:
    """Return the fit of one read, or of ascent on blocks if that is quicker with the rows that there are.

    It is for arrays in memory, unless they are too many for one thread, or so few rows that nothing is slow. With few
    rows in memory it needs fewer reads. It holds shares of all rows. If the memory has no room for these, one read is
    made all the same, or None is returned if its sample would be too small.
    """
    is_small = source.n_rows > MOST_ROWS and source.nbytes <= MOST_BYTES
    if own.acceleration != "one-read" and not source.on_disk and is_small:
        fit = block_ascent_setup.set_up(source, options, own)
        if fit is not None and fit.settings["resident_rows"] == source.n_rows:
            return fit
    settings = one_read_setup.choose_settings(source, options, own)
    tell_more = one_read_setup.tell_more
    number = settings.resident_rows
    is_least = number >= one_read_setup.count_least(source)
    if number < one_read_setup.count_enough(source) and not (is_least and own.acceleration == "one-read"):
        fit = block_ascent_setup.set_up(source, options, own)
        if fit is not None:
            return replace(fit, note=tell_more(source, options, number, fit.settings["resident_rows"]))
        if not is_least:
            return None
    return one_read_setup.make_fit(source, settings, tell_more(source, options, number, number), own.scratch)
