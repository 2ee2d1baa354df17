"""The options of all commands with their defaults, and the signatures of the public names."""

from __future__ import annotations

import inspect
from typing import Any

import streamsvm
from streamsvm.cli.arguments import make_parser


def record_options() -> dict[str, Any]:
    """Return, for each command, its arguments: names, default, choices, and whether it has to be given."""
    found = {}
    for name, parser in make_parser().commands.items():
        found[name] = {
            " ".join(action.option_strings) or str(action.dest): {
                "default": repr(action.default),
                "choices": sorted(map(str, action.choices)) if action.choices else None,
                "nargs": action.nargs,
                "required": action.required,
            }
            for action in parser._actions
        }
    return found


def record_signatures() -> dict[str, Any]:
    """Return, for each public name, its signature, and those of its methods and its properties' names."""
    return {name: describe(getattr(streamsvm, name)) for name in streamsvm.__all__ if name != "__version__"}


def describe(value: Any) -> dict[str, Any]:
    """Return the parameters of a function, or of a class with its public methods."""
    found: dict[str, Any] = {"parameters": list_parameters(value)}
    if inspect.isclass(value):
        members = inspect.getmembers(value, lambda each: inspect.isfunction(each) or isinstance(each, property))
        found["members"] = {
            name: None if isinstance(member, property) else list_parameters(member)
            for name, member in members
            if not name.startswith("_")
        }
    return found


def list_parameters(value: Any) -> list[str]:
    """Return the parameters with their defaults: first those that may be given by position, then the others by name."""
    parameters = list(inspect.signature(value).parameters.values())
    by_position = [each for each in parameters if each.kind is not each.KEYWORD_ONLY]
    by_name = sorted(each.name + show_default(each) for each in parameters if each.kind is each.KEYWORD_ONLY)
    return [*(each.name + show_default(each) for each in by_position), *(["*", *by_name] if by_name else [])]


def show_default(parameter: inspect.Parameter) -> str:
    """Return the default of a parameter as it is written."""
    if parameter.default is parameter.empty:
        return ""
    return f"={getattr(parameter.default, '__name__', repr(parameter.default))}"
