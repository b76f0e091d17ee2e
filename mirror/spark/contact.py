"""Contacts clusters before a command needs them, so that one that is away is named at once, and once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from mirror.client import Admin
from mirror.errors import ConnectionFailed, FlowError, KafkaTimeout, MirrorError
from mirror.spark.concurrent_calls import call_concurrently

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from mirror.client import ClusterDescription
    from mirror.config.models import MirrorConfig


def contact(
    config: MirrorConfig, names: Iterable[str], on_waiting: Callable[[str], None] | None
) -> dict[str, MirrorError]:
    """Contact these clusters at the same time, and return the errors of those that do not answer, by name.

    Takes ``default.api.timeout.ms`` at most. ``on_waiting`` is called with a line about a cluster that has not answered
    after 3 s, and again every 15 s.
    """

    def describe(name: str) -> None:
        with Admin(config.clusters[name].client_options()) as admin:
            describe_named(name, admin)

    found = call_concurrently("cluster", {name: partial(describe, name) for name in sorted(set(names))}, on_waiting)
    return {name: error for name, error in found.items() if error is not None}


def check_answers(config: MirrorConfig, names: Iterable[str], on_waiting: Callable[[str], None] | None) -> None:
    """Raise the error of the first of these clusters that does not answer; see :func:`contact`."""
    for error in contact(config, names, on_waiting).values():
        raise error


def describe_named(name: str, admin: Admin) -> ClusterDescription:
    """Describe a cluster by the first call to it: a timeout is a FlowError that has the cluster's configured name."""
    try:
        return admin.describe_cluster()
    except KafkaTimeout as error:
        raise FlowError(
            f"cluster {name} does not answer: {error}; check its bootstrap.servers, and that it runs"
        ) from error


def is_away(error: BaseException) -> bool:
    """Whether a cluster does not answer, or one of its partitions has no leader yet: a later attempt may succeed."""
    return any(isinstance(one, ConnectionFailed | KafkaTimeout) for one in (error, error.__cause__))
