"""A small part of the campaigns: interrupts and kills at moments drawn by a seed, for every solver."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

import pytest

from tests.cluster.test_cluster import environment
from tests.conftest import ROOT
from tests.faults.native_state import SUPPORTED, stopped

CAMPAIGNS = ROOT / "tests" / "faults"


def run_campaign(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(CAMPAIGNS / script), *arguments]
    return subprocess.run(command, env=environment(), cwd=ROOT, capture_output=True, text=True, check=False)


def read_rows(written: str) -> dict[str, list[str]]:
    """Cells of the tables by the first cell of the row."""
    rows = [line.strip("| ").split(" | ") for line in written.splitlines() if line.startswith("| ")]
    return {name: cells for name, *cells in rows}


@pytest.mark.slow("kills many processes, one after another")
def test_interrupts_of_four_solvers() -> None:
    """Two of each: one at a random moment, one while the main thread is within compiled code, if it is seen there.

    On a busy machine a short training may end before it is, so that further seeds are tried.
    """
    cases, inside = ("one read", "roc-area", "smo", "interior-point"), 0
    for seed in range(1, 7):
        ended = run_campaign("interrupts.py", "--number", "8", "--seed", str(seed), "--part", "10", "--only", *cases)
        assert ended.returncode == 0, ended.stderr
        number, seen_inside, *_, wrong = read_rows(ended.stdout)["all"]
        assert (number, wrong) == ("8", "0")
        inside += int(seen_inside)
        if inside >= 2 or not SUPPORTED:
            return
    raise AssertionError(f"{inside} of 48 interrupts were within compiled code")


@pytest.mark.slow("kills many processes, one after another")
def test_kills_of_drivers_and_workers() -> None:
    ended = run_campaign("kills.py", "--drivers", "4", "--workers", "1", "--seed", "1", "--part", "10")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = read_rows(ended.stdout)
    assert int(rows["all"][0]) >= 4


@pytest.mark.slow("kills many processes, one after another")
@pytest.mark.parametrize("case", ["line search", "interior-point", "softmax"])
def test_clusters_whose_workers_come_and_go(case: str) -> None:
    """Killed, told to leave, joining, all lost; and the scheduler."""
    faults = ("kill", "lifetime", "join", "lose-all", "scheduler")
    ended = run_campaign("chaos.py", "--times", "1", "--seed", "1", "--part", "2", "--only", case, "--faults", *faults)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    rows = read_rows(ended.stdout)
    assert all(rows[fault][-1] == "yes" and int(rows[fault][1]) >= 1 for fault in faults)


def test_the_state_of_a_thread_is_told() -> None:
    """A thread in an endless compiled loop is within compiled code, one that waits for input is not."""
    code = (
        "import numba\n@numba.njit(nogil=True)\ndef spin(n):\n    while n > 0:\n        n += n % 2\n    return n\n"
        "spin(0)\nprint('waits', flush=True)\ninput()\nprint('spins', flush=True)\nspin(2)\n"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], text=True, **pipes) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        with stopped(process.pid) as inside:
            assert not inside.get(process.pid, False)
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "spins\n"
        seen = not SUPPORTED
        while not seen:
            with stopped(process.pid) as inside:
                seen = inside[process.pid]
        process.kill()


def test_a_process_that_ends_while_it_is_looked_at_is_told_to_have_ended() -> None:
    code = (
        "import threading, os, sys\nfor _ in range(3): threading.Thread(target=input, daemon=True).start()\n"
        "print('ends', flush=True)\nfor _ in range(int(sys.argv[1])): pass\nos._exit(7)\n"
    )
    for k in range(20):
        with subprocess.Popen(
            [sys.executable, "-c", code, str(1000 * k)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        ) as process:
            assert process.stdout is not None
            process.stdout.readline()
            with suppress(FileNotFoundError):  # its files in /proc go with it
                while process.poll() is None:
                    with stopped(process.pid):
                        pass
            assert process.wait(60) == 7
