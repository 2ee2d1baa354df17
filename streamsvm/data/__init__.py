"""Sources of rows, and datasets on disk, which are opened, verified and read chunk by chunk."""
