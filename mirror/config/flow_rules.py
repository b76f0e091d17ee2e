"""What the keys of one flow say together, and with their clusters': contradictions, and the clients' options."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from mirror.config.positions import Position
from mirror.config.problems import shown
from mirror.errors import Problem
from mirror.producer.settings import ProducerSettings

if TYPE_CHECKING:
    from mirror.config.clients import Checked
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.config.problems import Sources

_INT32_MAX: Final = 2**31 - 1
_TIMEOUT: Final = "transaction.timeout.ms"
_TIMES: Final = frozenset({"delivery.timeout.ms", "request.timeout.ms", "linger.ms", "retry.backoff.ms"})
"""What the shortest transaction time-out is made of (the last two raise a delivery time-out that is not given)."""


def problems(
    flow: FlowConfig,
    sources: Sources,
    *,
    doubtful: frozenset[str] = frozenset(),
    target: Checked | None = None,
    producer: Checked | None = None,
) -> Iterator[Problem]:
    """What is contradictory in ``flow``, as far as it is known: nothing is concluded from its ``doubtful`` keys.

    ``target`` is its target cluster's table and ``producer`` its own for the producer; None where there is none.
    """
    here = ("flows", flow.name)
    commits = {"commit-interval-ms", "commit-min-interval-ms"}
    if flow.commit_min_interval_ms > flow.commit_interval_ms and doubtful.isdisjoint(commits):
        allowed = f"must be at most commit-interval-ms ({flow.commit_interval_ms})"
        yield sources.problem((*here, "commit-min-interval-ms"), flow.commit_min_interval_ms, allowed)
    if doubtful.isdisjoint({"from", "until", "start"}):
        yield from _point_problems(flow, sources)
    if "transactional.id" in flow.producer:
        allowed = "each partition's transactions have a name of their own, made from the flow's: remove the key"
        yield sources.problem((*here, "producer", "transactional.id"), flow.producer["transactional.id"], allowed)
    if "compression.type" in flow.producer:
        allowed = "batches are passed on as they are: remove it, and set the flow's own compression for another codec"
        yield sources.problem((*here, "producer", "compression.type"), flow.producer["compression.type"], allowed)
    if flow.consumer.get("isolation.level") == "read_uncommitted":
        allowed = 'must be "read_committed": records of aborted transactions are never copied'
        yield sources.problem((*here, "consumer", "isolation.level"), "read_uncommitted", allowed)
    if "auto.offset.reset" in flow.consumer:
        allowed = "is of no use: the flow's start and on-gap say where to begin and go on; remove the key"
        yield sources.problem((*here, "consumer", "auto.offset.reset"), flow.consumer["auto.offset.reset"], allowed)
    if target is None or producer is None or not doubtful.isdisjoint({"delivery", "commit-interval-ms"}):
        return
    if (target.doubtful | producer.doubtful).isdisjoint({*_TIMES, _TIMEOUT}):
        times = {key: value for key, value in {**target.table, **producer.table}.items() if key in _TIMES}
        yield from _timeout_problems(flow, times, sources)


def _point_problems(flow: FlowConfig, sources: Sources) -> Iterator[Problem]:
    """An end that is not behind the beginning copies nothing; a time and an offset cannot be compared here."""
    here = ("flows", flow.name)
    begins, ends = flow.start_position, flow.end_position
    if begins is not None and "start" in flow.model_fields_set:
        allowed = f"start = {shown(flow.start)} says it, too, where a partition without progress begins: remove one"
        yield sources.problem((*here, "from"), flow.from_, allowed)
    if ends is None:
        return
    if begins is not None and ends.at_or_before(begins):
        yield sources.problem((*here, "until"), flow.until, f"must be after from ({shown(flow.from_)})")
    started = flow.start_timestamp_ms
    if begins is None and started is not None and ends.at_or_before(Position(timestamp_ms=started)):
        yield sources.problem((*here, "until"), flow.until, f"must be after start ({shown(flow.start)})")


def _timeout_problems(flow: FlowConfig, times: Mapping[str, object], sources: Sources) -> Iterator[Problem]:
    path = ("flows", flow.name, "producer", _TIMEOUT)
    given = flow.producer.get(_TIMEOUT)
    if not flow.exactly_once:
        if given is not None:
            yield sources.problem(path, given, 'is of no use with delivery = "at-least-once": remove the key')
        return
    shortest, parts = _shortest_transaction(flow, times)
    if isinstance(given, int) and given < shortest:
        yield sources.problem(path, given, f"must be at least {parts}")
    elif given is None and shortest > _INT32_MAX:
        allowed = f"would have to be {parts}, more than its largest value {_INT32_MAX}: lower one of them"
        yield sources.problem(path, None, allowed)


def source_options(config: MirrorConfig, flow: FlowConfig) -> dict[str, object]:
    """The dotted keys of the consumer that reads from the flow's source. With secrets."""
    return {**config.clusters[flow.source].client_options(), **flow.consumer}


def target_options(config: MirrorConfig, flow: FlowConfig) -> dict[str, object]:
    """The dotted keys of the producers that write to the flow's target. With secrets.

    They have no ``transactional.id``, which is each partition's own, and a ``transaction.timeout.ms`` only where the
    flow says one: else the copy chooses it by the rule that is checked here.
    """
    return {**config.clusters[flow.target].client_options(), **flow.producer}


def _shortest_transaction(flow: FlowConfig, times: Mapping[str, object]) -> tuple[int, str]:
    """Below it the coordinator aborts before a batch's own time is up, which looks as if another took over. In words.

    A transaction's first batch may be ``commit-interval-ms`` old when its last one begins its delivery.
    """
    own = {key: value for key, value in times.items() if key != "delivery.timeout.ms"}
    settings = ProducerSettings.parse({"bootstrap.servers": "any:1", **own})
    request_ms = settings.cluster.request_timeout_ms
    given = times.get("delivery.timeout.ms")
    delivery_ms = settings.delivery_timeout_ms if not isinstance(given, int) else given
    shortest = delivery_ms + request_ms + flow.commit_interval_ms
    parts = (
        f"delivery.timeout.ms ({delivery_ms}) + request.timeout.ms ({request_ms})"
        f" + commit-interval-ms ({flow.commit_interval_ms}) = {shortest}"
    )
    return shortest, parts
