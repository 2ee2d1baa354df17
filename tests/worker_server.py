"""What worker processes import and load. The workers of tests are forks of a process that has done both once.

A worker that starts by itself imports for a second, and loads its kernels for half of one. `multiprocessing` calls the
process that is forked a fork server; it starts with the first worker, imports this module, and has one thread.
"""

import os

os.environ["OPENBLAS_NUM_THREADS"] = "1"  # threads do not survive a fork

import distributed.nanny
import distributed.worker  # noqa: F401

import streamsvm.engines.cluster.engine
import streamsvm.engines.cluster.workers  # noqa: F401
from streamsvm.solvers.set_up import ALL_MODELS, compile_all

compile_all(ALL_MODELS)
