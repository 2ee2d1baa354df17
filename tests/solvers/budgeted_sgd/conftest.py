"""The kernels of budgeted SGD, which tests of this folder call by themselves."""

from __future__ import annotations

import pytest

from streamsvm.solvers.set_up import compile_all
from tests.conftest import BUDGETED


@pytest.fixture(scope="package", autouse=True)
def compiled() -> None:
    """Wait for the process that compiles them beside the first tests of the suite: two would mix up their files."""
    compile_all(BUDGETED)
