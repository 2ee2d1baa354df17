"""A part of the campaign of mutated inputs; its rules are told in `mutated_inputs`."""

from __future__ import annotations

import select
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.faults import mutated_inputs
from tests.faults.mutated_inputs import KINDS, run_campaign

pytestmark = pytest.mark.slow("reads many mutated files, each with several programs")


def test_mutated_inputs_are_refused_or_read_as_others_read_them() -> None:
    counts = run_campaign(300, 0, KINDS)
    assert not counts.faults, "\n\n".join(counts.faults)
    assert sum(counts.by_kind.values()) == 300
    for kind in KINDS:
        assert counts.by_kind[kind, "refused"] >= 5
        assert counts.by_kind[kind, "accepted"] >= 3


CHILD = """
import json, os, sys, time
from pathlib import Path
seed, todo = json.load(sys.stdin)
for kind, index in todo:
    if index == 1 and kind == "csv":
        os.abort()
    if index == 1 and kind == "npy":
        Path(__file__).with_name("waits").touch()
        time.sleep(1000)
    print(json.dumps(["accepted", ""]), flush=True)
"""


def test_deaths_and_hangs_are_seen_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The children here do nothing but die or wait at one input. The wait for such a child ends without a clock."""
    (tmp_path / "child.py").write_text(CHILD)
    start, waits, waited = mutated_inputs.subprocess.Popen, tmp_path / "waits", list[float]()

    def wait_for_line(reading: list[object], writing: list[object], failing: list[object], seconds: float) -> object:
        while True:
            is_last = waits.exists()
            ready = select.select(reading, writing, failing, 0.01)
            if ready[0] or is_last:
                waited.extend([] if ready[0] else [seconds])
                return ready

    def start_other(command: list[str], **how: object) -> object:
        waits.unlink(missing_ok=True)
        return start([command[0], str(tmp_path / "child.py")], **how)  # type: ignore[call-overload]

    monkeypatch.setattr(mutated_inputs.subprocess, "Popen", start_other)
    monkeypatch.setattr(mutated_inputs, "select", SimpleNamespace(select=wait_for_line))
    counts = run_campaign(6, 0, ("csv", "npy"))
    assert dict(counts.by_kind) == {
        ("csv", "accepted"): 2,
        ("csv", "crash"): 1,
        ("npy", "accepted"): 2,
        ("npy", "hang"): 1,
    }
    assert waited == [mutated_inputs.HANG_SECONDS]
    assert [fault.partition(":")[0] for fault in counts.faults] == ["csv seed 0 index 1", "npy seed 0 index 1"]
