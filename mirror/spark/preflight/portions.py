"""Split a request that changes many topics into portions that a controller accepts. Pure except for the given call."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from mirror.errors import BrokerError, KafkaTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mirror.client import Outcomes
    from mirror.errors import KafkaError

V = TypeVar("V")

MAX_RECORDS: Final = 2_000
"""The largest number of metadata records that one request may cause.

KRaft controllers refuse a whole request of more than 10,000 partitions, or records (``MAX_PARTITIONS_PER_BATCH``,
``MAX_RECORDS_PER_USER_OP``: KAFKA-17870). Other controllers need longer than ``request.timeout.ms`` for it.
"""


THROTTLING_QUOTA_EXCEEDED: Final = 89
"""Kafka's error code (``Errors.THROTTLING_QUOTA_EXCEEDED``)."""
_MOST_CALLS_IN_VAIN: Final = 10
"""How many calls in a row a quota may refuse: with a timeout of a minute, it lets nothing pass for ten minutes."""


def portions(sizes: Mapping[str, int], maximum: int = MAX_RECORDS) -> Iterator[list[str]]:
    """Yield the names in order, in lists of a total size of at most ``maximum``; a larger name has a list alone."""
    names: list[str] = []
    total = 0
    for name, size in sizes.items():
        if names and total + size > maximum:
            yield names
            names, total = [], 0
        names.append(name)
        total += size
    if names:
        yield names


def send_in_portions(
    sizes: Mapping[str, int],
    send: Callable[[list[str]], Outcomes[str, V]],
    maximum: int = MAX_RECORDS,
    on_throttled: Callable[[int], None] = lambda _: None,
) -> dict[str, KafkaError]:
    """Call ``send`` with each portion of the names, and return the errors by name.

    Names that the quota ``controller_mutation_rate`` holds back are sent again, for as long as it lets some pass in
    ``_MOST_CALLS_IN_VAIN`` calls. ``on_throttled`` is called with their number before each.

    If no name of a portion was answered in time, the remaining names fail with the same error and are not sent: each of
    their portions would time out, too.
    """
    failed: dict[str, KafkaError] = {}
    timed_out: KafkaError | None = None
    for names in portions(sizes, maximum):
        if timed_out is not None:
            failed |= dict.fromkeys(names, timed_out)
            continue
        outcomes, in_vain = send(names), 0
        held = list[str]()
        while in_vain < _MOST_CALLS_IN_VAIN and (held := _held_back(outcomes, held)):
            on_throttled(len(held))
            failed |= {name: error for name, error in outcomes.failed.items() if name not in held}
            outcomes = send(held)
            in_vain = 0 if outcomes else in_vain + 1
        failed |= outcomes.failed
        if not outcomes and all(isinstance(error, KafkaTimeout) for error in outcomes.failed.values()):
            timed_out = next(iter(outcomes.failed.values()), None)
    return failed


def _held_back(outcomes: Outcomes[str, V], before: list[str]) -> list[str]:
    """Return the names that failed because the controller throttled them until the call's timeout (KIP-599).

    Those that were held back ``before`` may not have been sent again in all that time.
    """
    causes = {name: error.__cause__ for name, error in outcomes.failed.items() if isinstance(error, KafkaTimeout)}
    return [
        name
        for name, cause in causes.items()
        if (isinstance(cause, BrokerError) and cause.code == THROTTLING_QUOTA_EXCEEDED)
        or (cause is None and name in before)
    ]
