"""Objects that a process makes once, also in a process that is forked while another thread makes one."""

from __future__ import annotations

import os
import signal
from threading import Event, Thread

import pytest

from streamsvm.system.shared import made_once

SECONDS = 60  # until a forked process that hangs is ended


class Made:
    """An object that weak references may refer to."""


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_forked_while_one_is_made_makes_its_own() -> None:
    began, ended = Event(), Event()

    @made_once
    def make(waits: bool) -> Made:
        if waits:
            began.set()
            assert ended.wait(SECONDS)
        return Made()

    known = make(False)
    thread = Thread(target=make, args=(True,))
    thread.start()
    assert began.wait(SECONDS)
    child = os.fork()
    if not child:
        signal.alarm(SECONDS)
        os._exit(0 if make(False) is known else 1)
    _, status = os.waitpid(child, 0)
    ended.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == 0
