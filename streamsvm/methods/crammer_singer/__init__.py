"""Crammer-Singer: one linear problem for all classes, by dual coordinate ascent on blocks and cutting planes."""
