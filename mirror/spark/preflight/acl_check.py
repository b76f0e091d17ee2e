"""Permissions that a flow lacks: found out before anything is copied, from what brokers say of themselves (KIP-430).

::

    both clusters ──authorized.ask──► Seen ──judge──► problems: the flow could not run
                                                      warnings: some of it could not be copied

Pure: what was told in, lines out. What nobody told is no reason for a word: the copy finds out.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from mirror.client import AclOperation, TopicPartition
from mirror.relay.partition.target_writer import transactional_id
from mirror.relay.progress.committed import SHARDS, group_of
from mirror.relay.progress.control import place_of
from mirror.relay.progress.progress_topic import topic_of

if TYPE_CHECKING:
    from mirror.config.models import FlowConfig

_NAMED: Final = 3
"""Resources named in one line; of the others their number."""
_IDS_ASKED: Final = 1_000
"""Transactional ids are granted by prefix: a sample tells enough, and costs the broker little."""
_WORDS: Final = {
    AclOperation.READ: "Read",
    AclOperation.WRITE: "Write",
    AclOperation.CREATE: "Create",
    AclOperation.ALTER: "Alter",
    AclOperation.DESCRIBE: "Describe",
    AclOperation.DESCRIBE_CONFIGS: "DescribeConfigs",
}

_PREFIXED: Final = "--resource-pattern-type prefixed"
_OF_TARGET_TOPICS: Final = (
    AclOperation.WRITE,
    AclOperation.READ,
    AclOperation.DESCRIBE_CONFIGS,
    AclOperation.CREATE,  # without Describe, brokers do not tell whether a topic exists: it may have to be created
)
_OF_GROUPS: Final = (AclOperation.READ,)

Operations = frozenset[AclOperation]
NOTHING: Final[Operations] = frozenset()
"""Of what may not be seen: without Describe brokers tell nothing else."""


@dataclass(frozen=True, slots=True)
class Topic:
    """One topic as it is told: how many partitions it has, and what may be done with it (None: not told)."""

    partitions: int
    operations: Operations | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What both clusters told of what a flow uses. What is not in here was not told; None: it is not there.

    ``source`` and ``target`` are topics by name, the topic of progress among the target's; ``groups`` and ``ids``
    (transactional) are the target's.
    """

    source: Mapping[str, Topic | None] = field(default_factory=dict)
    target: Mapping[str, Topic | None] = field(default_factory=dict)
    groups: Mapping[str, Operations] = field(default_factory=dict)
    ids: Mapping[str, Operations] = field(default_factory=dict)


@dataclass(slots=True)
class Lacking:
    """Lines about permissions: ``problems`` keep the flow from running, ``warnings`` do not."""

    problems: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def groups_of(flow: FlowConfig, source: Mapping[str, Topic | None]) -> list[str]:
    """The groups that a flow uses: those of its partitions' progress, and that of its orders, the last one."""
    found: dict[str, None] = {}
    for name, topic in source.items():
        for partition in range(topic.partitions if topic is not None else 0):
            found[group_of(flow.name, TopicPartition(flow.target_topic(name), partition))] = None
        if len(found) == SHARDS:
            break
    return [*sorted(found), place_of(flow.name)[0]]


def ids_of(flow: FlowConfig, source: Mapping[str, Topic | None]) -> list[str]:
    """Transactional ids to ask about, one for each topic; none where the flow has no transactions."""
    if not flow.exactly_once:
        return []
    targets = [TopicPartition(flow.target_topic(name), 0) for name, topic in source.items() if topic is not None]
    return [transactional_id(flow.name, tp) for tp in targets[:_IDS_ASKED]]


def missing_permissions(flow: FlowConfig, seen: Seen) -> Lacking:
    """What ``flow`` lacks, by what was told; problems begin with its name, as those of all flows are told together."""
    lacking = Lacking()
    _of_source(flow, seen, lacking)
    _of_target(flow, seen, lacking)
    _of_progress_topic(flow, seen, lacking)
    _of_groups(flow, seen, lacking)
    _of_ids(flow, seen, lacking)
    lacking.problems = [f"flow {flow.name}: {line}" for line in lacking.problems]
    return lacking


def _of_source(flow: FlowConfig, seen: Seen, lacking: Lacking) -> None:
    cluster = flow.source
    unread = _missing(seen.source, AclOperation.READ)
    if _of_all(unread, seen.source):
        lacking.problems += _topic_lines(cluster, unread, "nothing can be copied")
    else:
        lacking.warnings += _topic_lines(cluster, unread, "what they hold is not copied, the flow's other topics are")
    to_make = {name for name, topic in seen.target.items() if topic is None}
    models = {name: topic for name, topic in seen.source.items() if flow.target_topic(name) in to_make}
    unknown = _missing(models, AclOperation.DESCRIBE_CONFIGS)
    why = "the target's topics are to be made with their configuration"
    if _of_all(unknown, seen.source):
        lacking.problems += _topic_lines(cluster, unknown, why)
    else:
        lacking.warnings += _topic_lines(cluster, unknown, f"{why}; the flow's other topics are copied")


