"""Rules about several keys of one flow and its clusters, and the options of the flow's clients."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

from mirror.config.cycles import plain_name
from mirror.config.masking import SHORTEST_SECRET
from mirror.config.positions import Position
from mirror.config.problems import shown
from mirror.config.reserved_topics import reserved_copy, reserved_in, why_reserved
from mirror.errors import Problem
from mirror.producer.settings import ProducerSettings
from mirror.relay.masking.record_masks import needs_secret
from mirror.relay.model.way import Way
from mirror.wire.integers import INT32_MAX

if TYPE_CHECKING:
    from mirror.config.clients import Checked
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.config.problems import Sources

_TRANSACTION_TIMEOUT: Final = "transaction.timeout.ms"
_ONLY_EXACTLY_ONCE: Final = 'has no effect with delivery = "at-least-once": remove the key'
_ASIDE_KEYS: Final = ("on-too-large", "on-bad-timestamp", "on-no-key", "on-corrupt")
_TOPIC_NAME: Final = re.compile(r"(?!\.{1,2}$)[a-zA-Z0-9._-]{1,249}")
_TIME_KEYS: Final = frozenset({"delivery.timeout.ms", "request.timeout.ms", "linger.ms", "retry.backoff.ms"})
"""The keys that determine the shortest transaction time-out (the last two raise the default delivery time-out)."""


def problems(
    flow: FlowConfig,
    sources: Sources,
    *,
    doubtful: frozenset[str] = frozenset(),
    target: Checked | None = None,
    producer: Checked | None = None,
) -> Iterator[Problem]:
    """Yield the contradictions in ``flow``, without those that involve its ``doubtful`` keys.

    ``target`` is the table of its target cluster, ``producer`` its own table for the producer; None if there is none.
    """
    here = ("flows", flow.name)
    commits = {"commit-interval-ms", "commit-min-interval-ms"}
    if flow.commit_min_interval_ms > flow.commit_interval_ms and doubtful.isdisjoint(commits):
        allowed = f"must be at most commit-interval-ms ({flow.commit_interval_ms})"
        yield sources.problem((*here, "commit-min-interval-ms"), flow.commit_min_interval_ms, allowed)
    if not flow.exactly_once and "exactly_once_by" in flow.model_fields_set and "delivery" not in doubtful:
        yield sources.problem((*here, "exactly-once-by"), flow.exactly_once_by, _ONLY_EXACTLY_ONCE)
    if flow.origin_from and not flow.only_local and "origin" not in doubtful:
        allowed = 'has no effect unless origin = "local": remove the key'
        yield sources.problem((*here, "origin-from"), flow.origin_from, allowed)
    if doubtful.isdisjoint({"origin", "on-topic-deleted", "configs"}):
        yield from _deletion_problems(flow, sources)
    if flow.mirrormaker.checkpoints and "groups" not in flow.model_fields_set and "groups" not in doubtful:
        allowed = (
            f"needs the table [flows.{flow.name}.groups], which selects the groups; with sync = false there, their"
            " positions are only translated"
        )
        yield sources.problem((*here, "mirrormaker", "checkpoints"), value=True, allowed=allowed)
    if doubtful.isdisjoint({"from", "until", "start"}):
        yield from _point_problems(flow, sources)
    if doubtful.isdisjoint({"aside", "exactly-once-by", "transform", *_ASIDE_KEYS}):
        yield from _aside_problems(flow, sources)
    yield from _test_copy_problems(flow, sources)
    yield from _topic_problems(flow, sources, doubtful)
    yield from _client_problems(flow, sources)
    if target is None or producer is None or not doubtful.isdisjoint({"delivery", "commit-interval-ms"}):
        return
    if (target.doubtful | producer.doubtful).isdisjoint({*_TIME_KEYS, _TRANSACTION_TIMEOUT}):
        times = {key: value for key, value in {**target.table, **producer.table}.items() if key in _TIME_KEYS}
        yield from _timeout_problems(flow, times, sources)


def _aside_problems(flow: FlowConfig, sources: Sources) -> Iterator[Problem]:
    here = ("flows", flow.name)
    uses = [key for key in _ASIDE_KEYS if getattr(flow, key.replace("-", "_")) == "aside"]
    if not flow.aside:
        for key in uses:
            yield sources.problem((*here, key), "aside", 'needs aside = "TOPIC", a topic on the target')
        return
    path = (*here, "aside")
    if not _TOPIC_NAME.fullmatch(flow.aside):
        yield sources.problem(path, flow.aside, "must be a topic's name: at most 249 letters, digits, '.', '_' and '-'")
    elif (reason := why_reserved(flow.aside)) is not None:
        yield sources.problem(path, flow.aside, f"must be a topic of its own, since {reason}")
    if flow.exactly_once and flow.exactly_once_by == Way.SEQUENCES.value:
        allowed = 'must not be set with exactly-once-by = "sequences": records go aside in transactions'
        yield sources.problem(path, flow.aside, allowed)
    if flow.on_corrupt == "aside" and (flow.transform or flow.test_copy.is_on):
        allowed = 'must be "fail" with transform or test-copy, through which the bytes of a damaged batch cannot pass'
        yield sources.problem((*here, "on-corrupt"), "aside", allowed)


def _deletion_problems(flow: FlowConfig, sources: Sources) -> Iterator[Problem]:
    here = ("flows", flow.name)
    if flow.deletes_topics and flow.only_local:
        allowed = 'must be "keep" with origin = "local": others produce into the same topics on the target'
        yield sources.problem((*here, "on-topic-deleted"), flow.on_topic_deleted, allowed)
    if "max_deletions" in flow.model_fields_set and not flow.aligns_topics:
        allowed = 'has no effect unless on-topic-deleted = "delete" or configs = "sync": remove the key'
        yield sources.problem((*here, "max-deletions"), flow.max_deletions, allowed)


def _test_copy_problems(flow: FlowConfig, sources: Sources) -> Iterator[Problem]:
    table, path = flow.test_copy, ("flows", flow.name, "test-copy", "secret")
    secret = None if table.secret is None else table.secret.get_secret_value()
    if secret is None and needs_secret(table.mask):
        allowed = 'required with "hash": a text that only you have, such as the output of "openssl rand -hex 32"'
        yield sources.problem(path, None, allowed)
    elif secret is not None and len(secret) < SHORTEST_SECRET:
        allowed = f"must have at least {SHORTEST_SECRET} characters, so that it cannot be guessed"
        yield sources.problem(path, table.secret, allowed)
    if table.is_on and flow.mirrormaker.heartbeats:
        allowed = "must be false in a test copy, which would mask heartbeats, too: remove the key"
        yield sources.problem(("flows", flow.name, "mirrormaker", "heartbeats"), value=True, allowed=allowed)


def _topic_problems(flow: FlowConfig, sources: Sources, doubtful: frozenset[str]) -> Iterator[Problem]:
    if "topics" not in doubtful:
        yield from _reserved_topics(flow, sources)
    if not doubtful.isdisjoint({"topics", "topics-exclude", "naming", "names", "source", "target"}):
        return
    if flow.is_within_one_cluster and flow.mirrormaker.heartbeats:
        allowed = "must be false where both ends of the flow are one cluster: remove the key"
        yield sources.problem(("flows", flow.name, "mirrormaker", "heartbeats"), value=True, allowed=allowed)
    yield from _name_problems(flow, sources)


def _reserved_topics(flow: FlowConfig, sources: Sources) -> Iterator[Problem]:
    """Yield the patterns that spell out a topic which no flow copies; another pattern just never selects it."""
    for pattern in flow.topics:
        if (topic := reserved_in(pattern)) is not None:
            allowed = f"names {topic}, which no flow copies, since {why_reserved(topic)}: remove it"
            yield sources.problem(("flows", flow.name, "topics"), pattern, allowed)
        elif (copy := reserved_copy(pattern, flow.target_topic)) is not None:
            allowed = f"makes the target topic {copy}, which no flow writes, since {why_reserved(copy)}: remove it"
            yield sources.problem(("flows", flow.name, "topics"), pattern, allowed)


def _name_problems(flow: FlowConfig, sources: Sources) -> Iterator[Problem]:
    """Yield the topics of plain names that cannot have the name that they are to get."""
    for pattern in flow.topics if flow.names else ():
        topic = plain_name(pattern)
        if topic is not None and flow.concerns(topic) and (reason := flow.why_no_name(topic)) is not None:
            yield sources.problem(("flows", flow.name, "topics"), pattern, reason)


def _client_problems(flow: FlowConfig, sources: Sources) -> Iterator[Problem]:
    """Yield the clients' keys that the copy sets itself."""
    here = ("flows", flow.name)
    if "transactional.id" in flow.producer:
        allowed = "each partition has a transactional id of its own, derived from the flow's name: remove the key"
        yield sources.problem((*here, "producer", "transactional.id"), flow.producer["transactional.id"], allowed)
    if "compression.type" in flow.producer:
        allowed = "batches are passed on as they are: remove the key, and set the flow's compression for another codec"
        yield sources.problem((*here, "producer", "compression.type"), flow.producer["compression.type"], allowed)
    if flow.consumer.get("isolation.level") == "read_uncommitted":
        allowed = 'must be "read_committed": records of aborted transactions are never copied'
        yield sources.problem((*here, "consumer", "isolation.level"), "read_uncommitted", allowed)
    if "auto.offset.reset" in flow.consumer:
        allowed = "has no effect: the flow's start and on-gap say where to begin; remove the key"
        yield sources.problem((*here, "consumer", "auto.offset.reset"), flow.consumer["auto.offset.reset"], allowed)


