"""Process-wide settings that several threads may hold at once. The last one to leave restores the old value."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from threading import RLock, get_ident
from typing import Any


class SharedSetting:
    """A setting that several threads may hold: the first one makes it, and the last one restores what was before.

    If each thread restored what it had found, the first to end would take the setting from the others, and the last
    would leave the setting behind. make: returns a context that makes the setting and restores what was before; the
    thread that leaves the context may be another one than the thread that entered it.
    """

    def __init__(self, make: Callable[[], AbstractContextManager[Any]]) -> None:
        self._make, self._made = make, ExitStack()
        self._is_made = False
        self._holders: dict[object, int] = {}  # the thread that began to hold the setting, by holder
        self._lock = RLock()  # the collector may close a generator, which then releases, in a thread with the lock
        os.register_at_fork(after_in_child=self._forget_other_threads)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the setting within the block."""
        holder = object()
        try:
            with self._lock:
                self._holders[holder] = get_ident()
                if not self._is_made:
                    self._made.enter_context(self._make())
                    self._is_made = True
            yield
        finally:
            try:
                self._release(holder)
            finally:  # Ctrl-C may have ended the first attempt
                self._release(holder)

    def _release(self, holder: object) -> None:
        with self._lock:
            self._holders.pop(holder, None)
            if not self._holders:
                self._is_made = False
                self._made.close()

    def _forget_other_threads(self) -> None:
        """Drop, after a fork, the holders that belong to threads of the parent."""
        self._lock, here = RLock(), get_ident()
        self._holders = {holder: thread for holder, thread in self._holders.items() if thread == here}
        self._release(None)
