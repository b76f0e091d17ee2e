"""What :class:`mirror.runtime.admin.Admin` makes of calls that are over: raised, told in part, put together."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import TypeVar

from mirror.cluster.keyed_call import GROUP_ID_NOT_FOUND, first_failure
from mirror.cluster.types import K, Outcomes, V
from mirror.errors import BrokerError, KafkaError

T = TypeVar("T")


def pass_on(told: Future[T], asked: Future[T]) -> None:
    """``told`` ends as ``asked`` has."""
    error = asked.exception()
    if error is None:
        told.set_result(asked.result())
    else:
        told.set_exception(error)


def as_asked(found: Outcomes[K, V], *, partial: bool) -> Outcomes[K, V]:
    """``found``, with its failures inside where that is wanted. Raises the first failure where it is not."""
    if found.failed and not partial:
        raise first_failure(found.failed)
    return found


def not_found(error: KafkaError) -> bool:
    """Whether there is no such group, or none of the protocol asked for."""
    return isinstance(error, BrokerError) and error.code == GROUP_ID_NOT_FOUND


def merged(keys: Iterable[K], first: Outcomes[K, V], second: Outcomes[K, V]) -> Outcomes[K, V]:
    """Both together, in the order of ``keys``; what the second one found is no failure of the first any more."""
    found = {**first, **second}
    failed = {**first.failed, **second.failed}
    return Outcomes(
        {key: found[key] for key in keys if key in found}, {key: failed[key] for key in failed if key not in found}
    )