def _of_target(flow: FlowConfig, seen: Seen, lacking: Lacking) -> None:
    cluster = flow.target
    mine = {flow.target_topic(name): topic for name, topic in seen.source.items()}
    there = {name: seen.target[name] for name in mine if name in seen.target}
    visible = {name: topic for name, topic in there.items() if topic is None or topic.operations != NOTHING}
    hidden = _missing({name: topic for name, topic in there.items() if name not in visible})
    growing = {
        name: topic
        for name, topic in visible.items()
        for source in [mine[name]]
        if topic is not None and source is not None and topic.partitions < source.partitions
    }
    why = "they cannot be made ready"
    for unready in (
        hidden,
        _missing(visible, AclOperation.DESCRIBE_CONFIGS),
        _missing(growing, AclOperation.ALTER),
    ):
        if _of_all(unready, mine):
            lines, why_these = lacking.problems, f"{why}, and the flow does not begin"
        else:
            lines, why_these = lacking.warnings, f"{why}, the flow's other topics are copied"
        lines += _topic_lines(cluster, unready, why_these, besides=_OF_TARGET_TOPICS)
    unwritten = _missing(visible, AclOperation.WRITE, AclOperation.READ)
    if _of_all(unwritten, mine):
        lacking.problems += _topic_lines(cluster, unwritten, "nothing can be copied")
    else:
        lacking.warnings += _topic_lines(cluster, unwritten, "they are not copied into, the flow's other topics are")


def _of_progress_topic(flow: FlowConfig, seen: Seen, lacking: Lacking) -> None:
    """Without Read no partition begins: whether its progress was forgotten is looked up there. Notes can be missed."""
    name = topic_of(flow.name)
    notes = {name: seen.target[name]} if name in seen.target else {}
    unread = _missing(notes, AclOperation.READ)
    why = "no partition can begin before its progress is read"
    lacking.problems += _topic_lines(flow.target, unread, why, besides=_OF_TARGET_TOPICS)
    if not unread:
        unwritten = _missing(notes, AclOperation.WRITE)
        why = "a progress that the target forgets is not restored"
        lacking.warnings += _topic_lines(flow.target, unwritten, why)


def _of_groups(flow: FlowConfig, seen: Seen, lacking: Lacking) -> None:
    missing = {group: absent for group, told in seen.groups.items() if (absent := _absent(told, _OF_GROUPS))}
    if not missing:
        return
    orders = place_of(flow.name)[0]
    operations = list(dict.fromkeys(one for absent in missing.values() for one in absent))
    lines, what, why = lacking.problems, f"groups with the prefix {_prefix(flow)}", "progress is kept there"
    if missing.keys() == {orders}:
        # Runs go on without orders, each for itself.
        lines, what, why = lacking.warnings, f"group {orders}", "other runs of the flow, and mirror stop, are not heard"
    grant = f"--group {_prefix(flow)} {_PREFIXED}"
    lines.append(_line(operations, what, flow.target, why, grant, besides=_OF_GROUPS))


def _of_ids(flow: FlowConfig, seen: Seen, lacking: Lacking) -> None:
    hidden = [name for name, told in seen.ids.items() if AclOperation.DESCRIBE not in told]
    if not hidden:
        return
    lines, what = lacking.problems, f"transactional ids with the prefix {_prefix(flow)}"
    why = 'nothing can be copied exactly once (delivery = "at-least-once" needs none)'
    if len(hidden) < len(seen.ids):
        lines, what = lacking.warnings, _several("transactional id", hidden)
        why = "their partitions are not copied, the flow's others are"
    grant = f"--transactional-id {_prefix(flow)} {_PREFIXED}"
    lines.append(_line([AclOperation.DESCRIBE], what, flow.target, why, grant, besides=[AclOperation.WRITE]))


def _prefix(flow: FlowConfig) -> str:
    return f"mirror.{flow.name}."


def _absent(told: Operations, needed: Collection[AclOperation]) -> list[AclOperation]:
    """Those of ``needed`` that are not ``told``; without Describe only that is known."""
    if AclOperation.DESCRIBE not in told:
        return [AclOperation.DESCRIBE]
    return [one for one in needed if one not in told]


def _missing(topics: Mapping[str, Topic | None], *needed: AclOperation) -> dict[str, list[AclOperation]]:
    """By topic; those that are not there, or not told of, lack nothing that is known."""
    found = {
        name: _absent(topic.operations, needed)
        for name, topic in topics.items()
        if topic is not None and topic.operations is not None
    }
    return {name: absent for name, absent in found.items() if absent}


def _of_all(missing: Collection[str], topics: Collection[str]) -> bool:
    return bool(topics) and len(missing) == len(topics)


def _topic_lines(
    cluster: str,
    missing: Mapping[str, Iterable[AclOperation]],
    why: str,
    besides: Collection[AclOperation] = (AclOperation.READ,),
) -> list[str]:
    """One line for all topics that lack the same."""
    told: dict[tuple[AclOperation, ...], list[str]] = defaultdict(list)
    for name, operations in sorted(missing.items()):
        told[tuple(operations)].append(name)
    return [
        _line(operations, _several("topic", names), cluster, why, _each("--topic", names), besides=besides)
        for operations, names in told.items()
    ]


def _line(
    operations: Iterable[AclOperation],
    what: str,
    cluster: str,
    why: str,
    grant: str,
    *,
    besides: Collection[AclOperation],
) -> str:
    """``besides`` is what is needed, too, and may be missing as well where Describe is."""
    missing = list(operations)
    words = [_WORDS[one] for one in missing]
    wanted = dict.fromkeys([*missing, *besides] if AclOperation.DESCRIBE in missing else missing)
    flags = " ".join(f"--operation {_WORDS[one]}" for one in wanted)
    verb = "are" if len(words) > 1 else "is"
    return (
        f"the permission{'s' if len(words) > 1 else ''} {' and '.join(words)} on {what} of cluster {cluster} {verb}"
        f" missing: {why}; grant to this client's user: kafka-acls --add --allow-principal User:... {flags} {grant}"
    )


def _several(kind: str, names: list[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f"{kind}{'s' if len(names) > 1 else ''} {', '.join(names[:_NAMED])}{more}"


def _each(flag: str, names: list[str]) -> str:
    shown = " ".join(f"{flag} {name}" for name in names[:_NAMED])
    return f"{shown} ..." if len(names) > _NAMED else shown
