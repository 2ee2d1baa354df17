"""What the help of `train` and `tune` says of the methods: all of it comes from their records."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from streamsvm.methods.option_fields import describe_options
from streamsvm.methods.registry import METHODS
from streamsvm.problems.registry import PROBLEMS

WIDTH = 100


def name_kernels() -> list[str]:
    """Return the kernels that any method takes, the plain one first."""
    return list(dict.fromkeys(kernel for method in METHODS for kernel in method.kernels))


def describe_default_kernels() -> str:
    """Return the default kernel, and the methods that have another one."""
    common = METHODS[0].kernels[0]
    others = [f"{method.kernels[0]} for {method.name}" for method in METHODS if method.kernels[0] != common]
    return "; ".join([common, *others])


def describe_methods() -> str:
    """Return the options of every method, a paragraph each."""
    return "\n".join(["options of the solvers (--option NAME=VALUE):", *_list_methods()])


def _list_methods() -> Iterator[str]:
    seen: dict[type, list[str]] = {}
    for method in METHODS:
        seen.setdefault(method.options, []).append(method.name)
    for method in METHODS:
        names = seen.pop(method.options, None)
        if names is None:
            continue
        yield f"  {', '.join(names)}{_name_tasks(method.losses)}:"
        for line in describe_options(method.options):
            yield textwrap.fill(line, WIDTH, initial_indent="    ", subsequent_indent="      ")


def _name_tasks(losses: tuple[str, ...]) -> str:
    tasks = [task for task, entry in PROBLEMS.items() if set(entry.losses) & set(losses)]
    return f" (--task {' or '.join(tasks)})"
