"""The table and the figures of Joachims 2006."""
