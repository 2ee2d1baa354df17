"""How many workers shorten a pass over the data."""
