"""Mercer kernels: values, sums, rounding bounds, precomputed kernels, and feature maps."""
