"""Requests that change many topics, in portions that a controller takes. Pure but for the call that it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeVar

from mirror.errors import KafkaTimeout

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mirror.client import Outcomes
    from mirror.errors import KafkaError

V = TypeVar("V")

MOST_RECORDS: Final = 2_000
"""What one request may become in the cluster's metadata.

KRaft controllers refuse a whole request of more than 10,000 partitions, or records (``MAX_PARTITIONS_PER_BATCH``,
``MAX_RECORDS_PER_USER_OP``: KAFKA-17870), and others take longer for one than ``request.timeout.ms``.
"""


def portions(sizes: Mapping[str, int], most: int = MOST_RECORDS) -> Iterator[list[str]]:
    """The names in order, together of a size of ``most`` at most; one that is larger goes alone."""
    names: list[str] = []
    together = 0
    for name, size in sizes.items():
        if names and together + size > most:
            yield names
            names, together = [], 0
        names.append(name)
        together += size
    if names:
        yield names


def failures(
    sizes: Mapping[str, int], ask: Callable[[list[str]], Outcomes[str, V]], most: int = MOST_RECORDS
) -> dict[str, KafkaError]:
    """Why names failed, where ``ask`` was called with each portion of them.

    After a portion of which nothing was answered in time, nothing more is asked: the rest would take as long each.
    """
    failed: dict[str, KafkaError] = {}
    silent: KafkaError | None = None
    for names in portions(sizes, most):
        if silent is not None:
            failed |= dict.fromkeys(names, silent)
            continue
        found = ask(names)
        failed |= found.failed
        if not found and all(isinstance(error, KafkaTimeout) for error in found.failed.values()):
            silent = next(iter(found.failed.values()), None)
    return failed
