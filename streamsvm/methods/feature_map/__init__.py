"""Explicit features of second order, or of a kernel."""
