"""Crammer-Singer with kernels: one problem for all classes, by decomposition into active sets of rows."""
