"""Computations that several methods share. They take and return arrays, and read no data."""

from streamsvm.numeric import cache_folder as _cache_folder  # before the first kernel is defined  # noqa: F401
