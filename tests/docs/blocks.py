"""The code blocks of a Markdown page: found, and carried out as a reader would, one after another in one folder.

A `python` block is executed; a `pycon` block is a session of which every output is compared; in a `console` block the
lines that begin with "$ " are commands, and what follows them is their output, where the page shows any. "..." in an
output stands for anything, and numbers of commands may differ by 3%, since other processors round differently. A block
with a caption is left out: the caption says why, or names the file that a test of its own makes of it.
"""

from __future__ import annotations

import doctest
import io
import json
import math
import os
import re
import runpy
import shlex
import subprocess
import sys
from contextlib import redirect_stdout
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import streamsvm.estimators  # noqa: F401  (forks begin with everything imported)
from streamsvm.cli.main import main
from tests.conftest import ROOT

FENCE = re.compile(
    r"^```(?P<directive>\{code-block\} )?(?P<language>\w+)\n(?P<options>(?::[^\n]*\n)*)(?P<text>.*?)^```$", re.M | re.S
)
NOT_RUN = "Not run by the tests: "
LANGUAGES = ("python", "pycon", "console")
ELSEWHERE = ("text", "diff", "toml", "yaml", "json")  # nothing to run
LIKE = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
NUMBER = r"\d+(?:,\d{3})*(?:\.\d+)?(?:e[+-]?\d+)?"
TOLERANCE = 0.03


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the line of the page on which the text begins, and its caption."""

    language: str
    text: str
    line: int
    caption: str

    @property
    def is_run(self) -> bool:
        """Whether a reader of the page carries it out."""
        return self.language in LANGUAGES and not self.caption


@dataclass
class Reader:
    """Carries the blocks of one page out. names: what its Python blocks have defined."""

    page: Path
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "__page__"})

    def carry_out(self, block: Block) -> None:
        """Execute a block; AssertionError where an output is not the one that the page shows."""
        place = f"{self.page}:{block.line}"
        if block.language == "python":
            exec(compile("\n" * (block.line - 1) + block.text, str(self.page), "exec"), self.names)
        elif block.language == "pycon":
            session = doctest.DocTestParser().get_doctest(block.text, self.names, place, str(self.page), block.line - 1)
            session.globs = self.names
            said = io.StringIO()
            results = doctest.DocTestRunner(optionflags=LIKE).run(session, out=said.write, clear_globs=False)
            assert not results.failed, said.getvalue()
        else:
            for command, shown in split_console(block.text):
                said_text = run_command(command, place)
                same = not shown.strip() or is_alike(shown, said_text)
                assert same, f"{place}: {command}\n{said_text}\nis not as the page shows:\n{shown}"


def carry_out_page(page: Path) -> None:
    """Carry out all blocks of a page that are run, in the folder where this process is."""
    reader = Reader(page)
    for block in find_blocks(page):
        if block.is_run:
            reader.carry_out(block)


def find_blocks(page: Path) -> list[Block]:
    """Return the fenced blocks of a page that show a language."""
    content = page.read_text()
    return [
        Block(
            found["language"],
            found["text"],
            content.count("\n", 0, found.start("text")) + 1,
            found["options"].removeprefix(":caption: ").strip(),
        )
        for found in FENCE.finditer(content)
    ]


def is_alike(shown: str, said: str) -> bool:
    """Whether an output is the one that is shown, up to white space, to "...", and to 3% in every number."""
    pieces = re.split(rf"(\.\.\.|{NUMBER})", " ".join(shown.split()))
    kinds = ["(?:.*?)" if piece == "..." else f"({NUMBER})" for piece in pieces[1::2]]
    pattern = "".join(part for pair in zip(map(re.escape, pieces[0::2]), [*kinds, ""], strict=True) for part in pair)
    found = re.fullmatch(pattern, " ".join(said.split()))
    expected = [read_number(piece) for piece in pieces[1::2] if piece != "..."]
    return found is not None and all(
        math.isclose(number, read_number(text), rel_tol=TOLERANCE)
        for number, text in zip(expected, found.groups(), strict=True)
    )


def read_number(text: str) -> float:
    """Return the number that is written with commas between thousands."""
    return float(text.replace(",", ""))


def split_console(text: str) -> list[tuple[str, str]]:
    """Return the commands of a console block, each with the output that is shown; "\\" continues a command."""
    found: list[list[str]] = []
    for line in text.splitlines():
        if line.startswith("$ "):
            found.append([line[2:], ""])
        elif found and found[-1][0].endswith("\\") and not found[-1][1]:
            found[-1][0] = found[-1][0][:-1] + line.strip()
        else:
            found[-1][1] += line + "\n"
    return [(command, shown) for command, shown in found]


def run_command(line: str, place: str) -> str:
    """Carry one command out and return its standard output: streamsvm and Python scripts in this process.

    "; echo $?" after a command shows its exit status; without it, the status has to be 0.
    """
    command, told = (line.removesuffix("; echo $?"), True) if line.endswith("; echo $?") else (line, False)
    words = shlex.split(command, comments=True)
    pipe = io.BytesIO()
    said = io.TextIOWrapper(pipe, "utf-8", write_through=True)  # with a buffer of bytes, as standard output
    if words[0] == "streamsvm":
        with redirect_stdout(said):
            try:
                status: Any = main(words[1:])
            except SystemExit as error:  # argparse
                status = error.code
    elif words[0] == "python" and len(words) == 2:
        with redirect_stdout(said):
            runpy.run_path(str(ROOT / words[1]), run_name="__main__")
        status = 0
    else:
        ran = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
        said.write(ran.stdout)
        status = ran.returncode
        sys.stderr.write(ran.stderr)
    if told:
        said.write(f"{status}\n")
    written = pipe.getvalue().decode()
    assert told or status == 0, f"{place}: {line}: exit status {status}\n{written}"
    return written


def serve() -> None:
    """Carry out the pages whose names come in, each in a fork of this process; say of each how it ended, as JSON.

    A line holds a page, the folder, and the file for what is printed.
    """
    for line in sys.stdin:
        page, folder, told = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.chdir(folder)
            for stream in (1, 2):
                os.dup2(os.open(told, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), stream)
            carry_out_page(Path(page))
            sys.exit()
        print(json.dumps(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])), flush=True)


if __name__ == "__main__":
    serve()
