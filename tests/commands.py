"""Commands called in this process, and the data that they are tried on."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import pytest

from streamsvm.cli.main import main
from tests.conftest import make_problem


@dataclass(frozen=True)
class Ran:
    """What a command returned and wrote."""

    code: Any
    out: str
    err: str

    @property
    def result(self) -> dict[str, Any]:
        """The object on the last line of standard output; strictly JSON."""
        found: dict[str, Any] = json.loads(self.out.splitlines()[-1], parse_constant=_refuse_constant)
        return found


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


Run = Callable[..., Ran]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Iterator[Run]:
    """Call a command in this process."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}

    def call(*arguments: object) -> Ran:
        try:
            code: Any = main([str(argument) for argument in arguments])
        except SystemExit as error:  # argparse
            code = error.code
        written = capsys.readouterr()
        return Ran(code, written.out, written.err)

    yield call
    for number, handler in handlers.items():
        signal.signal(number, handler)


@pytest.fixture(scope="module")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """300 rows of svmlight text, classes -1 and 1."""
    problem = make_problem(1)
    lines = [
        f"{label:+d} " + " ".join(f"{j + 1}:{value:.9g}" for j, value in enumerate(x))
        for x, label in zip(problem.X, problem.y, strict=True)
    ]
    path = tmp_path_factory.mktemp("text") / "rows.svm"
    path.write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def data(text: Path) -> Path:
    """The same as a dataset of several chunks."""
    path = text.with_name("rows.zarr")
    assert main(["ingest", str(text), str(path), "--chunk-bytes", "2KB"]) == 0
    return path


@pytest.fixture(scope="module")
def trained(data: Path) -> Path:
    """A finished run."""
    path = data.with_name("trained")
    assert main(["train", str(data), "--out", str(path), "--json"]) == 0
    return path
