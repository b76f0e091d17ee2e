"""Differences of two logs that are none of their records: each makes both logs, and says by which rules they agree.

Those of tests/verify/harmless_records.py are lists of records, so that real clients can write them, too; the others,
of tests/verify/harmless_logs.py, are whole logs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from mirror.verify.values import Bounds, Named, Rules
from mirror.wire.messages.fetch import AbortedTransaction
from mirror.wire.records import AnyBatch
from tests.relay.batches.logs_by_hand import Made
from tests.verify.logs import by_tens, copied, log_of

Logs = tuple[Sequence[AnyBatch], Sequence[AnyBatch]]


@dataclass(frozen=True)
class Harmless:
    """Two logs between which nothing differs."""

    name: str
    logs: Callable[[], Logs]
    rules: Rules = field(default_factory=Rules)
    named: dict[Named, int] = field(default_factory=dict)
    """What is to be named, and how often."""
    bounds: Callable[[Bounds], Bounds] = lambda bounds: bounds
    source_aborted: tuple[AbortedTransaction, ...] = ()
    target_aborted: tuple[AbortedTransaction, ...] = ()
    ends: tuple[int, int] | None = None
    """Up to where both sides are equal; None: up to the end of both."""
    uncompared: tuple[tuple[str, int, int], ...] = ()
    per_fetch: int = 6


@dataclass(frozen=True)
class RecordCase:
    """A difference between lists of records, which the rules of a flow permit or make."""

    name: str
    rules: Rules
    source: Callable[[], list[Made]]
    target: Callable[[list[Made]], list[Made]]
    named: dict[Named, int] = field(default_factory=dict)
    codec: str = "lz4"
    layout: Callable[[Sequence[Made]], list[list[Made]]] = by_tens

    def harmless(self) -> Harmless:
        def logs() -> Logs:
            source = self.source()
            target = self.layout(self.target(source))
            return log_of(by_tens(source)), copied(target, codec=self.codec)

        return Harmless(self.name, logs, self.rules, self.named)
