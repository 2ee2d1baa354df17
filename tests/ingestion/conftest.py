"""The fixtures of tests of data, since what is written is read."""

from tests.data.conftest import collect, paths, restored_signals, run_python, sparse_rows, write, write_file

__all__ = ["collect", "paths", "restored_signals", "run_python", "sparse_rows", "write", "write_file"]
