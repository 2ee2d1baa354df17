"""Object stores: what a URL names, and the store through which obstore reads it.

Credentials and settings come from the environment, as obstore reads them. Messages name the URL of an object and what
the store has answered, without the body of the answer, because some stores quote credentials there.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta
from functools import lru_cache
from threading import Thread, current_thread, main_thread
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

from zarr.abc.store import ByteRequest
from zarr.core.buffer import Buffer, BufferPrototype
from zarr.storage import ObjectStore

from streamsvm import interrupts
from streamsvm.errors import InputError, ReadError, WriteError

if TYPE_CHECKING:
    from obstore.store import RetryConfig

Answer = TypeVar("Answer")
POLL_SECONDS = 0.1  # how often a thread that waits for an answer looks whether the work is to end
METADATA_FILES = ("zarr.json", ".zarray", ".zattrs", ".zgroup", ".zmetadata")
RETRIES: RetryConfig = {
    "max_retries": 10,
    "retry_timeout": timedelta(minutes=3),
    "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=15), "base": 2},
}


class RemoteStore(ObjectStore[Any]):
    """The objects below a URL, as a store of Zarr. Its errors name the URL of the object.

    Metadata of Zarr are read once, since Zarr asks for them several times when it opens an array.
    """

    def __init__(self, url: str, store: Any) -> None:
        super().__init__(store, read_only=True)
        self.url = url
        self._metadata: dict[str, Buffer | None] = {}

    def __str__(self) -> str:
        return self.url

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        """Return an object, or None if there is none. Raises ReadError if the store does not give it."""
        if key in self._metadata:
            return self._metadata[key]
        with reading(f"{self.url}/{key}"):
            found = await super().get(key, prototype, byte_range)
        if key.rpartition("/")[2] in METADATA_FILES:
            self._metadata[key] = found
        return found

    def ask_about(self, key: str) -> Any:
        """Return the size and the e_tag of an object. Raises FileNotFoundError if there is none, or ReadError."""
        import obstore

        async def ask() -> Any:
            return await obstore.head_async(self.store, key)

        with reading(f"{self.url}/{key}"):
            return wait_for(begin(ask()))

    async def get_range(self, key: str, start: int, stop: int, e_tag: str | None = None) -> tuple[Any, int]:
        """Return the bytes start:stop of an object, fewer if it is shorter, and the number of bytes of the object.

        e_tag: the version that is wanted. Raises FileNotFoundError if there is no such object, and obstore's errors.
        """
        import obstore
        from obstore.exceptions import GenericError

        options: Any = {"range": (start, stop), **({} if e_tag is None else {"if_match": e_tag})}
        try:
            answer = await obstore.get_async(self.store, key, options=options)
            return await answer.bytes_async(), int(answer.meta["size"])
        except GenericError as error:
            if "416 Range Not Satisfiable" not in str(error):
                raise
        return b"", int((await obstore.head_async(self.store, key))["size"])  # it ends before byte `start`


def open_store(url: str) -> RemoteStore:
    """Return the store of the objects below a URL, which reads metadata anew.

    Nothing is asked of the store yet. Raises InputError if the URL or the settings in the environment are of no use, or
    if obstore is not installed.
    """
    return RemoteStore(url, connect(url))


@lru_cache(maxsize=16)
def connect(url: str) -> Any:
    """Return the store of obstore, which keeps its connections, for a URL."""
    parts = urlsplit(url)
    if not parts.netloc or "@" in parts.netloc or parts.query or parts.fragment:
        raise InputError(
            f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}: a URL has a host or a bucket and a path; "
            "credentials are taken from the environment"
        )
    try:
        from obstore.store import from_url
    except ImportError as error:
        raise InputError(f"{url}: object stores need obstore: pip install 'streamsvm[remote]'") from error
    plain: dict[str, Any] = {"client_options": {"allow_http": True}} if parts.scheme == "http" else {}
    with reading(url):
        return from_url(url, retry_config=RETRIES, **plain)


@contextmanager
def reading(url: str) -> Iterator[None]:
    """Raise ReadError, which names the URL, for an error of obstore in the block, and pass on that nothing is there."""
    from obstore.exceptions import BaseError

    try:
        yield
    except FileNotFoundError:
        raise
    except (BaseError, OSError) as error:
        raise ReadError(f"{url}: cannot be read: {explain(error)}") from None


@contextmanager
def writing(url: str) -> Iterator[None]:
    """Raise WriteError, which names the URL, for an error of obstore in the block, but not for an unmet condition."""
    from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

    try:
        yield
    except (AlreadyExistsError, PreconditionError, FileExistsError):
        raise
    except (BaseError, OSError) as error:
        raise WriteError(f"{url}: cannot be written: {explain(error)}") from None


def begin(request: Coroutine[Any, Any, Answer]) -> Future[Answer]:
    """Let the thread of the process that carries requests out begin one."""
    return asyncio.run_coroutine_threadsafe(request, _start_loop())


def wait_for(future: Future[Answer]) -> Answer:
    """Return the answer of a request. Raises KeyboardInterrupt if the work is to end before it is there."""
    try:
        if current_thread() is main_thread():
            with interrupts.waiting():
                return future.result()
        while True:
            try:
                return future.result(POLL_SECONDS)
            except TimeoutError:
                if future.done():
                    raise
                if interrupts.are_ending():
                    raise KeyboardInterrupt from None
    finally:
        future.cancel()


@lru_cache(maxsize=1)
def _start_loop() -> asyncio.AbstractEventLoop:
    """Return the event loop of the thread that carries requests out, which ends with the process."""
    loop = asyncio.new_event_loop()
    Thread(target=loop.run_forever, name="streamsvm-store", daemon=True).start()
    return loop


def explain(error: Exception) -> str:
    """Return what an error of obstore says, without the body of the answer and without queries of URLs."""
    text, code = str(error), re.search(r"<Code>(\w+)</Code>", str(error))
    told = re.sub(r"\?[^\s,]*", "", re.split(r"[<{\n]", text)[0]).strip(" :")
    if "builder error" in told:
        told += " (a plain http endpoint is used only if AWS_ALLOW_HTTP=true is in the environment)"
    return told if code is None else f"{told} ({code[1]})"
