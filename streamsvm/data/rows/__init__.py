"""Rows as solvers see them: a source, its tiles, and views of other sources."""
