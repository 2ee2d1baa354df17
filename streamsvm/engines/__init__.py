"""Carry passes over the rows out: serially, on threads, on a Dask cluster."""
