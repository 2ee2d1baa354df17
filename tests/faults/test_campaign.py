"""A seeded part of the campaign of damage: every outcome is a refusal that names the file, or the same bits."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.faults import campaign, subjects

CASES = 40
SEED = 1


@pytest.fixture(scope="module")
def damaged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, subjects.Subject]:
    """Datasets, a run and a model."""
    return subjects.make_subjects(tmp_path_factory.mktemp("campaign") / "subjects", list(subjects.SUBJECTS))


@pytest.mark.slow("damages files in a hundred ways and runs a command on each")
def test_a_part_of_the_campaign(damaged: dict[str, subjects.Subject], tmp_path: Path) -> None:
    whole = list(campaign.list_cases(damaged, 1, SEED))
    assert len(whole) > 1000
    cases = random.Random(SEED).sample(whole, CASES)
    assert {case.damage for case in cases} == {*campaign.DAMAGES, "forge"}
    found = campaign.run_cases(cases, damaged, tmp_path, 60.0, print)
    bad = [f"{outcome}: {case}: {message}" for case, outcome, message in found if outcome not in campaign.GOOD]
    assert not bad, "\n".join(bad)
    assert sum(outcome == "refused" for _, outcome, _ in found) > CASES / 2


def test_the_campaign_sees_what_it_looks_for(damaged: dict[str, subjects.Subject], tmp_path: Path) -> None:
    """A crash, a hang, a traceback, another result: of commands that do just that."""
    child = campaign.Child(timeout=60.0)
    try:
        assert child.run(["crash"])["ended"] == "CRASH"
        assert child.run(["raise"])["ended"] == "TRACEBACK"
        child.timeout = 0.2
        assert child.run(["hang"])["ended"] == "HANG"
    finally:
        child.close()
    case = campaign.Case("dense", "forge", "genuine labels", "", "train", 0)
    swapped = {"genuine labels": subjects.swap_labels}
    dense = subjects.Subject(damaged["dense"].path, damaged["dense"].actions, swapped)
    found = campaign.run_cases([case], {"dense": dense}, tmp_path, 60.0, print)
    assert [outcome for _, outcome, _ in found] == ["SILENT"]
