"""Stories, each of which runs from raw input to a table and has a folder. README.md lists them."""
