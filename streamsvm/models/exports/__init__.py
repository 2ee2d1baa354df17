"""Models as files of other programs: a file for each format, and the formats by name in `export.py`."""
