"""`ingest` on workers, compared with `ingest` in one process: wall and CPU seconds of whole commands.

    python -m benchmarks.ingest_on_workers [--megabytes 400] [--rounds 2] [--files table.csv] [--most 2]
        [--store [--latency 20]] [--before CHECKOUT]

The files are svmlight text, CSV, and a CSV table whose columns are encoded. They are in the page cache of the system.
Times include all processes of a command and their start. The commands take turns, and the table has the minimum of each
number, because other programs lengthen the wall seconds. The datasets are compared, file by file.

--store: the datasets are written to a store: tests/object_server.py, in a separate process on loopback, which answers
after --latency milliseconds and counts requests and the bytes of puts and gets. --before: another checkout of
streamsvm, which takes turns with this one.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import numpy as np

from tests.object_server import ObjectServer, make_tag

ROOT = Path(__file__).parents[1]
BELOW = "bucket/rows.zarr/"
WAYS = {"one process": (), **{f"{n} worker{'s' * (n > 1)}": ("--workers", str(n)) for n in (1, 2, 4)}}


def write_svmlight(file: Path, nbytes: int) -> None:
    """Write rows with about 40 of 10,000 features."""
    rng, written = np.random.default_rng(0), 0
    with file.open("wb") as opened:
        while written < nbytes:
            columns = np.sort(rng.integers(1, 10_000, (2000, 40)), axis=1)
            values = rng.integers(1, 1000, columns.shape)
            rows = [
                b"%d " % (1 if row[0] < 200 else -1)
                + b" ".join(b"%d:0.%03d" % pair for pair in zip(np.unique(row).tolist(), value.tolist(), strict=False))
                for row, value in zip(columns, values, strict=True)
            ]
            written += opened.write(b"\n".join(rows) + b"\n")


def write_csv(file: Path, nbytes: int) -> None:
    """Write rows of 64 numbers."""
    rng, written = np.random.default_rng(0), 0
    with file.open("wb") as opened:
        opened.write(b"label," + b",".join(b"f%d" % j for j in range(64)) + b"\n")
        while written < nbytes:
            X = rng.normal(size=(2000, 64))
            rows = [b"%d," % (row[0] > 0) + b",".join(b"%.4f" % value for value in row.tolist()) for row in X]
            written += opened.write(b"\n".join(rows) + b"\n")


def write_table(file: Path, nbytes: int) -> None:
    """Write rows of 8 numbers, of which some are missing, 8 columns of 5 to 500 words, and a date."""
    rng, written = np.random.default_rng(0), 0
    words = [[f"w{j}-{k:x}" for k in range(n)] for j, n in enumerate((5, 5, 10, 10, 50, 50, 100, 500))]
    names = ["label", *(f"number{j}" for j in range(8)), *(f"word{j}" for j in range(8)), "day"]
    with file.open("wb") as opened:
        opened.write((",".join(names) + "\n").encode())
        while written < nbytes:
            numbers = np.char.mod("%.4f", rng.normal(size=(2000, 8)))
            numbers[rng.random(numbers.shape) < 0.02] = ""
            texts = [rng.choice(each, 2000) for each in words]
            days = np.datetime64("2015-01-01") + rng.integers(0, 3000, 2000)
            labels = np.where(rng.random(2000) < 0.3, "yes", "no")
            rows = zip(labels, *numbers.T, *texts, days.astype(str), strict=True)
            written += opened.write("".join(",".join(row) + "\n" for row in rows).encode())


FILES = {  # by name: the function that writes the file, and the options of its ingest
    "rows.svm": (write_svmlight, ()),
    "rows.csv": (write_csv, ()),
    "table.csv": (write_table, ("--one-hot", "auto", "--missing", "mean")),
}


def run(arguments: list[str], checkout: Path) -> tuple[float, float]:
    """Return the wall and CPU seconds of a command and all of its processes."""
    began, environment = time.perf_counter(), {**os.environ, "PYTHONPATH": str(checkout)}
    with open(os.devnull, "wb") as nowhere:
        redirected = [(os.POSIX_SPAWN_DUP2, nowhere.fileno(), stream) for stream in (1, 2)]
        process = os.posix_spawn(
            sys.executable, [sys.executable, "-P", *arguments], environment, file_actions=redirected
        )
        _, status, usage = os.wait4(process, 0)
    if status:
        raise SystemExit(f"{' '.join(arguments)}: status {os.waitstatus_to_exitcode(status)}")
    return time.perf_counter() - began, usage.ru_utime + usage.ru_stime


def serve(latency_seconds: float) -> None:
    """Serve a store. For each line of standard input, print the counts since the previous line, and empty the store."""
    with ObjectServer(latency=latency_seconds) as server:
        print(server.url, flush=True)
        for _ in sys.stdin:
            put = sum(int(request.headers.get("content-length", 0)) for request in server.requests)
            got = sum(stop - start for start, stop in (request.range or (0, 0) for request in server.requests))
            digest = digest_all({key.removeprefix(BELOW): content for key, content in server.objects.items()})
            told = {"put": put, "got": got, "requests": len(server.requests), "digest": digest}
            print(json.dumps(told), flush=True)
            for each in (server.requests, server.objects):
                each.clear()
            make_tag.cache_clear()


def digest_all(files: dict[str, bytes]) -> str:
    """Return one digest of the names and contents of files."""
    digest = hashlib.sha256()
    for name in sorted(files):
        digest.update(f"{name} {len(files[name])} ".encode() + files[name])
    return digest.hexdigest()


@contextmanager
def open_store(latency: int) -> Iterator[subprocess.Popen[str]]:
    """Yield a process that serves a store.

    latency: its latency in milliseconds. The environment variables name the address of the store.
    """
    module = "benchmarks.ingest_on_workers"
    command = [sys.executable, "-m", module, "--serve", "--latency", str(latency)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        assert server.stdout is not None
        os.environ |= ObjectServer.environment_of(server.stdout.readline().strip())
        yield server
        server.communicate()


def ask(server: subprocess.Popen[str]) -> dict[str, int | str]:
    """Ask the server for its counts, and return them."""
    assert server.stdin is not None
    assert server.stdout is not None
    server.stdin.write("\n")
    server.stdin.flush()
    told: dict[str, int | str] = json.loads(server.stdout.readline())
    return told


def measure(command: list[str], checkout: Path, server: subprocess.Popen[str] | None) -> tuple[list[float], str]:
    """Run an ingest, and remove the dataset. Return the numbers of the table, and the digest of the dataset."""
    if server is not None:
        seconds = run([*command[:4], f"s3://{BELOW[:-1]}", *command[4:]], checkout)
        told = ask(server)
        return [*seconds, *(float(told[each]) for each in ("put", "got", "requests"))], str(told["digest"])
    with tempfile.TemporaryDirectory() as folder:
        made = Path(folder) / "rows.zarr"
        seconds = run([*command[:4], str(made), *command[4:]], checkout)
        files = {str(file.relative_to(made)): file.read_bytes() for file in made.rglob("*") if file.is_file()}
        return list(seconds), digest_all(files)


def compare(
    file: Path, given: tuple[str, ...], options: argparse.Namespace, server: subprocess.Popen[str] | None
) -> None:
    """Print the table's lines for a file. given: the options of its ingest."""
    checkouts = {"": ROOT, **({} if options.before is None else {", before": options.before.absolute()})}
    found, digests = dict[str, list[list[float]]](), set[str]()
    for _ in range(options.rounds):
        for way, more in ((way, more) for way, more in WAYS.items() if not more or int(more[1]) <= options.most):
            for name, checkout in checkouts.items():
                command = ["-m", "streamsvm", "ingest", str(file), *given, *more]
                numbers, digest = measure(command, checkout, server)
                found.setdefault(way + name, []).append(numbers)
                digests.add(digest)
    assert len(digests) == 1
    for way, rounds in found.items():
        clock, cpu, *counted = np.min(rounds, axis=0)
        told = [f"{clock:.1f}", f"{cpu:.1f}", f"{options.megabytes / cpu:.1f}"]
        if counted:
            put, got, requests = counted
            told += [f"{put / 1e6:.0f}", f"{got / 1e6:.0f}", f"{requests:.0f}"]
        print(f"| {file.name} | {way} | {' | '.join(told)} |", flush=True)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=400)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--files", nargs="+", choices=FILES, default=list(FILES))
    parser.add_argument("--most", type=int, default=4, help="workers")
    parser.add_argument("--store", action="store_true")
    parser.add_argument("--latency", type=int, default=0)
    parser.add_argument("--before", type=Path)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.latency / 1000)
        return
    names = ["files", "ingested by", "s", "CPU s", "MB a CPU s", *["MB put", "MB got", "requests"] * options.store]
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}")
    with (
        tempfile.TemporaryDirectory() as name,
        open_store(options.latency) if options.store else nullcontext() as server,
    ):
        for file in (Path(name) / each for each in options.files):
            write, given = FILES[file.name]
            write(file, options.megabytes << 20)
            compare(file, given, options, server)
            file.unlink()


if __name__ == "__main__":
    main()
