"""The diagnosis of a configuration: observes this host and the clusters at once, then the flows that can be."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from mirror import causes
from mirror.client import ClientQuota, ConfigResource, Outcomes
from mirror.cluster.settings import ClusterSettings
from mirror.config.flow_rules import target_options
from mirror.consumer.settings import CONSUMER_KEYS
from mirror.doctor.cluster_checks import check_cluster
from mirror.doctor.cluster_facts import observe
from mirror.doctor.facts import ClusterFacts, HostFacts
from mirror.doctor.findings import HOST, Finding, Severity, of_cause, of_line
from mirror.doctor.host_checks import IMPORTS_BYTES, Needs, check_host
from mirror.doctor.host_facts import observe_host
from mirror.doctor.setting_checks import (
    BROKER_KEYS,
    BROKER_NUMBERS,
    TOPIC_KEYS,
    Settings,
    Topics,
    check_batches,
    check_differing,
    check_idle,
    check_numbers,
    check_quotas,
    check_target,
)
from mirror.errors import MirrorError, named
from mirror.producer.settings import PRODUCER_KEYS
from mirror.spark.clusters import Clusters
from mirror.spark.concurrent_calls import call_concurrently
from mirror.spark.planning import broker_retention
from mirror.spark.preflight.flow_checks import Findings, FlowsRefused, check_flows

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.observation import Side

STEPS: Final = 10
"""A command takes at most so many steps one after the other."""
_MOST_TOPICS: Final = 500
"""The configurations of as many topics are read: those of all could take longer than the diagnosis."""
_INCOMPLETE: Final = {causes.SETTINGS_UNKNOWN.effect, causes.NO_NUMBER.effect, causes.MANY_TOPICS.effect}
"""Why not all of a flow's topics and settings were compared."""
_AT_ONCE: Final = 16
"""Flows."""
_ANONYMOUS: Final = "ANONYMOUS"
"""Kafka's name for a client without a login."""
_CONNECTIONS_BESIDE: Final = 2
"""What a worker opens to each broker beside ``connections.per.broker``."""


def diagnose(
    config: MirrorConfig,
    flows: Sequence[FlowConfig],
    report_dir: Path,
    step_ms: int,
    on_waiting: Callable[[str], None] | None = None,
) -> Iterator[Finding]:
    """Yield what is found of this host, the clusters of ``flows``, and the flows. A step takes ``step_ms`` at most.

    The flows are compared a few at a time: of many, some are found where the time does not suffice for all.
    ``on_waiting`` is called now and then with a line about a cluster that has not answered yet.
    """
    config = _impatient(config, step_ms)
    names = sorted({name for flow in flows for name in (flow.source, flow.target)})
    with Clusters(config, step_ms) as clusters:
        host = _begin(partial(observe_host, report_dir, os.environ))
        calls = {name: partial(_observe, config, clusters, name, step_ms) for name in names}
        found = call_concurrently("cluster", calls, on_waiting)
        facts = {name: one for name, one in found.items() if isinstance(one, ClusterFacts)}
        try:
            yield from check_host(host.result(step_ms / 1000), _needs(config, flows, facts))
        except TimeoutError:
            yield of_cause(Severity.ERROR, HOST, "it does not answer", causes.HANGING)
        for name in names:
            one = found[name]
            if isinstance(one, MirrorError):
                yield of_line(Severity.ERROR, f"cluster {name}", str(one), causes.AWAY)
        for name, cluster in facts.items():
            yield from check_cluster(cluster, time.time())
            idle_ms = ClusterSettings.parse(config.clusters[name].client_options()).connections_max_idle_ms
            yield from check_idle(name, cluster.broker_settings, idle_ms)
            yield from check_numbers(name, cluster.broker_settings)
            yield from check_differing(name, cluster.settings.value)
        yield from _of_flows(config, flows, clusters, facts)


def _begin(observe: Callable[[], HostFacts]) -> Future[HostFacts]:
    """Observe this host in a thread, which is left behind where a disk, or the lookup of a name, hangs."""
    found = Future[HostFacts]()

    def run() -> None:
        try:
            found.set_result(observe())
        except Exception as error:  # noqa: BLE001 - the caller raises it
            found.set_exception(error)

    threading.Thread(target=run, name="mirror-doctor-host", daemon=True).start()
    return found


