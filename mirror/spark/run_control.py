"""Control commands between runs, and from a run to its tasks: the driver's side of ``relay.progress.control``."""

from __future__ import annotations

import secrets
import socket
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from mirror.errors import KafkaError
from mirror.relay.progress.control import RunControl, from_offset, place_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from mirror.client import Admin

_WITHIN_MS: Final = 10_000
_AT_THE_END_MS: Final = 2_000
"""Who ends has been told to, mostly, and has so much time for everything."""


def new_run_id() -> str:
    """A name for a run: sorts by time, and no two are the same."""
    return f"{datetime.now(UTC).strftime('%Y%m%dT%H%M%S.%fZ')}-{secrets.token_hex(3)}"


def takeover_message(before: RunControl) -> str:
    """What whoever has claimed a flow says of the run before."""
    return f"took over from run {before.run} on {before.host}, which had not said that it ended"


def _wall_ms() -> int:
    return int(datetime.now(UTC).timestamp() * 1000)


class RunControlClient:
    """The orders of one flow, by ``run`` for itself, or by anybody. Safe to use from several threads, as Admin is."""

    def __init__(self, admin: Admin, flow: str, run: str = "") -> None:
        """``admin`` is the target's. Without a ``run`` orders may be read, and a stop given."""
        self._admin: Final = admin
        self._flow: Final = flow
        self.run: Final = run

    def read(self, timeout_ms: int = _WITHIN_MS) -> RunControl | None:
        """Those in force; None where there are none. Raises KafkaError."""
        group, tp = place_of(self._flow)
        return from_offset(self._admin.group_offsets(group, [tp], timeout_ms=timeout_ms).get(tp))

    def claim(self) -> RunControl | None:
        """This run is the one that copies from now on; the one that it takes over from, if that has not ended.

        Raises KafkaError.
        """
        before = self.read()
        if before is not None and before.run == self.run:
            return None
        now_ms = _wall_ms()
        self._commit(RunControl(run=self.run, host=socket.gethostname(), since_ms=now_ms, seen_ms=now_ms))
        return before if before is not None and before.fences(self.run) else None

    def claim_or_warn(self, warn: Callable[[str], None]) -> bool:
        """:meth:`claim`, with a word about whom it was taken from, or why that cannot be; whether it is claimed."""
        try:
            before = self.claim()
        except KafkaError as error:
            warn(f"another run of it could not be told to end: {error}")
            return False
        if before is not None:
            warn(takeover_message(before))
        return True

    def request_new_plan(self, epoch: int) -> None:
        """``epoch`` is over, and the next one is planned: there is something new. Raises KafkaError."""
        if (orders := self._own()) is not None:
            self._commit(replace(orders, epoch=epoch + 1))

    def renew(self) -> None:
        """The same again, for a target that forgets. Raises KafkaError."""
        if (orders := self._own()) is not None:
            self.renew_from(orders)

    def renew_from(self, orders: RunControl) -> None:
        """This run is there: ``orders`` are its own, as read just now. Raises KafkaError."""
        if not orders.ended:
            self._commit(replace(orders, seen_ms=_wall_ms()))

    def mark_ended(self, orders: RunControl) -> None:
        """The run of these ``orders`` has died: it has ended, for all who ask. Raises KafkaError."""
        if self.read() == orders.stopped():
            self._commit(orders.stopped(ended=True))

    def stop(self) -> RunControl | None:
        """Whoever copies this flow is to end in order; None where nobody does. Raises KafkaError."""
        orders = self.read()
        if orders is None or orders.ended or (self.run and orders.run != self.run):
            return None
        self._commit(orders.stopped())
        return orders

    def end(self) -> None:
        """This run has ended. Raises KafkaError."""
        if (orders := self._own(_AT_THE_END_MS)) is not None:
            self._commit(orders.stopped(ended=True), _AT_THE_END_MS)

    def _own(self, timeout_ms: int = _WITHIN_MS) -> RunControl | None:
        orders = self.read(timeout_ms)
        return orders if orders is not None and orders.run == self.run else None

    def _commit(self, orders: RunControl, timeout_ms: int = _WITHIN_MS) -> None:
        group, tp = place_of(self._flow)
        self._admin.commit_group_offsets(group, {tp: orders.to_offset()}, timeout_ms=timeout_ms)
