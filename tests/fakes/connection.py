"""A broker's end of one connection: one request at a time, answered in order, as a real broker does."""

from __future__ import annotations

import functools
import struct
from collections import deque
from typing import TYPE_CHECKING

from mirror.timing import FOREVER_MS
from mirror.wire.api import Api
from tests.fakes.control import Action, ServerCall
from tests.fakes.server_codec import decode_request, encode_response

if TYPE_CHECKING:
    from tests.fakes.cluster import FakeBroker, FakeCluster


class ServerConnection:
    """``outbox`` holds bytes on their way to the client; ``closed`` once the broker has hung up."""

    def __init__(self, cluster: FakeCluster, broker: FakeBroker) -> None:
        self.outbox = bytearray()
        self.closed = False
        self._cluster = cluster
        self._broker = broker
        self._generation = broker.generation
        self.id = cluster.new_connection_id()
        self._inbox = bytearray()
        self._queue: deque[ServerCall] = deque()
        self._current: ServerCall | None = None
        self._answer: bytes | None = None
        self._answer_at_ms = 0
        self._mute = False

    def receive(self, data: bytes | bytearray | memoryview, now: int) -> None:
        """Bytes from the client: every whole request takes its place in the queue."""
        self._inbox += data
        while len(self._inbox) >= 4:
            (size,) = struct.unpack_from(">i", self._inbox)
            if len(self._inbox) < 4 + size:
                return
            frame = bytes(self._inbox[4 : 4 + size])
            del self._inbox[: 4 + size]
            api, version, correlation_id, body = decode_request(frame)
            known = api is Api.API_VERSIONS or self._cluster.supports(api, version)
            assert known, f"{api.label} v{version} is not among {self._cluster.versions.get(api)}"
            self._queue.append(ServerCall(self._broker.node, self.id, api, version, correlation_id, body, now))

    def step(self, now: int) -> None:
        """Go on as far as time and the test's actions allow."""
        if self._broker.generation != self._generation:
            self.closed = True
        while not (self.closed or self._mute):
            if self._current is None:
                if not self._queue:
                    return
                self._begin(self._queue.popleft(), now)
            elif not self._go_on(self._current, now):
                return

    def _begin(self, call: ServerCall, now: int) -> None:
        # Its time at the broker begins when it is taken up, not while it stands behind another.
        call.received_ms = now
        call.action = self._cluster.control.decide(call)
        self._cluster.received.append(call)
        self._current, self._answer = call, None

    def _go_on(self, call: ServerCall, now: int) -> bool:
        """Whether ``call`` is done with."""
        action = call.action
        if action.close == "before":
            self.closed = True
            return True
        if self._answer is None and not self._handle(call, now):
            return False
        if action.close == "after":
            self.closed = True
        elif action.silent:
            self._mute = True
        elif action.hold or now < self._answer_at_ms:
            return False
        else:
            answer = self._answer or b""
            self._send(answer if action.mangle is None else action.mangle(answer), action.half)
            self._current = self._answer = None
        return True

    def _handle(self, call: ServerCall, now: int) -> bool:
        """Whether there is an answer now, sent or not."""
        action = call.action
        if action.hold == "before" or now < call.received_ms + action.stall_ms:
            return False
        body = self._cluster.handle(call)
        if body is None:
            return False
        body = body if action.rewrite is None else action.rewrite(body)
        self._answer = encode_response(call.api, call.version, call.correlation_id, body)
        self._answer_at_ms = now + action.delay_ms
        return True

    def _send(self, answer: bytes, half: str) -> None:
        self.outbox += answer[: len(answer) // 2] if half else answer
        self._mute = half == "silent"
        self.closed = half == "close"

    def abandon(self) -> None:
        """The client is gone. What it sent sits in the broker's socket, and may be worked off."""
        unhandled = [] if self._current is None or self._answer is not None else [self._current]
        for call in self._queue:
            call.action = Action()
        unhandled += self._queue
        self._queue.clear()
        if self._cluster.works_off_ms is not None and self._broker.up:
            for call in unhandled:
                self._cluster.after(self._cluster.works_off_ms, functools.partial(self._work_off, call))

    def _work_off(self, call: ServerCall) -> None:
        if self._broker.up:
            self._cluster.worked_off.append(call)
            self._cluster.handle(call)

    def due_ms(self) -> int:
        """When :meth:`step` has more to do, if nothing else happens before."""
        call = self._current
        if call is None or self._mute or self.closed or call.action.hold:
            return FOREVER_MS
        if self._answer is not None:
            return self._answer_at_ms
        return max(call.received_ms + call.action.stall_ms, call.wait_until_ms or 0)
