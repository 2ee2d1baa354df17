"""The parser of the command line, whose errors are one message each."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn


class Parser(argparse.ArgumentParser):
    """A parser that tells an error without the usage, which takes a screen for commands with many options.

    commands: the parsers of the commands by their names, of the parser of the whole command line. options: the options
    of a command, such as --out.
    """

    commands: Mapping[str, Parser] = {}

    def __init__(self, *args: Any, **about: Any) -> None:
        self.options: list[str] = []
        super().__init__(*args, **about)

    def add_argument(self, *names: Any, **about: Any) -> argparse.Action:
        """Add an argument, and note its names if it is an option."""
        return self._note(super().add_argument(*names, **about))

    def add_mutually_exclusive_group(self, **about: Any) -> Any:
        """Return a group of arguments, and note the names of its options."""
        group = super().add_mutually_exclusive_group(**about)
        add = group.add_argument
        group.add_argument = lambda *names, **about: self._note(add(*names, **about))  # type: ignore[method-assign]
        return group

    def _note(self, action: argparse.Action) -> argparse.Action:
        self.options += action.option_strings
        return action

    def error(self, message: str) -> NoReturn:
        """Print the message, and end the process with the exit status 2."""
        self.exit(2, f"{self.prog}: {message}; see `{self.prog} --help`\n")

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: Any = None
    ) -> Any:
        """Return the arguments. An argument that the command does not have ends the process as other errors do."""
        options, left = self.parse_known_args(args, namespace)
        if left:
            parser = self.commands.get(options.command, self)
            parser.error(self._explain(left[0].partition("=")[0], options.command))
        return options

    def _explain(self, argument: str, command: str) -> str:
        """Say what to do about an argument that the command does not have."""
        if not argument.startswith("-"):
            return f"{argument!r} belongs to no option; several values of an option have commas between them: a,b"
        owners = [name for name, parser in self.commands.items() if argument in parser.options]
        near = get_close_matches(argument, self.commands[command].options, 1)
        remedy = f": it is one of {', '.join(owners)}" if owners else f": is {near[0]} meant?" if near else ""
        return f"{argument} is no option of {command}{remedy}"
