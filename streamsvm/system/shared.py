"""Settings that several threads may hold at once, and objects that are made once per process."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from threading import RLock, get_ident
from typing import Any, ParamSpec, TypeVar
from weakref import WeakValueDictionary

P = ParamSpec("P")
T = TypeVar("T")


class SharedSetting:
    """A setting that several threads may hold. The first holder makes it, and the last holder restores the old value.

    If each thread restored the value that it had found, the first thread to end would remove the setting for the
    others, and the last thread could leave it in place. make: a function that makes the setting, and returns a context
    that restores the old value. Any thread may exit the context; after Ctrl-C, it is exited a second time.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]) -> None:
        self._make = make
        self._made: AbstractContextManager[Any] | None = None
        self._holders: dict[object, int] = {}  # the thread of each holder
        self._lock = RLock()  # reentrant: the garbage collector may release a setting in a thread that has the lock
        os.register_at_fork(after_in_child=self._forget_other_threads)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the setting within the block."""
        holder = object()
        try:
            with self._lock:
                self._holders[holder] = get_ident()
                if self._made is None:
                    self._made = self._make()
                    self._made.__enter__()
            yield
        finally:
            try:
                self._release(holder)
            finally:  # Ctrl-C may have interrupted the first attempt, even while it was restoring the old value
                self._release(holder)

    def _release(self, holder: object) -> None:
        with self._lock:
            self._holders.pop(holder, None)
            if not self._holders and self._made is not None:
                self._made.__exit__(None, None, None)
                self._made = None  # last, so that an interrupted attempt is repeated

    def _forget_other_threads(self) -> None:
        """After a fork, drop the holders in other threads of the parent process."""
        self._lock, here = RLock(), get_ident()
        self._holders = {holder: thread for holder, thread in self._holders.items() if thread == here}
        self._release(None)


def made_once(make: Callable[P, T]) -> Callable[P, T]:
    """Cache the results of a function by its positional arguments.

    A result is cached as long as it is referenced elsewhere.
    """
    made: WeakValueDictionary[tuple[object, ...], T] = WeakValueDictionary()
    lock = RLock()

    def renew_lock() -> None:
        nonlocal lock
        lock = RLock()

    os.register_at_fork(after_in_child=renew_lock)  # a thread that holds the lock does not survive a fork

    @wraps(make)
    def find(*arguments: P.args, **named: P.kwargs) -> T:
        with lock:
            found = made.get(arguments)
            if found is None:
                found = made[arguments] = make(*arguments, **named)
            return found

    return find
