"""Arrays in, arrays out: the kernels."""