def _point_problems(flow: FlowConfig, sources: Sources) -> Iterator[Problem]:
    """Check that the end is after the beginning; a time and an offset cannot be compared here."""
    here = ("flows", flow.name)
    start, end = flow.start_position, flow.end_position
    if start is not None and "start" in flow.model_fields_set:
        allowed = f"start = {shown(flow.start)} also sets where a partition without progress begins: remove one"
        yield sources.problem((*here, "from"), flow.from_, allowed)
    if end is None:
        return
    if start is not None and end.at_or_before(start):
        yield sources.problem((*here, "until"), flow.until, f"must be after from ({shown(flow.from_)})")
    start_ms = flow.start_timestamp_ms
    if start is None and start_ms is not None and end.at_or_before(Position(timestamp_ms=start_ms)):
        yield sources.problem((*here, "until"), flow.until, f"must be after start ({shown(flow.start)})")


def _timeout_problems(flow: FlowConfig, times: Mapping[str, object], sources: Sources) -> Iterator[Problem]:
    path = ("flows", flow.name, "producer", _TRANSACTION_TIMEOUT)
    given = flow.producer.get(_TRANSACTION_TIMEOUT)
    if not flow.exactly_once:
        if given is not None:
            yield sources.problem(path, given, _ONLY_EXACTLY_ONCE)
        return
    shortest, parts = _shortest_transaction(flow, times)
    if isinstance(given, int) and given < shortest:
        yield sources.problem(path, given, f"must be at least {parts}")
    elif given is None and shortest > INT32_MAX:
        allowed = f"would have to be {parts}, more than its largest value {INT32_MAX}: lower one of them"
        yield sources.problem(path, None, allowed)


