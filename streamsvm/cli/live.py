"""`train --live PORT`: the page of a run while it runs, for browsers on this machine."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from streamsvm.cli.pages.page import Section, render_page
from streamsvm.cli.pages.run_files import read_run
from streamsvm.cli.report import make_page
from streamsvm.errors import InputError

LOOPBACK = "127.0.0.1"
REFRESH_SECONDS = 2
NOT_BEGUN = "the run has made no step yet"


@contextmanager
def serve_page(run: Path, port: int) -> Iterator[str]:
    """Serve the page of a run until the block ends, and yield its address. InputError if the port is taken.

    port: 0 takes any that is free. Only this machine reaches it, and only under the names of this machine, so that no
    page of another site can read it (DNS rebinding).
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            host = self.headers.get("Host", "").rpartition(":")[0]
            if host not in (LOOPBACK, "localhost") or self.path not in ("/", "/index.html"):
                self.send_error(404)
                return
            content = make_live_page(run).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/html; charset=utf-8")
            self.send_header("Content-Length", str(len(content)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            """Print nothing: standard error is for the progress of the run."""

    try:
        server = ThreadingHTTPServer((LOOPBACK, port), Handler)
    except (OSError, OverflowError) as error:
        raise InputError(f"--live {port}: {error}; choose another port, or 0 for one that is free") from error
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True)
    thread.start()
    try:
        yield f"http://{LOOPBACK}:{server.server_address[1]}/"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def make_live_page(run: Path) -> str:
    """Return the page of a run as it is now; a browser loads it again every REFRESH_SECONDS."""
    try:
        return make_page([read_run(run)], refresh_seconds=REFRESH_SECONDS)
    except InputError:  # there are no files yet, or a line of the history is being written
        return render_page(run.resolve().name, [Section("", [NOT_BEGUN])], REFRESH_SECONDS)
