"""The `streamsvm` command. Progress goes to standard error, and results go to standard output.

The exit status is 0 if the command succeeded (training converged, or budgeted-sgd completed its epochs), 3 if a limit
stopped training (the model is still written), 2 for unsuitable input or arguments, 130 if a second Ctrl-C ended the
process at once, and 1 for anything else.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import signal
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from streamsvm.cli import output
from streamsvm.cli.arguments import COMMANDS, make_parser
from streamsvm.cli.progress import log_to_stderr
from streamsvm.system.errors import CertificateError, InputError
from streamsvm.system.interrupts import caught_by_command


def _silence() -> None:
    """Silence warnings about abandoned coroutines and tasks of Dask."""
    warnings.simplefilter("ignore")
    logging.getLogger("asyncio").setLevel(logging.CRITICAL)
    sys.unraisablehook = lambda _: None


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command and return its exit status. arguments: by default the command line of the process."""
    closed = output.open_streams()  # before the signal pipe could get their descriptors
    with caught_by_command(_silence), log_to_stderr():
        status = _run(make_parser().parse_args(arguments), closed)
    if arguments is None:  # the process is about to end, and a signal may end it without a traceback
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        gc.freeze()  # a last collection among the compiler's objects would take half a second
        if status and "obstore" in sys.modules:
            _end_at_once(status)
    return status


def _end_at_once(status: int) -> None:
    """End the process at once: pending requests to an object store could abort the interpreter's shutdown."""
    with suppress(OSError, ValueError, AttributeError):  # the stream may be gone
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def _run(options: argparse.Namespace, closed: list[str]) -> int:
    """Run a command and return its exit status; print a message for an error."""
    try:
        output.refuse_closed(closed, options)
        command = import_module(f"streamsvm.cli.{COMMANDS[options.command].module}")
        status: int = getattr(command, f"run_{options.command.replace('-', '_')}")(options)
        output.flush_output()
        return status
    except InputError as error:
        print(f"streamsvm {options.command}: {output.describe_error(error, options)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"streamsvm {options.command}: interrupted; {output.describe_remains(options)}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        output.silence_output()
        return 1
    except (OSError, CertificateError) as error:
        output.silence_output()
        print(f"streamsvm {options.command}: {error}", file=sys.stderr)
        return 1
