"""The number of workers up to which a pass over the data becomes faster."""
