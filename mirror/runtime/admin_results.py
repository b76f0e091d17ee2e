"""Turns the outcomes of calls into the results of :class:`mirror.runtime.admin.Admin`."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Future
from typing import TypeVar

from mirror.cluster.calls.keyed_call import first_failure
from mirror.cluster.types import K, Outcomes, V
from mirror.errors import BrokerError, KafkaError
from mirror.wire.error_codes import GROUP_ID_NOT_FOUND

T = TypeVar("T")


def pass_on(outcome: Future[T], answered: Future[T]) -> None:
    """Complete ``outcome`` with the result or the error of ``answered``."""
    error = answered.exception()
    if error is None:
        outcome.set_result(answered.result())
    else:
        outcome.set_exception(error)


def as_asked(found: Outcomes[K, V], *, partial: bool) -> Outcomes[K, V]:
    """Return ``found``, with its failures if ``partial``. Otherwise raise the first failure."""
    if found.failed and not partial:
        raise first_failure(found.failed)
    return found


def not_found(error: KafkaError) -> bool:
    """Whether the group does not exist, or has another protocol than requested."""
    return isinstance(error, BrokerError) and error.code == GROUP_ID_NOT_FOUND


def merged(keys: Iterable[K], first: Outcomes[K, V], second: Outcomes[K, V]) -> Outcomes[K, V]:
    """Merge both in the order of ``keys``; a result of the second replaces a failure of the first."""
    found = {**first, **second}
    failed = {**first.failed, **second.failed}
    return Outcomes(
        {key: found[key] for key in keys if key in found}, {key: failed[key] for key in failed if key not in found}
    )
