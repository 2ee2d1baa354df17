"""What the help of `train` and `tune` says of the methods: all of it comes from their records."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from streamsvm.methods.method import Method
from streamsvm.methods.option_fields import describe_options
from streamsvm.methods.registry import METHODS, can_solve
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
    named: dict[tuple[type, tuple[str, ...]], list[str]] = {}
    for method in METHODS:
        if tasks := _find_tasks(method):
            named.setdefault((method.options, tasks), []).append(method.name)
    for (options, tasks), names in named.items():
        yield f"  {', '.join(names)} (--task {' or '.join(tasks)}):"
        for line in describe_options(options):
            yield textwrap.fill(line, WIDTH, initial_indent="    ", subsequent_indent="      ")


def _find_tasks(method: Method) -> tuple[str, ...]:
    """Return the tasks for which this record is the one of its name that is taken."""
    able = {task: [one for one in METHODS if can_solve(one, entry.losses)] for task, entry in PROBLEMS.items()}
    return tuple(task for task, methods in able.items() if method in methods and _is_first(method, methods))


def _is_first(method: Method, methods: list[Method]) -> bool:
    """Tell whether no earlier one of these methods has its name."""
    return next(one for one in methods if one.name == method.name) is method
