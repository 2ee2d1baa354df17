"""Object stores: checks of their URLs, connections through obstore, requests and their errors.

Credentials and settings come from the environment, as obstore reads them. Messages give the URL of an object and the
answer of the store, but not the body of the answer, because some stores quote credentials in it.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future, wait
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from functools import lru_cache
from threading import Thread, current_thread, main_thread
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from streamsvm.system import deadline, interrupts
from streamsvm.system.errors import InputError, ReadError, TimeLimitError, WriteError
from streamsvm.system.files import hide_secrets
from streamsvm.system.shared import made_once

if TYPE_CHECKING:
    from obstore.store import RetryConfig

    from streamsvm.data.remote.objects import RemoteStore

Answer = TypeVar("Answer")
POLL_SECONDS = 0.1  # a waiting thread checks at these intervals whether the work is to end
TOLD_SECONDS = 5.0  # a request that waits longer than this is reported
LOOK_SECONDS = 1.0  # the time between two checks of the pending requests
RETRY_MINUTES = 3
METADATA_FILES = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
# Each wait before a retry is drawn at random between the initial wait and `base` times the previous wait. With a base
# of 2, the waits do not grow.
RETRIES: RetryConfig = {
    "max_retries": 10_000,  # never reached: retry_timeout ends the retries, even if the store refuses at once
    "retry_timeout": timedelta(minutes=RETRY_MINUTES),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=15), "base": 4},
}
SLOW = "%s: not done after %.0f s (%s); a request that fails is repeated for up to %d minutes, and Ctrl-C ends the wait"
CAUSE = r'kind: (Timeout)|kind: \w+,\s+(?:message|error): "([^"]*)"'  # group 2: a message of the operating system
HINTS = {
    "NoSuchBucket": "the bucket does not exist",
    "AccessDenied": "access is denied",
    "403 Forbidden": "access is denied",  # the answer to HEAD has no body, and therefore no code
}
LOGGER = logging.getLogger("streamsvm")
_WAITING: dict[object, tuple[str, float]] = {}  # the URL of each pending request, and when it began
_REPORTED: dict[str, float] = {}  # when each bucket or host was last reported


def open_store(url: str) -> RemoteStore:
    """Return a new store of the objects below a URL, with no metadata cached.

    No request is sent yet. Raises InputError if the URL or the settings in the environment are invalid, or if obstore
    is not installed.
    """
    from streamsvm.data.remote.objects import RemoteStore  # loads Zarr

    return RemoteStore(url, connect(url))


@lru_cache(maxsize=16)
def connect(url: str, repeats: bool = True) -> Any:
    """Return the obstore store of a URL, which reuses its connections. repeats: whether failed requests are retried."""
    refuse_secrets(url)
    try:
        from obstore.store import from_url
    except ImportError as error:
        raise InputError(f"{url}: object stores need obstore: pip install 'streamsvm[remote]'") from error
    plain: dict[str, Any] = {"client_options": {"allow_http": True}} if urlsplit(url).scheme == "http" else {}
    retries: RetryConfig = RETRIES if repeats else {"max_retries": 0}
    with reading(url):
        return from_url(url, retry_config=retries, **plain)


def refuse_secrets(url: str) -> None:
    """Raise InputError if a URL has no host, or has a user, a query or a fragment; the message hides them."""
    parts = urlsplit(url)
    if not parts.netloc or "@" in parts.netloc or parts.query or parts.fragment:
        raise InputError(
            f"{hide_secrets(url)}: expected SCHEME://BUCKET/PATH without user, query or fragment; credentials come "
            "from the environment"
        )


def reading(url: str) -> AbstractContextManager[None]:
    """Convert errors of obstore in the block to a ReadError naming the URL; FileNotFoundError passes through."""
    return _requesting(url, ReadError, "read", FileNotFoundError)


def writing(url: str) -> AbstractContextManager[None]:
    """Convert errors of obstore in the block to a WriteError naming the URL. Errors of unmet conditions pass."""
    from obstore.exceptions import AlreadyExistsError, PreconditionError

    return _requesting(url, WriteError, "written", AlreadyExistsError, PreconditionError, FileExistsError)


@contextmanager
def _requesting(url: str, kind: type[InputError], done: str, *passed: type[Exception]) -> Iterator[None]:
    """Register the request of the block, so that a long wait is reported, and convert obstore's errors."""
    from obstore.exceptions import BaseError

    _start_loop()
    request = object()
    _WAITING[request] = url, time.monotonic()
    try:
        yield
    except TimeLimitError as error:
        raise TimeLimitError(f"{url}: {error}") from None
    except passed:
        raise
    except (BaseError, OSError) as error:
        raise kind(f"{url}: cannot be {done}: {explain(error)}") from None
    finally:
        del _WAITING[request]


