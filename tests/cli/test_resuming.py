"""--resume starts again where there is no checkpoint, and says so, since the name of the folder may be mistyped."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import shlex
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


def test_ctrl_c_before_the_first_step_tells_that_there_is_no_checkpoint(
    run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`info` says what has begun, and how to go on: the same command works, and from then on --resume."""
    out = tmp_path / "run"

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("streamsvm.engines.local.ThreadedEngine.scan", stop)
        ran = run("train", data, "--out", out, "--option", "acceleration=none")
    told = "interrupted; there is no checkpoint yet, since no step was complete: the same command starts again"
    assert (ran.code, ran.err.splitlines()[-1]) == (1, f"streamsvm train: {told}")
    found = run("info", out, "--json").result
    way = f"streamsvm train {data} --out {out}"
    assert (found["status"], found["resumable"], found["continue"]) == ("unfinished", False, way)
    assert "no checkpoint yet" in run("info", out).out
    assert run("info", out, "--verify").code == 2
    hard = ("--tol", "1e-9", "--max-passes", "3", "--option", "acceleration=none")
    assert run("train", data, "--out", out, *hard).code == 3
    ended = run("info", out)
    assert ended.out.splitlines()[-1].endswith(f"and the options of the run: {way} --resume")
    for name in ("model.npz", "result.json"):
        (out / name).unlink()
    found = run("info", out, "--json").result
    assert (found["passes"], found["resumable"], found["continue"]) == (3, True, f"{way} --resume")
    assert "its checkpoint is kept" in run("info", out).out
    assert run("train", data, "--out", out, *hard[:3], "4", *hard[4:], "--resume").code == 3


def test_info_tells_of_a_grid_that_has_not_ended(run: Run, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    assert run("tune", data, "--C", "0.1,1", "--folds", "2", "--out", out).code == 0
    for name in ("model.npz", "result.json", "checkpoint.npz"):
        (out / name).unlink()
    found = run("info", out, "--json").result
    assert found["continue"] == f"streamsvm tune {data} --out {out} --resume"
    assert found["C"] == [0.1, 1.0]


def test_the_command_that_info_tells_can_be_pasted(run: Run, data: Path, tmp_path: Path) -> None:
    """It has --resume where `train --resume` finds a checkpoint, whatever other folders hold one."""
    rows, out = tmp_path / "my $rows.zarr", tmp_path / "a run"
    rows.symlink_to(data)
    assert run("train", rows, "--out", out).code == 0
    (out / "older").mkdir()
    (out / "checkpoint.npz").rename(out / "older" / "checkpoint.npz")
    for name in ("model.npz", "result.json"):
        (out / name).unlink()
    way = run("info", out, "--json").result["continue"]
    assert shlex.split(way) == ["streamsvm", "train", str(rows), "--out", str(out)]
    assert run("info", out).out.splitlines()[-1].endswith(f"the options of the run: {way}")


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
