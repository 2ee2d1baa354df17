"""What a first training compiles: as much as was measured when these limits were written, and nothing in a pass.

benchmarks/compilation.py prints the seconds. The compiler's time grows with the kernels, and with their lines of
LLVM code. Versions of numba and processors differ by some of these lines.
"""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest

from tests.compiled_kernels import CASES, LAYOUTS
from tests.conftest import run_python

pytestmark = [
    pytest.mark.slow("inspects all compiled kernels, in a process for each training"),
    pytest.mark.timeout(900),
]  # with an empty cache each solver compiles first

# The most kernels, and the lines of LLVM code that were found, on processors with vectors of 256 bits and of 512 bits.
LIMITS = {
    ("cutting-plane", "dense"): (11, 19_100),
    ("cutting-plane", "sparse"): (13, 18_400),
    ("crammer-singer", "dense"): (10, 10_100),
    ("crammer-singer", "sparse"): (12, 10_500),
    ("softmax", "dense"): (2, 1_900),
    ("softmax", "sparse"): (4, 2_900),
    ("smo-classes", "dense"): (13, 31_100),
    ("smo-classes", "sparse"): (17, 32_900),
    ("ranking", "dense"): (9, 9_600),
    ("ranking", "sparse"): (11, 9_900),
    ("smo", "dense"): (11, 29_500),
    ("smo", "sparse"): (14, 31_500),
    ("irwls", "dense"): (11, 29_500),
    ("irwls", "sparse"): (14, 31_500),
    ("budgeted-sgd", "dense"): (6, 30_400),
    ("budgeted-sgd", "sparse"): (8, 32_300),
    ("interior-point", "dense"): (20, 30_800),
    ("interior-point", "sparse"): (20, 27_400),
    ("newton", "dense"): (6, 6_300),
    ("newton", "sparse"): (8, 5_600),
    ("l1-newton", "dense"): (6, 6_400),
    ("l1-newton", "sparse"): (8, 6_300),
    ("feature map", "dense"): (3, 12_000),
    ("feature map", "sparse"): (5, 13_000),
}
SPARE = 1.15  # times the lines that were found


@pytest.fixture(scope="module")
def compiled() -> dict[tuple[str, str], dict[str, Any]]:
    """What each case compiles; all start from one process that has imported everything."""
    ended = run_python("from tests.compiled_kernels import inspect_all; inspect_all()", OPENBLAS_NUM_THREADS="1")
    assert ended.returncode == 0, ended.stderr
    return dict(zip(product(CASES, LAYOUTS), map(json.loads, ended.stdout.splitlines()), strict=True))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("case", CASES)
def test_a_first_training_compiles_no_more_than_it_did(
    case: str, layout: str, compiled: dict[tuple[str, str], dict[str, Any]]
) -> None:
    found = compiled[case, layout]
    assert found["later"] == []  # a pass would have compiled them in the user's process
    assert found["passes"] == 0
    n_kernels, n_lines = LIMITS[case, layout]
    assert len(found["kernels"]) <= n_kernels
    assert sum(found["kernels"].values()) <= SPARE * n_lines
