"""A TCP proxy between clients and the brokers of a cluster, which injects the faults of a test.

Every broker gets a port. The proxy rewrites Metadata responses, so that clients which bootstrap from the proxy keep
using it. Clients that bootstrap from the brokers' own addresses (the test's verifier) bypass it.
"""

from __future__ import annotations

import asyncio
import contextlib
import enum
import itertools
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from mirror.sandbox.ports import HOST, free_ports
from mirror.wire.api import Api
from tests.faults.frames import Seen, read_answer, read_header, write_answer

T = TypeVar("T")

Change = Callable[[Seen, Any], Any]
"""Returns a changed response (kio's class); runs in the proxy's thread."""
Mangle = Callable[[Seen, bytes], bytes]
"""Returns changed bytes of a response, including its size; runs in the proxy's thread."""
_LIMIT: Final = 1 << 20
_WITHIN_S: Final = 60.0


class Action(enum.Enum):
    """What the proxy does with a frame after ``after`` bytes of it."""

    CUT = "the connection is closed"
    RESET = "the connection is reset (RST)"
    SILENCE = "nothing more is forwarded, and the connection stays open"
    DELAY = "the rest is forwarded later"
    SWALLOW = "the rest, and everything after it in this direction, is discarded; the connection stays open"


class On(enum.Enum):
    """The direction of a frame."""

    REQUEST = "to the broker"
    ANSWER = "to the client"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault for frames of ``api`` (None: all), from or to ``broker`` (None: any), ``times`` times (None: always).

    ``after`` counts bytes; ``delay_ms`` is for DELAY.
    """

    action: Action
    api: Api | None = None
    broker: int | None = None
    on: On = On.ANSWER
    after: int = 0
    delay_ms: int = 0
    times: int | None = None

    def hits(self, on: On, seen: Seen) -> bool:
        """Return whether the fault applies to ``seen`` or, in the other direction, to its response."""
        matches = (self.api is None or self.api.value.key == seen.api_key) and self.broker in {None, seen.broker}
        return on is self.on and matches


class _OverError(Exception):
    """The connection ends."""


@dataclass(eq=False, slots=True)
class _Connection:
    number: int
    client: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    broker: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
    waiting: dict[int, Seen] = field(default_factory=dict)


@dataclass(eq=False, slots=True)
class _Link:
    """A broker: its own address, and the proxy's port for it."""

    broker: int
    target: tuple[str, int]
    port: int
    server: asyncio.Server | None = None
    hangs_up: bool = False
    connections: set[_Connection] = field(default_factory=set)


