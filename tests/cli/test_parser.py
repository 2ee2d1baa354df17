"""Arguments that are none: one message, without the usage, which says what is meant or where the option belongs."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import re

import pytest

from streamsvm.cli.arguments import COMMANDS, make_parser
from streamsvm.solvers.options import name_options
from streamsvm.solvers.registry import SOLVERS, name_solvers
from tests.commands import Run, run  # noqa: F401


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["train", "d.zarr", "--one-hot", "auto"],
            "train: --one-hot is not an option of train; it is an option of ingest",
        ),
        (["train", "d.zarr", "--kernell=rbf"], "train: --kernell is not an option of train; did you mean --kernel?"),
        (
            ["train", "d.zarr", "--row-numbers"],
            "train: --row-numbers is not an option of train; it is an option of predict",
        ),
        (
            ["train", "d.zarr", "--overwritten"],
            "train: --overwritten is not an option of train; did you mean --overwrite?",
        ),
        (["train", "d.zarr", "--zzz", "1"], "train: --zzz is not an option of train"),
        (
            ["predict", "run", "a.csv", "b.csv", "--out", "p.csv"],
            "predict: 'b.csv' does not belong to any option; separate the",
        ),
        (["train", "d.zarr", "--C", "abc"], "train: argument --C: invalid float value: 'abc'"),
        (["predict", "run", "a.csv"], "predict: the following arguments are required: --out"),
    ],
)
def test_arguments_that_are_none(run: Run, arguments: list[str], message: str) -> None:
    ran = run(*arguments)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(f"streamsvm {message}")
    assert ran.err.endswith(f"; see `streamsvm {arguments[0]} --help`\n")
    assert ran.err.count("\n") == 1


def test_every_option_of_every_command_has_a_help_text() -> None:
    bare = {"--sparse", "--out", "--codec"}  # whose choices, or neighbours, say it all
    for name, parser in make_parser().commands.items():
        lacking = {each.option_strings[0] for each in parser._actions if each.option_strings and not each.help}
        assert lacking <= bare, name


@pytest.mark.parametrize("name", COMMANDS)
def test_what_is_documented_is_declared(name: str) -> None:
    declared = [each for each, *_ in COMMANDS[name].list_arguments()]
    assert len(declared) == len({*declared}) > 0


def read_flags(text: str) -> list[str]:
    """Return the options that a help lists, in order."""
    return re.findall(r"^  (?:-\w, )?(--[\w-]+)", text, re.MULTILINE)


@pytest.mark.parametrize("command", ["train", "tune"])
def test_rare_options_are_shown_on_request(run: Run, command: str) -> None:
    short, full = run(command, "--help").out, run(command, "--help-all").out
    hidden = [flag for flag in read_flags(full) if flag not in read_flags(short)]
    declared = {flag for each in make_parser().commands[command]._actions for flag in each.option_strings}
    assert {*read_flags(full), "-h"} == declared
    assert hidden == read_flags(full[full.index("\nrarely:") :])
    assert {"--resident-rows", "--seed"} <= {*hidden}
    assert re.findall(r"^\w.*:$", full, re.MULTILINE)[2:] == [
        "what to learn:",
        "limits:",
        "machines:",
        "files:",
        "rarely:",
    ]
    assert short.count("\n") <= 125
    assert "--help-all" in short


@pytest.mark.parametrize("name", name_solvers())
def test_the_options_of_one_solver_are_shown_on_request(run: Run, name: str) -> None:
    ran = run("train", "--help-solver", name)
    listed = {*re.findall(r"^    (\w+)=", ran.out, re.MULTILINE)}
    assert ran.code == 0
    assert listed == {option for record in SOLVERS if record.name == name for option in name_options(record.options)}
