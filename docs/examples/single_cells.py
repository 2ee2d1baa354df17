"""Single cells: an AnnData file is read in place, and cell types are learned from its counts."""

from __future__ import annotations

import numpy as np
import zarr
from scipy.sparse import csr_array

import streamsvm

TYPES = ["B cell", "T cell", "monocyte"]


def make_cells(seed: int, count: int, genes: int) -> tuple[csr_array, np.ndarray]:
    """Return log counts (cells, genes), sparse, and the type of each cell; 20 genes mark each type."""
    random = np.random.default_rng(seed)
    codes = random.integers(len(TYPES), size=count)
    rates = np.full((len(TYPES), genes), 0.05)
    for code in range(len(TYPES)):
        rates[code, 20 * code : 20 * code + 20] = 0.4
    return csr_array(np.log1p(random.poisson(rates[codes])).astype(np.float32)), codes


def write_anndata(path: str, X: csr_array, codes: np.ndarray) -> None:
    """Write X and obs["cell_type"] in the layout of `adata.write_zarr(path)` of the package anndata."""
    root = zarr.open_group(path, mode="w", zarr_format=2)
    root.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    matrix = root.create_group("X")
    matrix.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(X.shape)})
    for name in ("data", "indices", "indptr"):
        matrix.create_array(name, data=getattr(X, name))
    column = root.create_group("obs").create_group("cell_type")
    column.attrs.update({"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False})
    column.create_array("codes", data=codes.astype(np.int8))
    column.create_array("categories", data=np.array(TYPES, dtype="U8"))


write_anndata("cells.zarr", *make_cells(0, 3000, 2000))
cells = streamsvm.open("cells.zarr", label="cell_type")
print(f"{cells.n_rows:,} cells, {cells.n_features:,} genes, classes {cells.classes.tolist()}")

model = streamsvm.LinearSVC(C=0.01).fit(cells)
print(f"{model.status_}: one model for each type against the rest; reads of the file: {model.n_passes_}")

new_cells, new_codes = make_cells(1, 1000, 2000)
right = model.predict(new_cells) == np.array(TYPES)[new_codes]
print(f"{right.mean():.1%} of 1,000 new cells are right")

for name, weights in zip(model.classes_, model.coef_, strict=True):
    strongest = np.sort(np.argsort(weights)[-20:])
    print(f"{name}: genes {strongest[0]} to {strongest[-1]} speak for it")
