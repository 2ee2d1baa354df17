"""`train --live`: the page of a run is there while it runs, for this machine only, and gone afterwards."""

# ruff: noqa: F811  (fixtures are imported)
from __future__ import annotations

import http.client
import re
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamsvm.cli import train
from streamsvm.cli.reports import report
from streamsvm.cli.reports.report import NOT_BEGUN, make_live_page, serve_page
from tests.cli.reports.structure import check_page
from tests.commands import Run, data, run, text, trained  # noqa: F401


def get(port: int, path: str = "/", host: str | None = None) -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path, headers={} if host is None else {"Host": host})
    answer = connection.getresponse()
    found = answer.status, answer.read().decode()
    connection.close()
    return found


def find_port(told: str) -> int:
    return int(re.findall(r"http://127\.0\.0\.1:(\d+)/", told)[0])


def test_the_page_grows_with_the_run(run: Run, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asked during a step, the page shows the steps so far; after the run nobody answers."""
    seen: list[tuple[int, str]] = []
    ports: list[int] = []
    train_on = train._train_on

    @contextmanager
    def serve(folder: Path, port: int, describe: Callable[[], str]) -> Iterator[str]:
        with serve_page(folder, port, describe) as address:
            ports.append(find_port(address))
            yield address

    def watch(*arguments: object) -> int:
        seen.append(get(ports[0]))
        status = train_on(*arguments)  # type: ignore[arg-type]
        seen.append(get(ports[0]))
        return status

    monkeypatch.setattr(train, "_train_on", watch)
    monkeypatch.setattr(report, "WATCHED_SECONDS", 0.0)
    monkeypatch.setattr(report, "serve_page", serve)
    out = tmp_path / "run"
    settings = ("--option", "acceleration=line-search", "--live", "0")
    ran = run("train", data, "--out", out, *settings)
    assert (ran.code, find_port(ran.err)) == (0, ports[0])
    assert [status for status, _ in seen] == [200, 200]
    assert NOT_BEGUN in seen[0][1]
    assert "Gap against passes" in seen[1][1]
    assert 'http-equiv="refresh"' in seen[1][1]
    check_page(seen[1][1])
    with pytest.raises(ConnectionRefusedError):
        get(ports[0])
    assert f"its page stays in {out / 'report.html'}" in ran.err
    assert 'http-equiv="refresh"' not in (out / "report.html").read_text()


def test_who_looks_gets_the_last_page(trained: Path) -> None:
    """The server waits for a browser that shows the page; its last page is not loaded again."""
    pages: list[str] = []
    with serve_page(trained, 0, lambda: "41% of a pass") as address:
        pages.append(get(find_port(address))[1])

        def look() -> None:
            while "refresh" in pages[-1]:
                pages.append(get(find_port(address))[1])

        asks = threading.Thread(target=look)
        asks.start()
    asks.join()
    assert "41% of a pass" in pages[0]
    assert 'http-equiv="refresh"' in pages[0]
    assert 'http-equiv="refresh"' not in pages[-1]


def test_other_names_and_paths_get_nothing(tmp_path: Path) -> None:
    """A page of another site, whose name leads to this machine, must not read the run."""
    with serve_page(tmp_path, 0) as address:
        port = find_port(address)
        assert get(port)[0] == get(port, host=f"localhost:{port}")[0] == 200
        assert get(port, host=f"evil.example:{port}")[0] == 404
        assert get(port, path="/settings.json")[0] == 404


def test_only_this_machine_is_answered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bound: list[str] = []
    bind = socket.socket.bind

    def note(self: socket.socket, address: tuple[str, int]) -> None:
        bound.append(address[0])
        bind(self, address)

    monkeypatch.setattr(socket.socket, "bind", note)
    with serve_page(tmp_path, 0):
        assert bound == ["127.0.0.1"]


@pytest.mark.parametrize("port", [70000, -1])
def test_a_port_that_is_none(run: Run, data: Path, tmp_path: Path, port: int) -> None:
    ran = run("train", data, "--out", tmp_path / "run", "--live", port)
    assert (ran.code, ran.out) == (2, "")
    assert "choose another port" in ran.err
    assert not (tmp_path / "run").exists()


def test_a_port_that_is_taken(run: Run, data: Path, tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ran = run("train", data, "--out", tmp_path / "run", "--live", taken.getsockname()[1])
    assert ran.code == 2
    assert "choose another port" in ran.err


def test_a_line_that_is_being_written(run: Run, trained: Path, tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_bytes((trained / "settings.json").read_bytes())
    (tmp_path / "history.jsonl").write_text('{"step": 1, "pas')
    assert NOT_BEGUN in make_live_page(tmp_path)
