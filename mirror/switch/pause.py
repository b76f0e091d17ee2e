"""How long producers are expected to be fenced. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from rich.filesize import decimal

from mirror.spark.holding import SETTLED_MS
from mirror.spark.ledger.copy_rate import RUN_START_S

_SHOWN_S: Final = 2
"""Until the brokers show the denials, and until they show that nothing grows."""


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
    parts = {
        "quiet-seconds and the fence": quiet_s + _SHOWN_S,
        f"the last run of {', '.join(resting)}": len(resting) * RUN_START_S,
        "the last comparison": len(flows) * RUN_START_S,
        f"holding {held} flows": SETTLED_MS / 1000 if held else 0,
    }
    shown = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in parts.items() if seconds)
    rates = [
        f"{one.name} copies {decimal(int(one.bytes_per_second))}/s"
        if one.bytes_per_second
        else f"no run of {one.name} has shown a rate yet"
        for one in flows
    ]
    return [
        f"producers are expected to wait for about {sum(parts.values()):.0f} s: {shown}",
        f"to this comes what they write between the last check and the fence: {'; '.join(rates)}",
        "to this comes the time until groups have no members on the source",
    ]
