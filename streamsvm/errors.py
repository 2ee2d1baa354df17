"""Errors that a user can mend: the command line shows the message alone and exits with status 2."""

from __future__ import annotations


class InputError(ValueError):
    """Bad input or arguments; the message names the file, place and reason."""


class IntegrityError(InputError):
    """A stored chunk is flipped, truncated, missing or swapped; the message names it."""


class CertificateError(RuntimeError):
    """A lower bound above the objective: a fault of streamsvm, never of the data."""


class MemoryBudgetError(InputError):
    """The projected memory exceeds the budget; the message names the knob to turn."""


class WriteError(InputError, OSError):
    """A file that cannot be written, for want of space or permission; the message names it."""
