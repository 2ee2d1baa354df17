"""The solvers, one folder each, and the modules that they share."""