def _observe(config: MirrorConfig, clusters: Clusters, name: str, step_ms: int) -> ClusterFacts:
    return observe(clusters.side(name), config.clusters[name].client_options(), BROKER_KEYS, step_ms)


def _impatient(config: MirrorConfig, step_ms: int) -> MirrorConfig:
    """Return the configuration with connections that are established within half of ``step_ms``.

    Those that are not say at which stage they are, and why that may be; a call only says that it has timed out.
    """
    times = {
        "socket.connection.setup.timeout.ms": max(1, step_ms // 2),
        "socket.connection.setup.timeout.max.ms": max(1, step_ms // 2),
    }
    clusters = {name: one.model_copy(update={"options": one.options | times}) for name, one in config.clusters.items()}
    return config.model_copy(update={"clusters": clusters})


def _needs(config: MirrorConfig, flows: Sequence[FlowConfig], facts: Mapping[str, ClusterFacts]) -> Needs:
    def connections(name: str) -> int:
        per_broker = ClusterSettings.parse(config.clusters[name].client_options()).connections_per_broker
        return len(facts[name].brokers) * (per_broker + _CONNECTIONS_BESIDE) if name in facts else 0

    return Needs(
        max(
            IMPORTS_BYTES
            + _bytes(flow.producer.get("buffer.memory", PRODUCER_KEYS["buffer.memory"].default))
            + _bytes(flow.consumer.get("fetch.max.bytes", CONSUMER_KEYS["fetch.max.bytes"].default))
            for flow in flows
        ),
        max(connections(flow.source) + connections(flow.target) for flow in flows),
    )


def _bytes(value: object) -> int:
    return int(str(value))


# --- flows


def _of_flows(
    config: MirrorConfig, flows: Sequence[FlowConfig], clusters: Clusters, facts: Mapping[str, ClusterFacts]
) -> Iterator[Finding]:
    """Yield what is found of the flows both of whose clusters answer: of the others, their clusters say it."""
    answering = [
        flow for flow in flows if all(name in facts and facts[name].answers for name in (flow.source, flow.target))
    ]
    if not answering:
        return
    problems, warnings = _checked(config, answering, clusters)
    for begin in range(0, len(answering), _AT_ONCE):
        yield from _of_some(config, answering[begin : begin + _AT_ONCE], clusters, facts, problems, warnings)


def _of_some(
    config: MirrorConfig,
    flows: Sequence[FlowConfig],
    clusters: Clusters,
    facts: Mapping[str, ClusterFacts],
    problems: Mapping[str, Sequence[str]],
    warnings: Mapping[str, Sequence[str]],
) -> Iterator[Finding]:
    compared = call_concurrently(
        "flow",
        {one.name: partial(_compared, config, one, clusters, facts[one.source], facts[one.target]) for one in flows},
    )
    for flow in flows:
        at = f"flow {flow.name}"
        of_target = compared[flow.name]
        if isinstance(of_target, MirrorError):
            of_target = [_not_compared(at, of_target)]
        found = [
            *(of_line(Severity.ERROR, at, line.removeprefix(f"{at}: ")) for line in problems.get(flow.name, ())),
            *(of_line(Severity.WARNING, at, line) for line in warnings.get(flow.name, ())),
            *of_target,
        ]
        yield from found
        if all(one.severity in {Severity.OK, Severity.NOTE} for one in found):
            whole = facts[flow.target].settings.error is None and not any(one.why in _INCOMPLETE for one in found)
            takes = ", and its target takes what its source has" if whole else ""
            yield Finding(Severity.OK, at, f"its permissions suffice{takes}")


def _not_compared(at: str, error: MirrorError) -> Finding:
    return of_line(Severity.WARNING, at, f"its topics cannot be compared: {error}")


def _checked(
    config: MirrorConfig, flows: Sequence[FlowConfig], clusters: Clusters
) -> tuple[Mapping[str, Sequence[str]], Mapping[str, Sequence[str]]]:
    """Return the problems because of which runs would refuse flows, and their warnings."""
    try:
        found = check_flows(config, flows, clusters)
    except FlowsRefused as refused:
        return refused.problems, {}
    except MirrorError as error:
        return {flow.name: str(error).splitlines() for flow in flows}, {}
    return problems_of(found), found.warnings


def problems_of(found: Findings) -> dict[str, list[str]]:
    """Return the lines of each flow that is refused, or whose cluster does not answer."""
    lines = {name: str(error).splitlines() for name, error in found.errors.items()}
    for name, problems in found.problems.items():
        lines[name] = list(dict.fromkeys([*lines.get(name, ()), *problems]))
    return lines


def _compared(
    config: MirrorConfig, flow: FlowConfig, clusters: Clusters, source: ClusterFacts, target: ClusterFacts
) -> list[Finding]:
    return list(_of_target(config, flow, clusters, source, target))


def _of_target(
    config: MirrorConfig, flow: FlowConfig, clusters: Clusters, source: ClusterFacts, target: ClusterFacts
) -> Iterator[Finding]:
    at, sides, settings = f"flow {flow.name}", clusters.of(flow), target.broker_settings
    if broker_retention.without_number(settings, BROKER_NUMBERS):
        what = f"settings of the brokers of {flow.target} are no numbers, and are not compared"
        yield of_cause(Severity.NOTE, at, what, causes.NO_NUMBER)
    try:
        for fault in broker_retention.faults(flow, sides.target, settings):
            yield of_cause(Severity.ERROR, at, fault.what, fault.cause)
        yield from check_quotas(flow, *_quotas(config, (source, target)))
        yield from check_target(flow, settings, len(sides.target.cluster.brokers))
        selected = sorted(name for name in sides.source.topics if flow.selects(name))
        if len(selected) > _MOST_TOPICS:
            what = f"the configurations of {_MOST_TOPICS} of its {len(selected):,} topics were compared"
            yield of_cause(Severity.NOTE, at, what, causes.MANY_TOPICS)
        names = selected[:_MOST_TOPICS]
        copies = [flow.target_topic(name) for name in names]
        present = sides.target.describe(copies)
        of_source = _configs(sides.source, names)
        of_target = _configs(sides.target, [one for one in copies if one in present])
        for cluster, failed in (
            (flow.source, of_source.failed),
            (flow.target, present.failed | of_target.failed),
        ):
            if failed:
                what = (
                    f"{named('topic', sorted(failed))} of {cluster} cannot be compared: {next(iter(failed.values()))}"
                )
                yield of_cause(Severity.NOTE, at, what, causes.SETTINGS_UNKNOWN)
        topics = Topics(of_source, of_target)
        size = target_options(config, flow).get("max.request.size", PRODUCER_KEYS["max.request.size"].default)
        yield from check_batches(flow, settings, topics, _bytes(size))
    except MirrorError as error:  # what was found before is kept
        yield _not_compared(at, error)


def _quotas(
    config: MirrorConfig, clusters: Sequence[ClusterFacts]
) -> tuple[dict[str, tuple[ClientQuota, ...]], dict[str, dict[str, str]]]:
    """Return the quotas of clusters, and the user and client id of this client there."""
    names = {}
    for one in clusters:
        settings = ClusterSettings.parse(config.clusters[one.name].client_options())
        sasl = settings.security.sasl
        user = sasl.username if sasl is not None else "" if settings.security.uses_tls else _ANONYMOUS
        names[one.name] = {"user": user, "client-id": settings.client_id}
    return {one.name: one.quotas.value for one in clusters}, names


def _configs(side: Side, topics: Sequence[str]) -> Outcomes[str, Settings]:
    found = side.admin.describe_configs(map(ConfigResource.topic, topics), keys=TOPIC_KEYS, partial=True)
    return Outcomes(
        {resource.name: {key: one.value for key, one in entries.items()} for resource, entries in found.items()},
        {resource.name: error for resource, error in found.failed.items()},
    )
