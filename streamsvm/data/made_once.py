"""Make an object with descriptors and locks once per process, and share it while anything refers to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

P = ParamSpec("P")
T = TypeVar("T")


def made_once(make: Callable[P, T]) -> Callable[P, T]:
    """Cache the results of a function by its positional arguments, while the results are referenced."""
    made: WeakValueDictionary[tuple[object, ...], T] = WeakValueDictionary()
    lock = RLock()

    @wraps(make)
    def find(*arguments: P.args, **named: P.kwargs) -> T:
        with lock:
            found = made.get(arguments)
            if found is None:
                found = made[arguments] = make(*arguments, **named)
            return found

    return find
