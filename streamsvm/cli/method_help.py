"""The part of the help of `train` and `tune` that describes the methods. All of it comes from their records."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from streamsvm.methods.method import Method
from streamsvm.methods.option_fields import describe_options
from streamsvm.methods.registry import METHODS, can_solve, find_method
from streamsvm.problems.registry import MULTI_CLASS, PROBLEMS

WIDTH = 100


def name_kernels() -> list[str]:
    """Return the names of all kernels that any method takes, without repetition, the linear kernel first."""
    return list(dict.fromkeys(kernel for method in METHODS for kernel in method.kernels))


def name_multi_class() -> list[str]:
    """Return the names of all ways in which more than two classes are trained, without repetition."""
    return list(dict.fromkeys([*(way for method in METHODS for way in method.multi_class), *MULTI_CLASS]))


def describe_default_kernels() -> str:
    """Return a text that names the default kernel, and the methods with another default."""
    common = METHODS[0].kernels[0]
    others = [f"{method.kernels[0]} for {method.name}" for method in METHODS if method.kernels[0] != common]
    return "; ".join([common, *others])


def describe_methods() -> str:
    """Return a text with a paragraph for each method, which lists its own options."""
    return "\n".join(["options of the solvers (--option NAME=VALUE):", *_list_methods()])


def _list_methods() -> Iterator[str]:
    """Yield the lines of the paragraphs. Methods with the same options and tasks share a paragraph."""
    named: dict[tuple[type, tuple[str, ...]], list[str]] = {}
    for method in METHODS:
        if tasks := _find_tasks(method):
            named.setdefault((method.options, tasks), []).append(method.name)
    for (options, tasks), names in named.items():
        yield f"  {', '.join(names)} (--task {' or '.join(tasks)}):"
        for line in describe_options(options):
            yield textwrap.fill(line, WIDTH, initial_indent="    ", subsequent_indent="      ")


def _find_tasks(method: Method) -> tuple[str, ...]:
    """Return the tasks in which the method's name means this record. Several records may share a name."""
    pairs = [(task, *one) for task, entry in PROBLEMS.items() for one in entry.losses.items()]
    able = [t for t, loss, own in pairs if can_solve(method, own) and find_method(method.name, t, loss) is method]
    return tuple(dict.fromkeys(able))
