#!/usr/bin/env bash
# Trains on the nodes of a SLURM job: a scheduler on the first node, a worker process for every task.
#
#   sbatch --nodes=2 --export=ALL,INTERFACE=ib0 cluster/slurm.sh /shared/data.zarr /shared/run --C 0.05
#
# The arguments go to `streamsvm train`, which runs on the first node; its options follow dataset and run. INTERFACE is
# the network interface that the nodes share; without it everything is on loopback, which is right for one node only.
# For TLS, export DASK_CONFIG as well (see tls.md). The folder of the run must be on a shared file system, as the data.
#SBATCH --job-name=streamsvm
#SBATCH --nodes=1
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=1
#SBATCH --mem-per-cpu=4G
#SBATCH --time=04:00:00
set -euo pipefail

[ $# -ge 2 ] || { echo "usage: sbatch slurm.sh DATA.zarr RUN [options of streamsvm train]" >&2; exit 2; }
data=$(realpath "$1")
run=$(realpath "$2")
shift 2

interface=${INTERFACE:-lo}
threads=${SLURM_CPUS_PER_TASK:-1}
worker_mb=$((${SLURM_MEM_PER_CPU:-4096} * threads * 9 / 10)) # a tenth is left to scheduler, nannies and the driver
# as dask.yaml, which is not beside the copy of this script that SLURM runs
export DASK_DISTRIBUTED__WORKER__MEMORY__TARGET=False DASK_DISTRIBUTED__WORKER__MEMORY__SPILL=False
export DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE=False DASK_DISTRIBUTED__WORKER__MEMORY__TERMINATE=0.99
export OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1

encrypted='import dask, distributed; print(["tcp", "tls"][bool(dask.config.get("distributed.comm.require-encryption"))])'
protocol=$(python -c "$encrypted")
state=$(mktemp -d "$(dirname "$run")/.streamsvm-$SLURM_JOB_ID.XXXX")
own_cache='export NUMBA_CACHE_DIR="${NUMBA_CACHE_DIR-$0/$(hostname)}"; exec "$@"' # of each node: processors differ
trap 'kill $(jobs -p) 2>/dev/null || true; wait; rm -rf "$state"' EXIT

listen=(--protocol "$protocol" --interface "$interface" --no-dashboard --dashboard-address 127.0.0.1:0)
dask scheduler "${listen[@]}" --port 0 --scheduler-file "$state/scheduler.json" &
until [ -s "$state/scheduler.json" ]; do
    kill -0 $! 2>/dev/null || { echo "the scheduler did not start" >&2; exit 1; }
    sleep 0.2
done
srun bash -c "$own_cache" "$state" dask worker "${listen[@]}" --scheduler-file "$state/scheduler.json" \
    --nthreads "$threads" --memory-limit "${worker_mb}MB" --death-timeout 60 &

address=$(python -c 'import json, sys; print(json.load(open(sys.argv[1]))["address"])' "$state/scheduler.json")
python -c 'import sys; from distributed import Client; Client(sys.argv[1]).wait_for_workers(int(sys.argv[2]), 120)' \
    "$address" "$SLURM_NTASKS"
bash -c "$own_cache" "$state" streamsvm train "$data" --out "$run" --scheduler "$address" --memory "${worker_mb}MB" "$@"
