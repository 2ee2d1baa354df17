"""Run commands that are read from standard input, one JSON list a line; say of each how it ended, as JSON."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any

from streamsvm.cli.main import main


def run(command: list[str]) -> dict[str, Any]:
    """Return status, messages and a digest of the result; or that it ended with a traceback.

    The commands crash, hang and raise do that, so that the campaign can be tested.
    """
    written, complaints = io.StringIO(), io.StringIO()
    if command[0] == "crash":
        os.abort()
    if command[0] == "hang":
        os.read(os.pipe()[0], 1)
    try:
        if command[0] == "raise":
            raise RuntimeError("as asked for")
        with contextlib.redirect_stdout(written), contextlib.redirect_stderr(complaints):
            status: Any = main(command)
    except SystemExit as error:
        status = error.code
    except BaseException:
        return {"ended": "TRACEBACK", "message": traceback.format_exc()}
    return {"status": status, "message": complaints.getvalue(), "digest": digest(command, written.getvalue())}


def digest(command: list[str], written: str) -> str:
    """Return what is the same for the same result: a model's bits, predictions, what `info` says but for the path."""
    if command[0] == "predict":
        file = Path(command[command.index("--out") + 1])
        return hashlib.sha256(file.read_bytes()).hexdigest() if file.exists() else "none"
    try:
        result = json.loads(written.splitlines()[-1])
    except (ValueError, IndexError):
        return written
    if command[0] == "train":
        return str([result[name] for name in ("model_sha256", "status", "objective")])
    return str({name: value for name, value in result.items() if name != "path"})


if __name__ == "__main__":
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line))), file=answers, flush=True)
