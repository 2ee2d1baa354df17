"""Crammer-Singer: one problem for all classes, linear (block ascent, cutting planes) or with a kernel."""
