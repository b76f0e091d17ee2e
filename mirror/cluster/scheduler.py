"""Decides which of many cores the loop polls, so that idle ones cost nothing. No I/O."""

from __future__ import annotations

from typing import Any, Generic, Protocol, TypeVar

from mirror.cluster.deadline_heap import DeadlineHeap
from mirror.cluster.requests import Poll, Request
from mirror.errors import KafkaError
from mirror.timing import deadline


class Scheduled(Protocol):
    """A core to be polled."""

    @property
    def every_turn(self) -> bool:
        """Whether it is polled in every turn, instead of for a reason only."""
        ...

    def poll(self, now: int) -> Poll:
        """Return the requests due at ``now``, and expire what is overdue."""
        ...


C = TypeVar("C", bound=Scheduled)


# Invariant: An idle core costs nothing: only cores with a reason (event, response, end of a wait, changed metadata) are
#   polled.
# Test: tests/cluster/test_loop_turns.py::test_an_event_is_a_reason_for_its_core_alone
class Scheduler(Generic[C]):
    """All cores, and those with a reason to be polled, in the order of their reasons.

    A reason is :meth:`touch`, the end of one of its requests, or the end of the wait that its last poll returned. Cores
    that found no connection (:meth:`refused`) are polled first once one has room.
    """

    def __init__(self) -> None:
        self.cores: list[C] = []
        self._members: set[C] = set()
        self._eager: list[C] = []
        self._due: dict[C, None] = {}
        self._refused: dict[C, None] = {}
        self._deadlines: DeadlineHeap[C] = DeadlineHeap()

    def join(self, core: C) -> None:
        """Add ``core`` from the next turn on."""
        self.cores.append(core)
        self._members.add(core)
        if core.every_turn:
            self._eager.append(core)
        self.touch(core)

    def leave(self, core: C) -> None:
        """Remove ``core``; later reasons for it are ignored."""
        self._members.discard(core)
        for cores in (self.cores, self._eager):
            if core in cores:
                cores.remove(core)
        for reasons in (self._due, self._refused):
            reasons.pop(core, None)
        self._deadlines.clear(core)

    # --- reasons

    def touch(self, core: C) -> None:
        """Poll ``core`` in the next turn."""
        if core in self._members and not core.every_turn:
            self._due[core] = None

    def touch_all(self) -> None:
        """Poll all cores in the next turn, as shared state has changed."""
        self.touch_refused()
        for core in self.cores:
            self.touch(core)

    def refused(self, core: C) -> None:
        """Record that ``core`` found no connection with room."""
        if not core.every_turn:
            self._refused[core] = None

    def touch_refused(self) -> None:
        """Poll the refused cores first, in their order.

        Otherwise the first of all cores would take the room each time.
        """
        if self._refused:
            self._due = self._refused | self._due
            self._refused = {}

    def watch(self, core: C, request: Request) -> None:
        """Touch ``core`` when ``request`` ends."""
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

    def due_cores(self, now: int) -> list[C]:
        """Return the cores to poll now, and clear their reasons."""
        for core in self._deadlines.due(now):
            self._due[core] = None
        taken = [*self._eager, *self._due]
        self._due = {}
        return taken

    def polled(self, core: C, now: int, wait_ms: int) -> None:
        """Record a poll of ``core`` that is to be repeated in ``wait_ms`` at the latest."""
        self._deadlines.set(core, deadline(now, wait_ms))

    @property
    def pending(self) -> bool:
        """Whether a core has a reason to be polled at once."""
        return bool(self._due)

    def next_ms(self) -> int:
        """Return when the first wait ends (absolute ms)."""
        return self._deadlines.next_ms()
