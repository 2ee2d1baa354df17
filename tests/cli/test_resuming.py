"""--resume starts again where there is no checkpoint, and says so, since the name of the folder may be mistyped."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

from pathlib import Path

import pytest

from tests.commands import Run, data, run, text  # noqa: F401

COMMANDS = {
    "train": (
        ["train", "{data}", "--out", "{out}"],
        "--resume: there is no checkpoint in {out}; everything starts again",
    ),
    "tune": (
        ["tune", "{data}", "--C", "0.1", "--folds", "2", "--out", "{out}"],
        "--resume: there is no checkpoint in {out}; everything starts again",
    ),
    "features": (
        ["features", "{data}", "{out}", "--rank", "3"],
        "--resume: there is no checkpoint in {hidden}; everything starts again",
    ),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_mistyped_name_is_told(run: Run, data: Path, tmp_path: Path, command: str) -> None:
    arguments, message = COMMANDS[command]
    out = tmp_path / "mistyped"
    given = [part.format(data=data, out=out) for part in arguments]
    ran = run(*given, "--resume")
    told = f"streamsvm {command}: {message.format(out=out, hidden=tmp_path / '.mistyped.passes.npz')}"
    assert ran.code == 0
    assert ran.err.splitlines().count(told) == 1


def test_nothing_is_told_of_what_goes_on(run: Run, data: Path, tmp_path: Path) -> None:
    command = ["train", data, "--out", tmp_path / "run", "--tol", "1e-9", "--option", "acceleration=none"]
    assert run(*command, "--max-passes", 3).code == 3
    assert "again" not in run(*command, "--resume", "--max-passes", 5).err
    (tmp_path / "run" / "checkpoint.npz").unlink()
    for name in ("model.npz", "result.json"):
        (tmp_path / "run" / name).unlink()
    ran = run(*command, "--resume", "--max-passes", 3)
    assert f"--resume: there is no checkpoint in {tmp_path / 'run'}; everything starts again" in ran.err


def test_a_limit_counts_the_passes_before(run: Run, data: Path, tmp_path: Path) -> None:
    """So the same limit is reached at once, which is told with the way on."""
    out, hard = tmp_path / "run", ("--tol", "1e-12", "--C", "1000")
    first = run("train", data, "--out", out, *hard, "--max-passes", "2", "--json").result
    assert "--resume" not in first["status_reason"]
    again = run("train", data, "--out", out, *hard, "--max-passes", "2", "--resume", "--json").result
    assert (again["status"], again["passes"]) == ("pass_limit", first["passes"])
    assert "a larger --max-passes continues the run" in again["status_reason"]
    assert again["task_seconds"] == first["task_seconds"]
    more = run("train", data, "--out", out, *hard, "--max-passes", "3", "--resume", "--json").result
    assert more["passes"] > first["passes"]
    assert all(seconds >= first["task_seconds"][name] for name, seconds in more["task_seconds"].items())
    assert sum(more["task_seconds"].values()) > sum(first["task_seconds"].values())


@pytest.mark.parametrize("arguments", ["--kernel sigmoid", "--multi-class crammer_singer --kernel poly --coef0 -1"])
def test_a_run_without_a_lower_bound_goes_on_to_the_same_bits(
    run: Run, data: Path, tmp_path: Path, arguments: str
) -> None:
    """The lower bound in its checkpoint is NaN."""
    command = ["train", data, *arguments.split(), "--gamma", "0.05", "--resident-rows", "20%", "--json", "--out"]
    whole, stopped = (run(*command, tmp_path / "run", *limit) for limit in ((), ("--overwrite", "--max-passes", "1")))
    resumed = run(*command, tmp_path / "run", "--resume")
    assert (whole.result["status"], stopped.result["status"]) == ("stationary", "pass_limit")
    assert resumed.result["model_sha256"] == whole.result["model_sha256"]
