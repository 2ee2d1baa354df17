"""What streamsvm does is what it did when the golden outputs were recorded."""

from __future__ import annotations

import pytest

from tests.golden.record import list_differences, record


@pytest.mark.slow("runs a hundred commands")
def test_options_signatures_refusals_and_ingests_are_those_that_were_recorded() -> None:
    for name, found in record(["interface", "inputs"]):
        assert list_differences(name, found) == []


@pytest.mark.slow("trains all recorded runs")
def test_runs_verifications_and_projections_are_those_that_were_recorded() -> None:
    for name, found in record(["runs"]):
        assert list_differences(name, found) == []
