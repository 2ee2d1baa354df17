"""The parser of the command line. A class declares the arguments of a command, and its docstring is their help."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from typing import Any, ClassVar, NoReturn

from streamsvm.system.docstrings import Documented, Entry
from streamsvm.system.errors import InputError


@dataclass(frozen=True)
class Argument:
    """The declaration of an argument: its flags, and the further arguments of `add_argument`.

    flags: None for a positional argument; empty for one flag, derived from the name. one_of: the name of a group; at
    most one of its arguments may be given.
    """

    flags: tuple[str, ...] | None
    about: Mapping[str, Any]
    one_of: str = ""


def option(read: Callable[[str], Any] | None = None, *flags: str, one_of: str = "", **about: Any) -> Argument:
    """Return an option with a value, which `read` parses. flags: by default one flag, derived from the name."""
    return Argument(flags, about if read is None else {"type": _make_reader(read), **about}, one_of)


def switch(*flags: str, one_of: str = "", action: str = "store_true", **about: Any) -> Argument:
    """Return an option without a value, which is False unless it is given."""
    return Argument(flags, {"action": action, **about}, one_of)


def positional(read: Callable[[str], Any] | None = None, **about: Any) -> Argument:
    """Return a positional argument."""
    return Argument(None, option(read, **about).about)


class Arguments(Documented):
    """The base class of groups of arguments. A command has the arguments of its class and of the bases.

    The first line of a class's docstring is the help of the command, the paragraphs below it are the description, and
    the section "Parameters" has an entry `name : VALUE` for each argument. `needs` names a group of `one_of`; one of
    its arguments must be given. Arguments may share a declaration: `a = b = option()`. `module` is the module of this
    package with the function that runs the command.
    """

    needs: ClassVar[str] = ""
    module: ClassVar[str] = "commands"

    @classmethod
    def list_arguments(cls) -> Iterator[tuple[str, Argument, Entry]]:
        """Yield the name, the declaration and the documentation of each argument.

        Positional arguments come first: those that the bases declare, then those that the class declares. Options
        follow in the order of their documentation: first the options of the class, then the options of its bases.
        """
        declared, entries = dict[str, Argument](), cls._list_entries("Parameters")
        for base in reversed(cls.__mro__):
            declared |= {name: value for name, value in vars(base).items() if isinstance(value, Argument)}
        first = [name for name, argument in declared.items() if argument.flags is None]
        for name in dict.fromkeys([*first, *(entries or declared)]):  # python -OO removes docstrings
            yield name, declared[name], entries.get(name, Entry("", ""))


def _make_reader(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Wrap a reader for argparse, which replaces the messages of all errors except ArgumentTypeError."""

    @wraps(read)
    def reader(text: str) -> Any:
        try:
            return read(text)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return reader


class Parser(argparse.ArgumentParser):
    """A parser whose error messages omit the usage, which would fill a screen for commands with many options.

    commands: the parsers of the commands by name, if this is the parser of the whole command line. describe: returns
    the end of the help; it is called only when the help is printed.
    """

    commands: Mapping[str, Parser] = {}
    describe: Callable[[], str] | None = None

    def add(self, arguments: type[Arguments]) -> None:
        """Add the arguments that a class declares."""
        groups: dict[str, Any] = {"": self}
        for name, declared, entry in arguments.list_arguments():
            about = {"help": " ".join(entry.text.split()) or None, "dest": name, **declared.about}
            if entry.kind:
                about["metavar"] = entry.kind
            if declared.one_of not in groups:
                groups[declared.one_of] = self.add_mutually_exclusive_group(required=declared.one_of == arguments.needs)
            flags = () if declared.flags is None else declared.flags or (f"--{name.replace('_', '-')}",)
            groups[declared.one_of].add_argument(*flags, **about)

    def format_help(self) -> str:
        """Return the help, followed by the text of `describe`."""
        self.epilog = self.describe() if self.describe else None
        return super().format_help()

    def error(self, message: str) -> NoReturn:
        """Print the message, and end the process with the exit status 2."""
        self.exit(2, f"{self.prog}: {message}; see `{self.prog} --help`\n")

    def parse_args(self, args: Sequence[str] | None = None) -> Any:  # type: ignore[override]
        """Return the parsed arguments. An argument that the command lacks ends the process, like other errors."""
        options, left = self.parse_known_args(args)
        if left:
            parser = self.commands.get(options.command, self)
            parser.error(self._explain(left[0].partition("=")[0], options.command))
        return options

    def _explain(self, argument: str, command: str) -> str:
        """Return the message about an argument that the command lacks, with a suggestion if there is one."""
        if not argument.startswith("-"):
            return f"{argument!r} does not belong to any option; separate the values of an option by commas: a,b"
        owners = [name for name, parser in self.commands.items() if argument in parser._option_string_actions]
        near = get_close_matches(argument, self.commands[command]._option_string_actions, 1)
        remedy = f"; it is an option of {', '.join(owners)}" if owners else f"; did you mean {near[0]}?" if near else ""
        return f"{argument} is not an option of {command}{remedy}"