def source_options(config: MirrorConfig, flow: FlowConfig) -> dict[str, object]:
    """Return the dotted keys of the consumer that reads from the flow's source, with secrets."""
    return {**config.clusters[flow.source].client_options(), **flow.consumer}


def target_options(config: MirrorConfig, flow: FlowConfig) -> dict[str, object]:
    """Return the dotted keys of the producers that write to the flow's target, with secrets.

    They have no ``transactional.id``, since each partition has its own. They have a ``transaction.timeout.ms`` only if
    the flow sets it; else the copy chooses it by the rule that is checked here.
    """
    return {**config.clusters[flow.target].client_options(), **flow.producer}


def _shortest_transaction(flow: FlowConfig, times: Mapping[str, object]) -> tuple[int, str]:
    """Return the shortest valid transaction time-out in ms, and the sum that it is, as a text.

    With a shorter one, the coordinator would abort a transaction before the delivery of its batches has timed out, and
    the producer would be fenced. The first batch of a transaction may be ``commit-interval-ms`` old when the delivery
    of the last one begins.
    """
    own = {key: value for key, value in times.items() if key != "delivery.timeout.ms"}
    settings = ProducerSettings.parse({"bootstrap.servers": "any:1", **own})
    request_ms = settings.cluster.request_timeout_ms
    given = times.get("delivery.timeout.ms")
    delivery_timeout_ms = settings.delivery_timeout_ms if not isinstance(given, int) else given
    shortest = delivery_timeout_ms + request_ms + flow.commit_interval_ms
    parts = (
        f"delivery.timeout.ms ({delivery_timeout_ms}) + request.timeout.ms ({request_ms})"
        f" + commit-interval-ms ({flow.commit_interval_ms}) = {shortest}"
    )
    return shortest, parts
