"""An object store on loopback that speaks the part of S3 that streamsvm uses, and fails as a test asks it to.

Objects are bytes in memory. A fault is a word that the function `fault` returns for a request:

"500", "503"   an error of the server, and "SlowDown", with which stores ask for fewer requests
"403 CODE"     a refusal with a status and a code, such as "404 NoSuchBucket"
"reset"        the connection is reset in place of an answer
"truncated"    the connection ends in the middle of the body
"held"         the answer waits until the server is closed
"""

from __future__ import annotations

import hashlib
import re
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Condition, Event, Thread
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


@dataclass(frozen=True)
class Request:
    """A request as the server received it. key: "bucket/name/of/object"."""

    method: str
    key: str
    query: dict[str, list[str]]
    headers: dict[str, str]

    @property
    def range(self) -> tuple[int, int] | None:
        """The first byte and the byte after the last one."""
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("range", ""))
        return None if found is None else (int(found[1]), int(found[2]) + 1)


def never(_: Request) -> str | None:
    """Return no fault for any request."""
    return None


@dataclass
class ObjectServer:
    """The objects, the requests so far, and what goes wrong. latency: seconds before each answer begins.

    awaited: a pattern and a number. Reads of objects whose keys match the pattern are answered once this number of
    reads wait at the same time; awaited is None from then on. If too few reads come within a minute, awaited stays, and
    no read waits any longer.
    """

    objects: dict[str, bytes] = field(default_factory=dict)
    requests: list[Request] = field(default_factory=list)
    fault: Callable[[Request], str | None] = never
    latency: float = 0.0
    awaited: tuple[str, int] | None = None
    most_at_once: int = 0  # requests that were answered at the same time
    uploads: dict[str, dict[int, bytes]] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)  # of uploads
    lock: Condition = field(default_factory=Condition)
    closing: Event = field(default_factory=Event)
    held: Event = field(default_factory=Event)  # set when an answer is held
    _now: int = 0
    _waiting: int = 0
    _gave_up: bool = False

    def __enter__(self) -> ObjectServer:
        handler = type("Handler", (_Handler,), {"owner": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self._server.block_on_close = False
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.closing.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def environment(self) -> dict[str, str]:
        """The variables that lead obstore to this server."""
        return self.environment_of(self.url)

    @staticmethod
    def environment_of(url: str) -> dict[str, str]:
        """Return the variables that lead obstore to a server."""
        return {
            "AWS_ENDPOINT_URL": url,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "the-key-of-the-test",
            "AWS_SECRET_ACCESS_KEY": "the-secret-of-the-test",
            "AWS_REGION": "us-east-1",
        }

    def reads(self, part: str = "") -> list[Request]:
        """Return the reads so far of objects whose key contains `part`."""
        return [request for request in self.requests if request.method == "GET" and part in request.key]

    def wait_for_read(self, part: str) -> None:
        """Wait until an object is asked for whose key contains `part`."""
        with self.lock:
            assert self.lock.wait_for(lambda: self.reads(part), timeout=60)

    def begin(self, request: Request) -> str | None:
        """Note a request and return its fault, after the latency."""
        with self.lock:
            self.requests.append(request)
            self._now += 1
            self.most_at_once = max(self.most_at_once, self._now)
            self.lock.notify_all()
            fault = self.fault(request)
            self._await_others(request)
        if self.latency:
            self.closing.wait(self.latency)
        if fault == "held":
            self.held.set()
            self.closing.wait()
        return fault

    def _await_others(self, request: Request) -> None:
        """Wait until as many reads wait as are awaited, if this is one of them."""
        if self.awaited is None or request.method != "GET" or not re.search(self.awaited[0], request.key):
            return
        self._waiting += 1
        if self._waiting == self.awaited[1]:
            self.awaited = None
            self.lock.notify_all()
        came = self.lock.wait_for(lambda: self.awaited is None or self._gave_up, timeout=60)
        self._gave_up |= not came

    def end(self) -> None:
        """Note that a request has been answered."""
        with self.lock:
            self._now -= 1


class _Handler(BaseHTTPRequestHandler):
    """Answers the requests of one connection."""

    owner: ObjectServer
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def _answer(self) -> None:
        parts = urlsplit(self.path)
        headers = {name.lower(): value for name, value in self.headers.items()}
        body = self.rfile.read(int(headers.get("content-length", 0)))
        query = parse_qs(parts.query, keep_blank_values=True)
        request = Request(self.command, unquote(parts.path).strip("/"), query, headers)
        fault = self.owner.begin(request)
        try:
            if fault in ("reset", "held"):
                self._reset()
            elif fault is not None and fault[:3].isdigit():
                code = fault[4:] or ("SlowDown" if fault == "503" else "InternalError")
                self._send(int(fault[:3]), f"<Error><Code>{code}</Code><Message>please wait</Message></Error>".encode())
            elif request.method in ("GET", "HEAD"):
                self._get(request, fault == "truncated")
            else:
                self._change(request, body)
        finally:
            self.owner.end()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

    def _get(self, request: Request, truncated: bool) -> None:
        if "list-type" in request.query:
            self._list(request)
            return
        content = self.owner.objects.get(request.key)
        if content is None:
            self._send(404, b"<Error><Code>NoSuchKey</Code></Error>")
            return
        if request.headers.get("if-match", make_tag(content)) != make_tag(content):
            self._send(412, b"<Error><Code>PreconditionFailed</Code></Error>")
            return
        headers = {"ETag": make_tag(content), "Last-Modified": "Wed, 01 Jan 2025 00:00:00 GMT"}
        status, part = 200, content
        if (wanted := request.range) is not None:
            if wanted[0] >= len(content):
                self._send(416, b"<Error><Code>InvalidRange</Code></Error>")
                return
            status, part = 206, content[slice(*wanted)]
            last = wanted[0] + len(part) - 1
            headers["Content-Range"] = f"bytes {wanted[0]}-{last}/{len(content)}"
        self._send(status, part, headers, truncated)

    def _list(self, request: Request) -> None:
        bucket, prefix = request.key, request.query.get("prefix", [""])[0]
        delimiter = request.query.get("delimiter", [""])[0]
        names = [key.removeprefix(f"{bucket}/") for key in sorted(self.owner.objects) if key.startswith(f"{bucket}/")]
        names = [name for name in names if name.startswith(prefix)]
        folders = {
            prefix + rest.split(delimiter)[0] + delimiter
            for name in names
            if delimiter and delimiter in (rest := name.removeprefix(prefix))
        }
        shown = [name for name in names if not any(name.startswith(folder) for folder in folders)]
        contents = "".join(
            f"<Contents><Key>{escape(name)}</Key><LastModified>2025-01-01T00:00:00.000Z</LastModified>"
            f"<ETag>{escape(make_tag(self.owner.objects[f'{bucket}/{name}']))}</ETag>"
            f"<Size>{len(self.owner.objects[f'{bucket}/{name}'])}</Size></Contents>"
            for name in shown
        )
        prefixes = "".join(f"<CommonPrefixes><Prefix>{escape(p)}</Prefix></CommonPrefixes>" for p in sorted(folders))
        text = f"<ListBucketResult><IsTruncated>false</IsTruncated>{contents}{prefixes}</ListBucketResult>"
        self._send(200, text.encode())

    def _change(self, request: Request, body: bytes) -> None:
        objects, key = self.owner.objects, request.key
        headers: dict[str, str]
        with self.owner.lock:
            if request.method == "DELETE":
                if "uploadId" in request.query:
                    self.owner.uploads.pop(request.query["uploadId"][0], None)
                else:
                    objects.pop(key, None)
                status, answer, headers = 204, b"", {}
            elif request.method == "POST" and "delete" in request.query:
                names = re.findall(r"<Key>(.*?)</Key>", body.decode())
                for name in names:
                    objects.pop(f"{key}/{name}", None)
                deleted = "".join(f"<Deleted><Key>{name}</Key></Deleted>" for name in names)
                status, answer, headers = 200, f"<DeleteResult>{deleted}</DeleteResult>".encode(), {}
            elif request.method == "POST" and "uploads" in request.query:
                number = str(next(self.owner.numbers))
                self.owner.uploads[number] = {}
                text = f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>"
                status, answer, headers = 200, text.encode(), {}
            elif "partNumber" in request.query:
                parts = self.owner.uploads[request.query["uploadId"][0]]
                parts[int(request.query["partNumber"][0])] = body
                status, answer, headers = 200, b"", {"ETag": make_tag(body)}
            else:
                status, answer, headers = self._put(request, body)
        self._send(status, answer, headers)

    def _put(self, request: Request, body: bytes) -> tuple[int, bytes, dict[str, str]]:
        """Store an object, unless a condition of the request is not met."""
        objects, key = self.owner.objects, request.key
        known = objects.get(key)
        if request.headers.get("if-none-match") == "*" and known is not None:
            return 412, b"<Error><Code>PreconditionFailed</Code></Error>", {}
        if (match := request.headers.get("if-match")) is not None and (known is None or match != make_tag(known)):
            return 412, b"<Error><Code>PreconditionFailed</Code></Error>", {}
        if request.method == "POST":
            parts = self.owner.uploads.pop(request.query["uploadId"][0])
            body = b"".join(parts[number] for number in sorted(parts))
        objects[key] = body
        tag = make_tag(body)
        text = f"<CompleteMultipartUploadResult><ETag>{escape(tag)}</ETag></CompleteMultipartUploadResult>"
        return 200, text.encode() if request.method == "POST" else b"", {"ETag": tag}

    def _send(
        self, status: int, content: bytes, headers: dict[str, str] | None = None, truncated: bool = False
    ) -> None:
        self.send_response_only(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content[: len(content) // 2] if truncated else content)
        self.close_connection |= truncated

    def _reset(self) -> None:
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    def finish(self) -> None:
        """Close the connection; what a reset has closed stays so."""
        try:
            super().finish()
        except (OSError, ValueError):
            return

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@lru_cache(maxsize=1000)
def make_tag(content: bytes) -> str:
    """Return the ETag of an object."""
    return f'"{hashlib.md5(content, usedforsecurity=False).hexdigest()}"'
