"""Explicit feature maps: the second-order map, and low-rank approximations of a kernel."""
