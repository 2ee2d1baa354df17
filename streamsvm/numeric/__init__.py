"""Arrays in, arrays out: the kernels."""

from streamsvm.numeric import cache_folder as _cache_folder  # before numba is asked to cache anything  # noqa: F401
