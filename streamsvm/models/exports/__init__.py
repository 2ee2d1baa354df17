"""The export of models to files of other programs; `formats.py` lists the formats."""
