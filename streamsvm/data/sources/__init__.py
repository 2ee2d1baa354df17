"""Readers that turn external files and arrays into rows: an opener for each format."""
