"""Stories that run from raw input to a table: one folder each. README.md lists them."""
