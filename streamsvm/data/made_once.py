"""Objects that hold descriptors and locks: one in a process for all that use it, and none when nobody does any more."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from threading import RLock
from typing import ParamSpec, TypeVar
from weakref import WeakValueDictionary

P = ParamSpec("P")
T = TypeVar("T")


def made_once(make: Callable[P, T]) -> Callable[P, T]:
    """Let a function return the object that it made of the same positional arguments while anything holds that."""
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
