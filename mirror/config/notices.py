"""Notices about a valid configuration that may not do what its author expects. Pure."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from mirror.cluster.settings import ClusterSettings
from mirror.config.cycles import plain_names
from mirror.config.flow_rules import target_options
from mirror.config.key_names import dotted
from mirror.config.patterns import matches
from mirror.producer.settings import ProducerSettings

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from mirror.config.models import FlowConfig, MirrorConfig

_NAME: Final = re.compile(r"(?:[A-Za-z0-9._-]|\\[.-]|\[\.\])+")
"""A pattern by which somebody means one topic; a dot without a backslash is meant as a dot."""
_COMMAS: Final = re.compile(r"\{[0-9]*,[0-9]*\}|\[[^]]+\]")
"""Commas of a pattern that are no part of a name: in a repetition or a class of characters."""
_GLOB: Final = re.compile(r"[A-Za-z0-9._-]*[A-Za-z0-9_-]\*([A-Za-z0-9._-]+\*?)*")
"""A name with an asterisk behind a character that can hardly be meant to be repeated."""
_ANY_NAMES: Final = ("a", "Z9_x.y-0")
"""What matches both of them matches any name."""
_NO_WAITING: Final = "a task never waits for memory or metadata; delivery.timeout.ms bounds a batch's time"

WITHOUT_EFFECT: Final[Mapping[str, Mapping[str, str]]] = {
    "consumer": {
        "group.id": "progress is committed on the target, in groups of the flow's own (mirror.FLOW.NUMBER)",
        "connections.per.broker": "it counts connections for produce requests, which a consumer does not send",
    },
    "producer": {
        "linger.ms": "batches are passed on as they arrive, without waiting for more",
        "max.block.ms": _NO_WAITING,
        "max.block.ms.include.metadata": _NO_WAITING,
        "max.block.metadata.ms": _NO_WAITING,
    },
}
"""Keys that a flow's clients have and a copy does not use, with the reason."""


def notices(config: MirrorConfig, flow: FlowConfig) -> list[str]:
    """Return the lines about ``flow`` and its clusters; each names its key."""
    found = [
        f"{dotted(('flows', flow.name, client, key))} has no effect: {reason}; remove the key"
        for client, table in (("consumer", flow.consumer), ("producer", flow.producer))
        for key, reason in WITHOUT_EFFECT[client].items()
        if key in table
    ]
    if flow.configs == "off":
        found += [
            f'{dotted(("flows", flow.name, key))} has no effect with configs = "off"; remove the key'
            for key in ("configs-include", "configs-exclude", "configs-overrides")
            if key.replace("-", "_") in flow.model_fields_set
        ]
    if flow.acls.sync and flow.acls.groups and not flow.groups.sync:
        found.append(
            f"{dotted(('flows', flow.name, 'acls', 'groups'))} has no effect: only groups get ACLs whose positions the"
            f" flow keeps; add the table [flows.{flow.name}.groups]"
        )
    found += _names_left_out(flow)
    found += _doubtful_patterns(flow)
    found += _flows_missing(config, flow)
    found += _client_warnings(config, flow)
    return list(dict.fromkeys(found))


def _excludes_all(flow: FlowConfig) -> bool:
    return all(matches(flow.topics_exclude, name) for name in _ANY_NAMES)


def _names_left_out(flow: FlowConfig) -> Iterator[str]:
    """Yield a line for each topic that ``topics`` names, and that is not copied all the same, unless none is."""
    if _excludes_all(flow):
        return
    key = dotted(("flows", flow.name, "topics"))
    for pattern in flow.topics:
        name = re.sub(r"\\|\[|\]", "", pattern)
        if _NAME.fullmatch(pattern) and (reason := flow.why_not_copied(name)) is not None:
            yield f"{key}: {name} is left out, since {reason}"


def _doubtful_patterns(flow: FlowConfig) -> Iterator[str]:
    """Yield a line for each pattern of topics that is valid, and hardly means what it matches."""
    for key, patterns in (("topics", flow.topics), ("topics-exclude", flow.topics_exclude)):
        at = dotted(("flows", flow.name, key))
        for pattern in patterns:
            if "," in _COMMAS.sub("", pattern):
                yield f"{at}: no topic's name has a comma, as in {pattern!r}; write a list, with each pattern in quotes"
            if _GLOB.fullmatch(pattern):
                regex = pattern.replace(".", r"\.").replace("*", ".*")
                yield f"{at}: {pattern!r} is a regular expression, not a glob; write {regex!r} to match any text"
    if _excludes_all(flow):
        yield f"{dotted(('flows', flow.name, 'topics-exclude'))} excludes every topic: the flow copies nothing"


def _flows_missing(config: MirrorConfig, flow: FlowConfig) -> Iterator[str]:
    """Yield a line for each cluster of an incomplete mesh to which the records that ``flow`` copies do not go.

    Elsewhere it may be what is wanted, such as on a cluster that only collects.
    """
    local = {(one.source, one.target) for one in config.flows.values() if one.only_local}
    if not {(flow.source, flow.target), (flow.target, flow.source)} <= local:
        return
    for onward in config.flows.values():
        if onward.source != flow.target or onward.target == flow.source or not onward.only_local:
            continue
        if (onward.target, onward.source) not in local:
            continue
        direct = [one for one in config.flows.values() if (one.source, one.target) == (flow.source, onward.target)]
        names, taken = plain_names(flow), plain_names(onward)
        if names is None or taken is None:
            missing = flow.topics == onward.topics and all(one.topics != flow.topics for one in direct)
        else:
            missing = any(
                flow.target_topic(name) in taken and not any(one.includes(name) for one in direct) for name in names
            )
        if missing:
            yield (
                f"{dotted(('flows', flow.name))}: what it copies from {flow.source} to {flow.target} does not go on to"
                f' {onward.target}, because flow {onward.name} has origin = "local"; if it is wanted there, add a flow'
                f" from {flow.source} to {onward.target}"
            )


def _client_warnings(config: MirrorConfig, flow: FlowConfig) -> Iterator[str]:
    """Yield the warnings of the clients' own settings, which executors only log."""
    for name in (flow.source, flow.target):
        for line in ClusterSettings.parse(config.clusters[name].client_options()).warnings:
            yield f"{dotted(('clusters', name))}: {line}"
    own = {key: value for key, value in target_options(config, flow).items() if key != "transaction.timeout.ms"}
    for line in ProducerSettings.parse(own).warnings:
        if not line.startswith("max.block."):  # This key has no effect anyway.
            yield f"{dotted(('flows', flow.name, 'producer'))}: {line}"
