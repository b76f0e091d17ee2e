"""Which processes are killed at which moments of a cut-over. Pure: everything follows from the seed."""

from __future__ import annotations

import random
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

BEGUN: Final = "begun"
"""The moment at which the command is started; the others are states, which the command prints."""
FENCED: Final = ("fenced", "drained", "proved", "moved")
MOMENTS: Final = (BEGUN, "ready", *FENCED, "OPEN", "reversed")
_LATEST_S: Final = 3.0
_CHECK_S: Final = 20.0
"""The check of a switch takes about so long, so that its kills spread over it."""


class Victim(StrEnum):
    """What is killed by SIGKILL."""

    OPERATOR = "operator"
    ROLLED_BACK = "operator, then --rollback"
    SOURCE_BROKER = "broker of the source"
    TARGET_BROKER = "broker of the target"
    WORKER = "Spark worker"
    DRIVER = "driver of the stream"


_WEIGHTS: Final = {
    Victim.OPERATOR: 3,
    Victim.ROLLED_BACK: 2,
    Victim.SOURCE_BROKER: 3,
    Victim.TARGET_BROKER: 3,
    Victim.WORKER: 2,
    Victim.DRIVER: 2,
}
_HOW_MANY: Final = {0: 1, 1: 3, 2: 3, 3: 1}


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill: ``delay_s`` after the command has come to ``moment``."""

    victim: Victim
    moment: str
    delay_s: float


@dataclass(frozen=True, slots=True)
class Plan:
    """What happens in one cut-over."""

    kills: tuple[Kill, ...]
    early_stop: bool
    """Whether consumers are stopped at the fence, and not only when the command asks for it."""
    with_children: bool
    """Whether a killed operator's own commands die with it, as at the end of a host."""


def plan(seed: int, number: int, *, calm: bool = False) -> Plan:
    """Return the plan of cut-over ``number``, counted from 0; a ``calm`` one has no kills."""
    rng = random.Random(f"{seed} {number}")
    (many,) = rng.choices(list(_HOW_MANY), list(_HOW_MANY.values()))
    victims = rng.choices(list(_WEIGHTS), list(_WEIGHTS.values()), k=many)
    kills = tuple(_kill(rng, victim) for victim in victims)
    return Plan(() if calm else kills, early_stop=rng.random() < 0.5, with_children=rng.random() < 0.5)


def _kill(rng: random.Random, victim: Victim) -> Kill:
    # Nothing can be rolled back once it is open.
    moment = rng.choice(MOMENTS[: MOMENTS.index("OPEN")] if victim is Victim.ROLLED_BACK else MOMENTS)
    return Kill(victim, moment, round(rng.uniform(0, _CHECK_S if moment == BEGUN else _LATEST_S), 2))
