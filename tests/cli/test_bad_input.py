"""Bad input: exit status 2, one clear message, no traceback, nothing left that blocks the next try."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from sklearn.datasets import dump_svmlight_file

from streamsvm.engines.cluster import workers as cluster_workers
from streamsvm.system.machine import parse_bytes
from tests.commands import Run, data, run, text, trained  # noqa: F401
from tests.conftest import make_problem, run_python

BAD_TRAINING = {
    "missing dataset": (["missing.zarr"], "missing.zarr: no such dataset"),
    "file, not a dataset": (["{text}", "--plan"], "rows.svm: holds rows, but is not a dataset: run `streamsvm ingest"),
    "C negative": (["{data}", "--C", "-1"], "C is -1.0; it must be positive"),
    "C nan": (["{data}", "--C", "nan"], "C is nan"),
    "C no number": (["{data}", "--C", "much"], "invalid float value: 'much'"),
    "tol zero": (["{data}", "--tol", "0"], "tol is 0.0"),
    "solver": (["{data}", "--solver", "magic"], "invalid choice: 'magic'"),
    "kernel of another solver": (
        ["{data}", "--solver", "cutting-plane", "--kernel", "rbf"],
        "kernel rbf: cutting-plane supports only the linear kernel",
    ),
    "resident rows unused": (
        ["{data}", "--resident-rows", "9%", "--option", "acceleration=none"],
        "resident rows cannot be used",
    ),
    "resident rows": (["{data}", "--solver", "smo", "--resident-rows", "many"], "resident rows 'many'"),
    "too few resident rows": (["{data}", "--solver", "smo", "--resident-rows", "1"], "at least two are needed"),
    "gamma no number": (["{data}", "--gamma", "wide"], "argument --gamma: 'wide': write a number, scale or auto; see"),
    "gamma below 0": (["{data}", "--solver", "smo", "--kernel", "rbf", "--gamma", "-1"], "gamma is -1.0; it must be"),
    "degree": (["{data}", "--degree", "1.5"], "argument --degree: '1.5': a whole number of at least 0"),
    "coef0": (["{data}", "--solver", "irwls", "--kernel", "poly", "--coef0", "inf"], "coef0 is inf; it must be finite"),
    "selection": (["{data}", "--solver", "smo", "--option", "selection=best"], "selection 'best': choose from second-"),
    "option of another solver": (["{data}", "--solver", "smo", "--option", "epsilon=1"], "'epsilon' is unknown to smo"),
    "option unknown": (["{data}", "--option", "speed=9"], "option 'speed' is unknown to cutting-plane"),
    "option without value": (["{data}", "--option", "speed"], "write name=value"),
    "option value": (["{data}", "--option", "epsilon=-1"], "option epsilon=-1"),
    "acceleration": (
        ["{data}", "--option", "acceleration=warp"],
        "choose from auto, one-read, block-ascent, line-search",
    ),
    "class unknown": (["{data}", "--class-weight", "7=2"], "class_weight names '7'; the classes are -1 and 1"),
    "class weight negative": (["{data}", "--class-weight", "1=-2"], "class_weight of 1 is -2.0"),
    "class weight no number": (["{data}", "--class-weight", "heavy"], "write balanced, or label=weight"),
    "no workers": (["{data}", "--workers", "0"], "--workers: '0': a whole number of at least 1"),
    "workers no number": (["{data}", "--workers", "abc"], "--workers: 'abc'"),
    "no threads": (["{data}", "--threads", "0"], "a whole number of at least 1"),
    "no passes": (["{data}", "--max-passes", "0"], "a whole number of at least 1"),
    "size": (["{data}", "--memory", "lots"], "'lots' is not a size in bytes"),
    "scheduler": (["{data}", "--scheduler", "nowhere"], "scheduler nowhere: missing port number"),
    "scheme": (["{data}", "--scheduler", "http://127.0.0.1:1"], "unknown address scheme 'http'"),
}


@pytest.mark.parametrize("case", BAD_TRAINING)
def test_bad_training(run: Run, text: Path, data: Path, tmp_path: Path, case: str) -> None:
    arguments, message = BAD_TRAINING[case]
    out = tmp_path / "run"
    ran = run("train", *(part.format(text=text, data=data) for part in arguments), "--out", out)
    assert (ran.code, ran.out) == (2, "")
    assert message in ran.err.splitlines()[-1]
    told = [line for line in ran.err.splitlines() if not line.startswith("compiling kernels ")]  # if no test has before
    assert told[0].startswith("streamsvm train: ")
    assert not out.exists()


def test_too_little_memory_is_refused_with_the_projection(run: Run, data: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    ran = run("train", data, "--out", out, "--memory", "1KB")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "of memory is needed (this process already holds " in ran.err
    assert "budget is 1.0 kB: raise --memory to at least" in ran.err
    assert not out.exists()
    assert run("train", data, "--out", out).code == 0


@pytest.mark.parametrize(
    "command",
    [
        "ingest {text} {out}",
        "predict {trained} {text} --out {out}",
        "predict {trained} {data} --out {out}",
        "evaluate {trained} {text}",
        "evaluate {trained} {data}",
    ],
)
def test_too_little_memory_for_a_stream_of_rows_is_refused(
    run: Run, data: Path, text: Path, trained: Path, tmp_path: Path, command: str
) -> None:
    """Before anything is read or written; with enough of it, all is as without a limit."""
    out = tmp_path / ("out.zarr" if command.startswith("ingest") else "out.csv")
    given = command.format(trained=trained, data=data, text=text, out=out).split()
    ran = run(*given, "--memory", "1KB")
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert "of memory is needed with one thread" in ran.err
    assert "limit is 1.0 kB: raise --memory to at least" in ran.err
    assert not out.exists()
    assert run(*given, "--memory", "8GB").code == 0


MEASURED = """
import sys
from streamsvm.cli.main import main
from streamsvm.system.machine import peak_bytes
status = main(sys.argv[2:] + ["--memory", sys.argv[1]])
print(status, peak_bytes())
"""


@pytest.mark.slow("ingests, predicts and evaluates 100,000 rows in processes of their own")
@pytest.mark.parametrize("name", ["rows.csv", "rows.svm"])
def test_the_measured_memory_stays_below_the_limit(tmp_path: Path, name: str) -> None:
    """The least limit that is accepted, by the message of the refusal."""
    rng, file, data = np.random.default_rng(0), tmp_path / name, tmp_path / "rows.zarr"
    X: Any = rng.normal(size=(100_000, 20))
    y = np.where(X[:, 0] > 0, 1, -1)
    if name == "rows.csv":
        head = ",".join([*(f"f{j}" for j in range(20)), "label"])
        np.savetxt(file, np.c_[X, y], "%.5g", ",", header=head, comments="")
    else:
        dump_svmlight_file(X, y, str(file), zero_based=False)
    commands = [["ingest", str(file), str(data)]]
    for rows in (data, file):
        commands.append(["predict", str(tmp_path / "run"), str(rows), "--out", str(tmp_path / "p.csv")])
        commands.append(["evaluate", str(tmp_path / "run"), str(rows)])
    for command in commands:
        if command[0] == "predict" and not (tmp_path / "run").exists():
            assert run_python(MEASURED, "2GB", "train", data, "--out", tmp_path / "run").returncode == 0
        refused = run_python(MEASURED, "1KB", *command)
        enough = re.findall(r"at least ([\d.]+[MG]B)", refused.stderr)[0]
        ended = run_python(MEASURED, enough, *command)
        status, peak = ended.stdout.splitlines()[-1].split()
        assert (status, ended.returncode) == ("0", 0), ended.stderr
        assert int(peak) <= parse_bytes(enough), command


def test_a_scheduler_that_refuses_is_not_waited_for(
    run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{unused.getsockname()[1]}"
    monkeypatch.setattr(cluster_workers, "Client", lambda *_, **__: pytest.fail("a Client tries for many seconds"))
    ran = run("train", data, "--out", tmp_path / "run", "--scheduler", address)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert f"scheduler {address}: " in ran.err
    assert not (tmp_path / "run").exists()


def test_places_where_no_run_can_be(run: Run, text: Path, data: Path, trained: Path, tmp_path: Path) -> None:
    content = text.read_bytes()
    assert "is a file, not a folder" in run("train", data, "--out", text).err
    assert "cannot be written: Not a directory" in run("train", data, "--out", text / "run").err
    assert "is a dataset" in run("train", data, "--out", data).err
    assert "already holds a run; resume it with --resume" in run("train", data, "--out", trained).err
    other = run("train", data, "--out", trained, "--resume", "--C", "2")
    assert other.code == 2
    assert "cannot be resumed with other settings: class_costs was [1.0, 1.0], now [2.0, 2.0]" in other.err
    assert text.read_bytes() == content
    assert run("train", data, "--out", tmp_path / "missing/parents/run").code == 0


def test_one_class_cannot_be_trained(run: Run, tmp_path: Path) -> None:
    (tmp_path / "rows.svm").write_text("1 1:1\n1 2:1\n")
    stored = run("ingest", tmp_path / "rows.svm", tmp_path / "rows.zarr")
    assert stored.code == 0
    assert "every row has the label 1: --task one-class" in stored.err
    ran = run("train", tmp_path / "rows.zarr", "--out", tmp_path / "run")
    assert ran.code == 2
    assert "has 1 class (1), but at least two are needed; to learn from rows of one class, choose" in ran.err
    assert not (tmp_path / "run").exists()


def test_rows_without_labels(run: Run, trained: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", make_problem(1).dense())
    assert run("ingest", tmp_path / "rows.npy", tmp_path / "rows.zarr").code == 0
    ran = run("train", tmp_path / "rows.zarr", "--out", tmp_path / "run")
    assert (ran.code, "no labels to learn from" in ran.err) == (2, True)
    for rows in ("rows.npy", "rows.zarr"):
        ran = run("evaluate", trained, tmp_path / rows)
        assert (ran.code, f"{rows}: there are no labels to compare" in ran.err) == (2, True)


def damage(data: Path, damaged: Path) -> tuple[Path, bytes]:
    """Flip a bit of a copy -> the chunk where it is, and what was in it."""
    shutil.copytree(data, damaged)
    chunk = damaged / "X/c/1/0"
    whole = chunk.read_bytes()
    chunk.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    return chunk, whole


@pytest.mark.slow("starts a cluster")
def test_a_chunk_that_a_worker_finds_damaged_is_named_once(data: Path, tmp_path: Path) -> None:
    chunk, _ = damage(data, tmp_path / "damaged.zarr")
    train = ["train", str(tmp_path / "damaged.zarr"), "--out", str(tmp_path / "run"), "--workers", "2"]
    ran = subprocess.run([sys.executable, "-m", "streamsvm", *train], capture_output=True, text=True, check=False)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr.startswith(f"streamsvm train: {chunk}: ")
    assert ran.stderr.count("\n") == 1


def test_a_damaged_chunk_is_named_and_blocks_nothing(run: Run, data: Path, tmp_path: Path) -> None:
    damaged, out = tmp_path / "damaged.zarr", tmp_path / "run"
    chunk, whole = damage(data, damaged)
    for ran in (run("train", damaged, "--out", out), run("info", damaged, "--verify")):
        assert (ran.code, "Traceback" in ran.err) == (2, False)
        assert "X/c/1/0" in ran.err
    chunk.write_bytes(whole)
    assert run("train", damaged, "--out", out).code == 0


def test_models_that_are_none(run: Run, text: Path, data: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "array.npy", np.eye(2))
    np.savez(tmp_path / "arrays.npz", a=np.eye(2))
    (tmp_path / "empty").write_bytes(b"")
    for model in ("array.npy", "arrays.npz", "empty", "missing", text, data, "."):
        ran = run("predict", tmp_path / model, text, "--out", tmp_path / "p.csv")
        assert (ran.code, ran.err.count("\n")) == (2, 1), model
        assert str(model) in ran.err
    assert not (tmp_path / "p.csv").exists()


def test_predictions_that_cannot_be_made(run: Run, text: Path, trained: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "wide.npy", np.zeros((2, 7), np.float32))
    for rows, name, message in (
        (tmp_path / "wide.npy", "p.csv", "wide.npy: rows of 7 features; the model was trained on 6 features; "),
        (text, "p.txt", "p.txt: the name must end in .csv, .parquet, .npy or .zarr"),
        (text, "wide.npy/p.csv", "wide.npy: is a file, so it cannot contain"),
        (tmp_path / "missing.svm", "p.csv", "missing.svm: No such file"),
    ):
        ran = run("predict", trained, rows, "--out", tmp_path / name)
        assert (ran.code, ran.err.count("\n")) == (2, 1)
        assert message in ran.err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["wide.npy"]


def test_what_the_system_refuses_is_told_without_a_traceback(
    run: Run, text: Path, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> NoReturn:
        raise OSError(28, "No space left on device", "p.csv")

    monkeypatch.setattr("streamsvm.models.score._score_file", fail)
    ran = run("predict", trained, text, "--out", tmp_path / "p.csv")
    assert (ran.code, ran.err) == (1, "streamsvm predict: [Errno 28] No space left on device: 'p.csv'\n")


def test_commands_that_are_none(run: Run) -> None:
    for arguments in ([], ["report"], ["tune", "data"], ["ingest", "one"]):
        ran = run(*arguments)
        assert (ran.code, ran.out) == (2, "")
        assert ran.err.startswith(
            f"streamsvm{'' if not arguments else ' ' + arguments[0]}: the following arguments are"
        )
    assert run("--version").out.startswith("streamsvm ")
    for command in ("demo", "ingest", "info", "train", "predict", "evaluate", "report"):
        assert run(command, "--help").code == 0
