"""The options of decomposition, by SMO or by IRWLS."""

from __future__ import annotations

from dataclasses import dataclass

from streamsvm.methods.option_fields import choice, count

OTHER_BYTES = 448 << 20  # interpreter, libraries, streaming, working sets: more than they took on two threads
SMALL_ROWS = 1024  # up to so many rows make one working set of SMO, which is solved in float64

WITH_ACTIVE_ROWS = ("second-order", "largest", "smallest", "random", "chunking")  # Platt's loops hold all rows


@dataclass(frozen=True)
class DecompositionOptions:
    """See the help texts."""

    selection: str = choice(
        *WITH_ACTIVE_ROWS,
        "platt",
        help="how a working set is chosen; chunking is Perez-Cruz's, platt are the loops of Platt 1998",
    )
    inner: str | None = choice(
        "smo",
        "irwls",
        "qp",
        default=None,
        help="what solves a working set: pairs, reweighted least squares, or a QP library (default: the solver's own)",
    )
    working_rows: int | None = count(2, help="rows of a working set; a share of the active rows if not given")
    max_pairs: int | None = count(
        1, help="pair steps of SMO after which training ends; no limit if not given (LIBSVM: the limit of iterations)"
    )
    cache_bytes: int | None = count(
        0,
        help="memory for kernel columns; a quarter of what is spare if not given",
        read_with={"kernel": ("rbf", "poly", "sigmoid", "precomputed")},
    )
