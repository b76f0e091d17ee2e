"""Whose turn it is: which of many cores the loop polls, so that a thousand idle ones cost nothing."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from mirror.cluster.deadline_heap import DeadlineHeap
from mirror.cluster.requests import Poll, Request
from mirror.errors import KafkaError
from mirror.timing import deadline


class Scheduled(Protocol):
    """What is polled."""

    @property
    def every_turn(self) -> bool:
        """Whether it is polled in every turn, rather than for a reason."""
        ...

    def poll(self, now: int) -> Poll:
        """Requests due at ``now``; also where expired batches are found."""
        ...


C = TypeVar("C", bound=Scheduled)


class Scheduler(Generic[C]):
    """All the cores, and which of them have a reason to be polled, in the order of their reasons.

    A reason is: :meth:`touch`, the end of one of its requests, the end of the wait that it announced. Those that were
    refused a connection (:meth:`refused`) go first once one has room, before those that ask later.
    """

    def __init__(self) -> None:
        self.cores: list[C] = []
        self._members: set[C] = set()
        self._eager: list[C] = []
        self._due: dict[C, None] = {}
        self._refused: dict[C, None] = {}
        self._alarms: DeadlineHeap[C] = DeadlineHeap()

    def join(self, core: C) -> None:
        """``core`` takes part from the next turn on."""
        self.cores.append(core)
        self._members.add(core)
        if core.every_turn:
            self._eager.append(core)
        self.touch(core)

    def leave(self, core: C) -> None:
        """``core`` takes no part any more, whatever still comes for it."""
        self._members.discard(core)
        for cores in (self.cores, self._eager):
            if core in cores:
                cores.remove(core)
        for reasons in (self._due, self._refused):
            reasons.pop(core, None)
        self._alarms.clear(core)

    # --- reasons

    def touch(self, core: C) -> None:
        """Poll ``core`` in the next turn."""
        if core in self._members and not core.every_turn:
            self._due[core] = None

    def touch_all(self) -> None:
        """Something that everybody looks at has changed."""
        self.touch_refused()
        for core in self.cores:
            self.touch(core)

    def refused(self, core: C) -> None:
        """``core`` found no connection with room."""
        if not core.every_turn:
            self._refused[core] = None

    def touch_refused(self) -> None:
        """There is room again: in the order of asking, or the first of all the cores would take it each time."""
        if self._refused:
            self._due = self._refused | self._due
            self._refused = {}

    def watch(self, core: C, request: Request) -> None:
        """Have whatever becomes of ``request`` touch ``core``."""
        if core.every_turn:
            return
        respond, fail, settle = request.on_response, request.on_failure, request.on_settled

        def on_response(body: Any, now: int) -> None:
            self.touch(core)
            respond(body, now)

        def on_failure(error: KafkaError, now: int) -> None:
            self.touch(core)
            fail(error, now)

        def on_settled(now: int) -> None:
            self.touch(core)
            if settle is not None:
                settle(now)

        request.on_response, request.on_failure, request.on_settled = on_response, on_failure, on_settled

    # --- a turn

    def take(self, now: int) -> list[C]:
        """Those to be polled now; but for those of every turn, they need a new reason from here on."""
        for core in self._alarms.due(now):
            self._due[core] = None
        taken = [*self._eager, *self._due]
        self._due = {}
        return taken

    def polled(self, core: C, now: int, wait_ms: int) -> None:
        """``core`` was polled, and wants to be again in ``wait_ms`` at the latest, whatever it said before."""
        self._alarms.set(core, deadline(now, wait_ms))

    @property
    def pending(self) -> bool:
        """Whether somebody has a reason to be polled at once."""
        return bool(self._due)

    def next_ms(self) -> int:
        """When the first announced wait ends (absolute ms)."""
        return self._alarms.next_ms()
