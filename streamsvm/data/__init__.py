"""Datasets on disk: how they are written from any source, opened, verified and read chunk by chunk."""
