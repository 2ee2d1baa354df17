"""The parser of the command line. A class declares the arguments of a command, and its docstring is their help."""

from __future__ import annotations

import argparse
import sys
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


RARELY = "Rarely"  # the section of arguments that only --help-all shows


class Arguments(Documented):
    """The base class of groups of arguments. A command has the arguments of its class and of the bases.

    The first line of a class's docstring is the help of the command, and the paragraphs below it are the description.
    The sections have an entry `name : VALUE` for each argument; the help shows the arguments of a section under its
    title, and those of "Parameters" as options. `needs` names a group of `one_of`; one of its arguments must be given.
    Arguments may share a declaration: `a = b = option()`. `module` is the module of this package with the function that
    runs the command.
    """

    needs: ClassVar[str] = ""
    module: ClassVar[str] = "commands"

    _sections = ("Parameters", "What to learn", "Limits", "Machines", "Files", RARELY)

    @classmethod
    def list_arguments(cls) -> Iterator[tuple[str, Argument, Entry, str]]:
        """Yield the name, the declaration, the documentation and the section of each argument.

        Positional arguments come first: those that the bases declare, then those that the class declares. Options
        follow by section, in the order of their documentation: those of the class before those of its bases.
        """
        declared = dict[str, Argument]()
        for base in reversed(cls.__mro__):
            declared |= {name: value for name, value in vars(base).items() if isinstance(value, Argument)}
        entries = {name: (entry, title) for title in cls._sections for name, entry in cls._list_entries(title).items()}
        first = [name for name, argument in declared.items() if argument.flags is None]
        for name in dict.fromkeys([*first, *(entries or declared)]):  # python -OO removes docstrings
            yield name, declared[name], *entries.get(name, (Entry("", ""), "Parameters"))


def _make_reader(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Wrap a reader for argparse, which replaces the messages of all errors except ArgumentTypeError."""

    @wraps(read)
    def reader(text: str) -> Any:
        try:
            return read(text)
        except InputError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return reader


class Printing(argparse.Action):
    """An option that prints a text and ends the process. const: returns the text from the parser and the value."""

    def __call__(self, parser: Any, namespace: Any, value: Any, flag: str | None = None) -> None:  # noqa: ARG002
        """Print the text, and end the process."""
        parser._print_message(self.const(parser, value), sys.stdout)
        parser.exit()


class Parser(argparse.ArgumentParser):
    """A parser whose error messages omit the usage, which would fill a screen for commands with many options.

    commands: the parsers of the commands by name, if this is the parser of the whole command line. rare: the arguments
    that the help leaves out.
    """

    commands: Mapping[str, Parser] = {}
    rare: Any = None

    def add(self, arguments: type[Arguments]) -> None:
        """Add the arguments that a class declares."""
        sections: dict[str, Any] = {"Parameters": self}
        groups: dict[str, Any] = {}
        for name, declared, entry, title in arguments.list_arguments():
            about = {"help": " ".join(entry.text.split()) or None, "dest": name, **declared.about}
            if entry.kind:
                about["metavar"] = entry.kind
            if title not in sections:
                sections[title] = self.add_argument_group(title.lower())
            place = self if declared.flags is None else sections[title]
            if declared.one_of and declared.one_of not in groups:
                needed = declared.one_of == arguments.needs
                groups[declared.one_of] = place.add_mutually_exclusive_group(required=needed)
            flags = () if declared.flags is None else declared.flags or (f"--{name.replace('_', '-')}",)
            groups.get(declared.one_of, place).add_argument(*flags, **about)
        self.rare = sections.get(RARELY)

    def format_help(self) -> str:
        """Return the help without the rare arguments."""
        all_groups = self._action_groups
        self._action_groups = [group for group in all_groups if group is not self.rare]
        try:
            return super().format_help()
        finally:
            self._action_groups = all_groups

    def format_all(self, _: object = None) -> str:
        """Return the help with all arguments."""
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