async def _report_slow() -> None:
    """Report slow requests, for each bucket or host at most once per RETRY_MINUTES."""
    while True:
        await asyncio.sleep(LOOK_SECONDS)
        for url, began in list(_WAITING.values()):
            now, host = time.monotonic(), urlsplit(url).netloc
            if now - began >= TOLD_SECONDS and now - _REPORTED.get(host, -math.inf) > 60 * RETRY_MINUTES:
                _REPORTED[host] = now
                LOGGER.warning(SLOW, url, now - began, await _find_cause(url), RETRY_MINUTES)


async def _find_cause(url: str) -> str:
    """Send one further request, without retries, and describe how the store answers."""
    import obstore
    from obstore.exceptions import PermissionDeniedError

    try:
        async with asyncio.timeout(TOLD_SECONDS):
            await obstore.head_async(connect(url, repeats=False), METADATA_FILES[0])
    except TimeoutError:
        return "the store does not answer"
    except (FileNotFoundError, PermissionDeniedError):
        return "the store answers other requests"
    except Exception as error:
        return explain(error).rpartition(" - ")[2]
    return "the store answers other requests"


async def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Await a function of obstore, which returns an awaitable that is not a coroutine."""
    return await function(*arguments)


def begin(request: Coroutine[Any, Any, Answer]) -> Future[Answer]:
    """Start a request in the background thread that carries out all requests."""
    return asyncio.run_coroutine_threadsafe(request, _start_loop())


def wait_for(future: Future[Answer]) -> Answer:
    """Return the answer of a request.

    Raises KeyboardInterrupt if the work is to end before the answer arrives, and TimeLimitError if the training has no
    time left and the store does not answer.
    """
    began = time.monotonic()
    try:
        with interrupts.waiting():
            while not wait([future], POLL_SECONDS).done:
                if interrupts.are_ending() and current_thread() is not main_thread():
                    raise KeyboardInterrupt
                _require_time(began)
            return future.result()
    finally:
        future.cancel()


async def heed_limit(request: Coroutine[Any, Any, Answer]) -> Answer:
    """Return the answer of a request that Zarr waits for. Raises TimeLimitError as `wait_for` does."""
    began, task = time.monotonic(), asyncio.ensure_future(request)
    try:
        while not (await asyncio.wait([task], timeout=POLL_SECONDS))[0]:
            _require_time(began)
        return task.result()
    finally:
        task.cancel()


def _require_time(began: float) -> None:
    """Raise TimeLimitError if the training has no time left, and a request that began at `began` is overdue."""
    if deadline.is_over() and time.monotonic() - began >= TOLD_SECONDS:
        raise TimeLimitError("the time limit has passed, and the object store does not answer")


@made_once
def _start_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of the background thread that carries out requests; it ends with the process."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="streamsvm-store", daemon=True).start()
    asyncio.run_coroutine_threadsafe(_report_slow(), loop)
    return loop


def explain(error: Exception) -> str:
    """Return the message of an obstore error, without the body of the answer and the queries of URLs."""
    text, found = str(error), re.search(r"<Code>(\w+)</Code>", str(error))
    code = found[1] if found else "403 Forbidden" if "code: 403" in text else ""
    if code in HINTS:
        return f"{HINTS[code]} ({code})"
    told = re.sub(r"\?[^\s,]*", "", re.split(r"[<{\n]", text)[0]).strip(" :")
    if "builder error" in told:
        told += " (a plain http endpoint is used only if AWS_ALLOW_HTTP=true is in the environment)"
    elif not code and (cause := re.search(CAUSE, text)) is not None:
        code = cause[2] or "no answer in time"
    return f"{told} ({code})" if code else told
