"""Datasets on disk: written, opened, read chunk by chunk."""
