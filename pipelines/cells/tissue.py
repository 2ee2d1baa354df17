"""Generated cells of donors: gene counts in which the marker genes of every type of cell are known.

The rate of gene g in cell i, of type t, lineage l and donor k, is

    log rate = base_g + lineage_lg + marker_tg + donor_kg + state_ktg
    count ~ Poisson(depth_i * Gamma * rate / sum of the cell's rates)

so counts are negative binomial, like those of real single cells. donor_kg is the effect of the donor (or of the
handling of the donor's cells) on a gene in all cells, and state_ktg is the effect of the donor in the cells of one
type.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_matrix, vstack

N_TYPES, N_LINEAGES = 12, 4
N_GENES = 1500
N_MARKERS, N_LINEAGE_GENES = 10, 30  # genes whose rate is raised in one type, and in all types of one lineage
MARKER_EFFECT, LINEAGE_EFFECT = 1.6, 1.6  # the sizes of these effects on the logarithm of the rate
DONOR_SCALE, STATE_SCALE = 0.3, 0.5  # standard deviations of a donor's effects
SHAPE = 2.0  # the shape of the gamma distribution; a smaller shape gives more noise
DEPTH = 1800  # median number of counts in a cell
F64 = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Tissue:
    """The properties that all donors share.

    base (genes,): the rates base_g of the module's docstring. effects (types, genes): the sums lineage_lg + marker_tg.
    markers (types, N_MARKERS): the numbers of the marker genes. shares (types,): the share of each type in the cells;
    they sum to 1.
    """

    base: F64
    effects: F64
    markers: npt.NDArray[np.int64]
    shares: F64


def make_tissue(seed: int) -> Tissue:
    """Draw the genes of every type."""
    random = np.random.default_rng(seed)
    base = random.normal(scale=1.5, size=N_GENES)
    genes = random.permutation(N_GENES)
    markers, others = genes[: N_TYPES * N_MARKERS].reshape(N_TYPES, N_MARKERS), genes[N_TYPES * N_MARKERS :]
    of_lineages = others[: N_LINEAGES * N_LINEAGE_GENES].reshape(N_LINEAGES, N_LINEAGE_GENES)
    effects = np.zeros((N_TYPES, N_GENES))
    for number in range(N_TYPES):
        effects[number, markers[number]] = MARKER_EFFECT
        effects[number, of_lineages[number % N_LINEAGES]] = LINEAGE_EFFECT
    shares = 1.0 / np.arange(1, N_TYPES + 1)  # the rarest type has a twelfth of the cells of the most frequent type
    return Tissue(base, effects, markers, shares / shares.sum())


def draw_donor(tissue: Tissue, seed: int, n_cells: int) -> tuple[Any, npt.NDArray[np.int64]]:
    """Return the counts of a donor's cells, sparse, and their types."""
    random = np.random.default_rng([seed, 1])
    donor = DONOR_SCALE * random.normal(size=N_GENES)
    state = STATE_SCALE * random.normal(size=(N_TYPES, N_GENES))
    rates = np.exp(tissue.base + tissue.effects + donor + state)
    rates /= rates.sum(axis=1, keepdims=True)
    types = random.choice(N_TYPES, n_cells, p=tissue.shares)
    depth = DEPTH * np.exp(0.4 * random.normal(size=n_cells))
    noise = random.standard_gamma(SHAPE, size=(n_cells, N_GENES), dtype=np.float32) / SHAPE
    counts = random.poisson(depth[:, None] * rates[types] * noise)
    return csr_matrix(counts.astype(np.float32)), types


def normalise(counts: Any) -> Any:
    """Return log(1 + counts per 10,000), as scanpy's normalize_total and log1p do."""
    totals = np.asarray(counts.sum(axis=1)).ravel()
    found = counts.multiply(1e4 / np.maximum(totals, 1.0)[:, None]).tocsr()
    found.data = np.log1p(found.data).astype(np.float32)
    return found


def draw_cells(tissue: Tissue, donors: range, n_cells: int) -> tuple[Any, list[str], list[str]]:
    """Return the normalised counts of several donors' cells, and for each cell the names of its type and donor."""
    drawn = [draw_donor(tissue, donor, n_cells) for donor in donors]
    types = [name_type(code) for _, codes in drawn for code in codes]
    return (
        normalise(vstack([counts for counts, _ in drawn])),
        types,
        [f"donor{k}" for k in donors for _ in range(n_cells)],
    )


def name_type(code: int) -> str:
    """Return the name of a type."""
    return f"type{code:02d}"


def name_gene(number: int) -> str:
    """Return the name of a gene."""
    return f"GENE{number:04d}"
