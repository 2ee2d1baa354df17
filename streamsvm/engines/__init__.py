"""Engines that carry out passes over the rows: serially, on threads, or on a Dask cluster."""
