"""Computations that several solvers share; they take and return arrays, and read no data."""

from streamsvm.numeric import compilation  # before the first kernel is defined  # noqa: F401
