"""How long producers are expected to be fenced, and how long they were. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from rich.filesize import decimal

from mirror.spark.holding import SETTLED_MS
from mirror.spark.ledger.copy_rate import RUN_START_S
from mirror.switch.facts import GRACE_MS
from mirror.switch.record import State, SwitchRecord

_SHOWN_S: Final = 2
"""Until the brokers show the denials."""
_OPEN_S: Final = 3
"""Until the groups are moved, and clients are switched."""


@dataclass(frozen=True, slots=True)
class FlowPace:
    """How fast a flow copies."""

    name: str
    is_alive: bool
    """Whether a run of it goes on, so that the last records need no run of their own."""
    bytes_per_second: float | None = None
    """The rate of earlier runs; None: too little was copied to measure one."""


def expected_pause(quiet_s: int, flows: Sequence[FlowPace], held: int) -> list[str]:
    """Return lines about the pause of a switch of ``flows`` that holds ``held`` flows, those of the way back, too.

    What producers write between the last check and the fence comes on top: it is not known before.
    """
    resting = [one.name for one in flows if not one.is_alive]
    # Runs end while both clusters are compared, and all of this while the topics have to be quiet.
    behind = {
        "the requests of before the fence": min(quiet_s, GRACE_MS / 1000),
        f"the last run of {', '.join(resting)}": len(resting) * RUN_START_S,
        f"the last comparison, and holding {held} flows": max(len(flows) * RUN_START_S, SETTLED_MS / 1000),
    }
    shown = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in behind.items() if seconds)
    most_s = _SHOWN_S + max(quiet_s, sum(behind.values())) + _OPEN_S
    rates = [
        f"{one.name} copies {decimal(int(one.bytes_per_second))}/s"
        if one.bytes_per_second
        else f"no run of {one.name} has shown a rate yet"
        for one in flows
    ]
    return [
        f"producers are expected to wait for about {most_s:.0f} s: quiet-seconds ({quiet_s} s) and, meanwhile, {shown}",
        f"to this comes what they write between the last check and the fence: {'; '.join(rates)}",
        "to this comes the time until groups have no members on the source",
    ]


@dataclass(frozen=True, slots=True)
class Pause:
    """How long producers were fenced, in ms."""

    total_ms: int
    until: Mapping[str, int]
    """How long each state took to reach from the one before; ``switched``: until clients were at the target."""

    def line(self) -> str:
        """Return one line."""
        parts = ", ".join(f"{name} {ms / 1000:.1f} s" for name, ms in self.until.items())
        return f"producers were fenced for {self.total_ms / 1000:.1f} s: {parts}"


def measured(record: SwitchRecord) -> Pause | None:
    """Return the pause of a switch that is open or rolled back, by its steps; None: there was none, or it goes on."""
    ended_ms = record.switched_ms or next((one.at_ms for one in record.steps if one.state is State.OPEN), 0)
    ended_ms = record.lifted_ms or ended_ms
    if not record.fence_ms or not ended_ms:
        return None
    until: dict[str, int] = {}
    before_ms = record.fence_ms
    for step in record.steps:
        if record.fence_ms <= step.at_ms <= ended_ms:
            until[step.state] = until.get(step.state, 0) + max(0, step.at_ms - before_ms)
            before_ms = step.at_ms
    last = "unfenced" if record.lifted_ms else "switched"
    return Pause(ended_ms - record.fence_ms, until | ({last: ended_ms - before_ms} if ended_ms > before_ms else {}))
