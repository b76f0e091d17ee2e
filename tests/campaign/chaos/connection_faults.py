"""Faults of the connections between the stream (and the load) and the brokers, injected by the proxies."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import ClassVar, Final

from mirror.wire.api import Api
from tests.campaign.chaos.injection import Injection
from tests.campaign.chaos.load import CLIENT_ID
from tests.campaign.chaos.schedule import FaultKind, ScheduledFault, Side
from tests.faults.proxy import Action, Fault, On

_ACTIONS: Final = {
    FaultKind.CONNECTIONS_CUT: Action.CUT,
    FaultKind.CONNECTIONS_DELAYED: Action.DELAY,
    FaultKind.CONNECTIONS_RESET: Action.RESET,
    FaultKind.CONNECTIONS_HALF_OPEN: Action.SILENCE,
    FaultKind.BYTES_SWALLOWED: Action.SWALLOW,
}
_APIS: Final[Mapping[Side, tuple[Api | None, ...]]] = {
    Side.SOURCE: (None, Api.FETCH, Api.FETCH, Api.METADATA, Api.LIST_OFFSETS),
    Side.TARGET: (
        None,
        Api.PRODUCE,
        Api.PRODUCE,
        Api.END_TXN,
        Api.TXN_OFFSET_COMMIT,
        Api.INIT_PRODUCER_ID,
        Api.FIND_COORDINATOR,
        Api.OFFSET_FETCH,
        Api.METADATA,
    ),
}
"""The requests of a copy to each side; None stands for all of them."""
_FREQUENT: Final[Mapping[Side, tuple[Api, ...]]] = {
    Side.SOURCE: (Api.FETCH,),
    Side.TARGET: (Api.PRODUCE, Api.END_TXN, Api.TXN_OFFSET_COMMIT),
}
"""The requests that a copy makes all the time, and the load does not make at all."""


class ConnectionFault(Injection):
    """Some requests or answers are cut off, delayed, reset, left incomplete or swallowed."""

    unit: ClassVar = "requests and answers of the stream affected"

    def begin(self) -> None:
        self._faults = proxy_faults(self.fault)
        for fault in self._faults:
            self.log(_description(fault))
        self._before = len(self.side.proxy.injected)
        self.side.add_faults(*self._faults)

    def end(self) -> None:
        self.side.remove_faults(*self._faults)
        affected = [seen for fault, seen in self.side.proxy.injected[self._before :] if fault in self._faults]
        of_load = sum(seen.client_id == CLIENT_ID for seen in affected)
        self.count = len(affected) - of_load
        self.log(f"{self.effect}, and {of_load} of the load")


def proxy_faults(fault: ScheduledFault) -> tuple[Fault, ...]:
    """Return one to three faults of requests or answers, each of which begins at some byte and occurs some times.

    The first one is of frequent requests to any broker: in some seconds, a copy may need no metadata of one broker.
    """
    rng = random.Random(fault.seed)
    found = []
    for number in range(rng.randint(1, 3)):
        delays = fault.kind is FaultKind.CONNECTIONS_DELAYED
        found.append(
            Fault(
                action=_ACTIONS[fault.kind],
                api=rng.choice(_APIS[fault.side] if number else _FREQUENT[fault.side]),
                broker=rng.choice((None, 1, 2, 3)) if number else None,
                on=rng.choice(list(On)),
                after=_some_byte(rng),
                delay_ms=rng.randint(20, 3_000) if delays else 0,
                times=rng.randint(5, 50) if delays else rng.randint(1, 12),
            )
        )
    return tuple(found)


def _some_byte(rng: random.Random) -> int:
    """Return a position in the size, in the header, or anywhere after it."""
    position: Callable[[], int] = rng.choice(
        [lambda: 0, lambda: rng.randint(1, 12), lambda: rng.randint(12, 300), lambda: rng.randint(12, 20_000)]
    )
    return position()


def _description(fault: Fault) -> str:
    api = "any API" if fault.api is None else fault.api.label
    broker = f"broker {fault.broker}" if fault.broker else "any broker"
    frame = "request" if fault.on is On.REQUEST else "answer"
    delay = f" by {fault.delay_ms} ms" if fault.delay_ms else ""
    return (
        f"{fault.action.name.lower()}{delay}: {fault.times} times a {frame} of {api}, {broker}, at byte {fault.after}"
    )
