"""The internal topics of a Kafka Streams application, and what to do with each before it starts on the target."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from mirror.client import LATEST, Admin, TopicPartition
from mirror.positions.places import Found, SourcePosition

_KINDS = ("changelog", "repartition")


class InternalTopic(NamedTuple):
    """A topic of an application, by its name: ``APPLICATION-NAME-changelog`` or ``APPLICATION-NAME-repartition``."""

    name: str
    kind: str
    advice: str
    """What to do, or that nothing is to be done."""
    is_ready: bool
    """Whether the application finds it on the target as it left it."""


def ends_of(admin: Admin, application: str) -> dict[str, list[SourcePosition]]:
    """Return where the internal topics of an application end on the source, by name. Raises KafkaError."""
    topics = {name: one for name, one in admin.list_topics().items() if kind_of(name, application)}
    tps = [TopicPartition(name, number) for name, one in topics.items() for number in range(len(one.partitions))]
    # Behind the last committed record there is nothing to copy.
    ends = admin.list_offsets(dict.fromkeys(tps, LATEST), isolation="read_committed") if tps else {}
    found: dict[str, list[SourcePosition]] = {name: [] for name in sorted(topics)}
    for tp in tps:
        found[tp.topic].append(SourcePosition(*tp, ends[tp].offset))
    return found


def kind_of(topic: str, application: str) -> str:
    """Return what a topic is to the application; empty if it is none of its internal ones."""
    if not topic.startswith(f"{application}-"):
        return ""
    return next((kind for kind in _KINDS if topic.endswith(f"-{kind}")), "")


def advice(
    application: str,
    ends: Mapping[str, Iterable[SourcePosition]],
    found: Found,
    target_topic: Callable[[str], str | None],
) -> list[InternalTopic]:
    """Return the topics, whose ends on the source are ``ends``, with what to do with each."""
    return [
        InternalTopic(name, kind, *_advice(name, kind, target_topic(name), [*positions], found))
        for name, positions in ends.items()
        if (kind := kind_of(name, application))
    ]


def _advice(name: str, kind: str, there: str | None, ends: list[SourcePosition], found: Found) -> tuple[str, bool]:
    if there is None:
        lost = {
            "changelog": "its store begins empty on the target",
            "repartition": "its records that are not processed yet are lost",
        }
        return f"not copied: {lost[kind]}; add it to the flow's topics, or reset the application", False
    if there != name:
        return f"copied as {there}, where the application does not find it: copy it under its own name", False
    behind = [f"{one.partition}" for one in ends if found[one].problem]
    if behind:
        return f"partitions {', '.join(behind)} are not copied to their ends yet: stop the application, and wait", False
    return "copied to its end", True