class Proxy:
    """Stands before the brokers at ``bootstrap_servers``, broker ids counting from 1. A context manager.

    ``seen`` are the requests that came, in order; ``opened`` the broker and monotonic ms of each accepted connection;
    ``injected`` each fault that was injected, with the request (or the request of the answer) that it affected.
    At its end it raises what a test's own :meth:`change` raised: the client saw no more than a connection that broke.
    ``mangle``, where it is set, makes other bytes of each answer.
    Of each request the first ``keep_bytes`` bytes are kept (None: all of them): minutes of load would fill the memory.
    """

    def __init__(self, bootstrap_servers: str, *, keep_bytes: int | None = None) -> None:
        servers = [server.rpartition(":") for server in bootstrap_servers.split(",")]
        ports = free_ports(len(servers))
        self._links = {
            number: _Link(number, (host, int(port)), own)
            for number, ((host, _, port), own) in enumerate(zip(servers, ports, strict=True), start=1)
        }
        self._keep_bytes: Final = keep_bytes
        self.seen: list[Seen] = []
        self.opened: list[tuple[int, float]] = []
        self.injected: list[tuple[Fault, Seen]] = []
        self._faults: tuple[tuple[Fault, Iterator[int]], ...] = ()
        self._changes: dict[int, Change] = {}
        self.mangle: Mangle | None = None
        self._hooks: dict[int, tuple[Callable[[Seen], bool], Callable[[], None]]] = {}
        self._wrong: list[Exception] = []
        self._numbers = itertools.count(1)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)

    # --- control by the test

    @property
    def bootstrap_servers(self) -> str:
        """The bootstrap addresses of the brokers through the proxy."""
        return ",".join(f"{HOST}:{link.port}" for link in self._links.values())

    def fault(self, *faults: Fault) -> None:
        """Replace all faults by these."""
        # range() counts down in the proxy's thread; the tuple is replaced as a whole.
        self._faults = tuple(
            (one, iter(itertools.count() if one.times is None else range(one.times))) for one in faults
        )

    def change(self, api: Api, change: Change | None) -> None:
        """Change the responses of ``api`` from now on; None ends it."""
        if change is None:
            self._changes.pop(api.value.key, None)
        else:
            self._changes[api.value.key] = change

    def before_next(self, api: Api, act: Callable[[], None], where: Callable[[Seen], bool] = lambda _: True) -> None:
        """Call ``act`` once, before the next request of ``api`` for which ``where`` holds is forwarded."""
        self._hooks[api.value.key] = (where, act)

    @property
    def hooked(self) -> bool:
        """Whether :meth:`before_next` still waits for its request."""
        return bool(self._hooks)

    def refuse(self, broker: int) -> None:
        """Refuse connections for ``broker``, and close open ones."""
        self._do(self._refuse(self._links[broker]))

    def hang_up(self, broker: int) -> None:
        """Accept connections for ``broker`` and close them immediately; close open ones, too."""
        self._links[broker].hangs_up = True
        self._do(self._close_all(self._links[broker]))

    def accept(self, broker: int) -> None:
        """Accept and keep connections for ``broker`` again."""
        self._links[broker].hangs_up = False
        if self._links[broker].server is None:
            self._do(self._accept(self._links[broker]))

    def cut(self, broker: int) -> None:
        """Close the open connections of ``broker``."""
        self._do(self._close_all(self._links[broker]))

    def heal(self) -> None:
        """Forward everything again."""
        self._faults, self._changes, self._hooks, self.mangle = (), {}, {}, None
        for broker in self._links:
            self.accept(broker)

    def requests(self, api: Api, *, since: float = 0.0, broker: int | None = None) -> list[Seen]:
        """Return the requests of ``api`` that ``broker`` received after ``since`` (monotonic ms)."""
        return [
            one
            for one in list(self.seen)
            if one.api_key == api.value.key and one.at_ms >= since and broker in {None, one.broker}
        ]

    @staticmethod
    def now() -> float:
        """Return monotonic ms, as in ``seen``."""
        return time.monotonic() * 1000

    # --- beginning and end

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            for link in self._links.values():
                self._do(self._accept(link))
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        if kind is None and self._wrong:
            raise self._wrong[0]

    def _stop(self) -> None:
        for link in self._links.values():
            self._do(self._refuse(link))
        self._do(self._drain())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_WITHIN_S)
        self._loop.close()

    async def _drain(self) -> None:
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(work, self._loop)
        return future.result(_WITHIN_S)

    async def _accept(self, link: _Link) -> None:
        link.server = await asyncio.start_server(
            lambda reader, writer: self._serve(link, reader, writer), HOST, link.port, limit=_LIMIT
        )

    async def _refuse(self, link: _Link) -> None:
        if link.server is not None:
            link.server.close()
            link.server = None
        await self._close_all(link)

    async def _close_all(self, link: _Link) -> None:
        for connection in list(link.connections):
            _close(connection)

    # --- the traffic

    async def _serve(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = _Connection(next(self._numbers), (reader, writer))
        self.opened.append((link.broker, self.now()))
        if link.hangs_up:
            _close(connection)
            return
        link.connections.add(connection)
        try:
            connection.broker = await asyncio.open_connection(*link.target, limit=_LIMIT)
            both = [asyncio.create_task(pump(link, connection)) for pump in (self._requests, self._answers)]
            for task in both:
                task.add_done_callback(_look_at)
            _, pending = await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            await asyncio.gather(*both, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # the broker is down (the client notices the close), or the proxy ends
        finally:
            link.connections.discard(connection)
            _close(connection)

    async def _requests(self, link: _Link, connection: _Connection) -> None:
        assert connection.broker is not None
        source, sink = connection.client[0], connection.broker[1]
        while True:
            frame = await _read_frame(source)
            key, version, correlation_id = read_header(frame)
            kept = frame[: self._keep_bytes]
            seen = Seen(self.now(), link.broker, connection.number, key, version, correlation_id, kept)
            connection.waiting[correlation_id] = seen
            self.seen.append(seen)
            where, act = self._hooks.get(key, (None, None))
            if where is not None and act is not None and where(seen):
                del self._hooks[key]
                act()
            await self._pass_on(connection, sink, frame, On.REQUEST, seen)

    async def _answers(self, link: _Link, connection: _Connection) -> None:
        assert connection.broker is not None
        del link
        source, sink = connection.broker[0], connection.client[1]
        while True:
            frame = await _read_frame(source)
            asked = connection.waiting.pop(struct.unpack_from(">i", frame)[0])
            try:
                changed = self._changed(asked, frame)
            except Exception as error:
                self._wrong.append(error)
                raise
            await self._pass_on(connection, sink, changed, On.ANSWER, asked)

    def _changed(self, asked: Seen, frame: bytes) -> bytes:
        change = self._changes.get(asked.api_key)
        is_metadata = asked.api_key == Api.METADATA.value.key
        if change is None and not is_metadata:
            return frame
        body = read_answer(asked, frame)
        if is_metadata:
            ours = {link.target[1]: link.port for link in self._links.values()}
            moved = (replace(one, port=type(one.port)(ours.get(one.port, one.port))) for one in body.brokers)
            body = replace(body, brokers=tuple(moved))
        return write_answer(asked, change(asked, body) if change is not None else body)

    async def _pass_on(
        self, connection: _Connection, sink: asyncio.StreamWriter, frame: bytes, on: On, seen: Seen
    ) -> None:
        data = struct.pack(">i", len(frame)) + frame
        if on is On.ANSWER and self.mangle is not None:
            data = self.mangle(seen, data)
        fault = next((one for one, left in self._faults if one.hits(on, seen) and next(left, None) is not None), None)
        if fault is None:
            await self._finish(sink, data, on, seen)
            return
        self.injected.append((fault, seen))
        sink.write(data[: fault.after])
        await sink.drain()
        if fault.action is Action.DELAY:
            await asyncio.sleep(fault.delay_ms / 1000)
            await self._finish(sink, data[fault.after :], on, seen)
        elif fault.action is Action.SILENCE:
            await asyncio.Event().wait()  # until the connection is closed, which cancels this
        elif fault.action is Action.SWALLOW:
            source = connection.client if on is On.REQUEST else connection.broker
            while source is not None and await source[0].read(_LIMIT):
                pass
            raise _OverError
        else:
            if fault.action is Action.RESET:
                _linger_not(connection.client[1])
            raise _OverError

    async def _finish(self, sink: asyncio.StreamWriter, data: bytes, on: On, seen: Seen) -> None:
        if on is On.ANSWER:
            seen.answered_ms = self.now()
        sink.write(data)
        await sink.drain()


async def _read_frame(source: asyncio.StreamReader) -> bytes:
    (size,) = struct.unpack(">i", await source.readexactly(4))
    return await source.readexactly(size)


def _look_at(task: asyncio.Task[None]) -> None:
    """Retrieve the result of a connection, because asyncio logs exceptions that are not retrieved."""
    if not task.cancelled():
        task.exception()


def _linger_not(writer: asyncio.StreamWriter) -> None:
    """Let close() send RST instead of FIN."""
    sock = writer.get_extra_info("socket")
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))


def _close(connection: _Connection) -> None:
    for pair in (connection.client, connection.broker):
        if pair is not None:
            with contextlib.suppress(OSError, RuntimeError):
                pair[1].close()
