"""Ingest: rows are read, shuffled and written, by one process or by many."""
