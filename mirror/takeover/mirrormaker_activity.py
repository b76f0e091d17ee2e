"""Finds out whether MirrorMaker 2 still runs: by its positions, the target's topics, its workers and state. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.mirrormaker.connect_status import State, Status
from mirror.takeover.places import Places

_SHOWN: Final = 3
_HOW_TO_STOP: Final = (
    "an idle or paused one may copy at any time: stop it (PUT /connectors/NAME/stop; in Strimzi state: stopped) or"
    " delete it"
)


class ActivitySample(NamedTuple):
    """What was seen at one moment."""

    positions: Mapping[TopicPartition, int]
    """Where the logs of the positions' topic end."""
    targets: Mapping[TopicPartition, int]
    """Where the logs of the flow's target partitions end."""
    workers: int | None
    """How many members the workers' group has; None: that is not known."""
    workers_error: str | None = None
    """Why the group could not be described."""
    status: Status | None = None
    """The source connector's own state; None: there is none, or it is not known."""


def signs_of_life(before: ActivitySample, after: ActivitySample, places: Places) -> list[str]:
    """Return what shows that MirrorMaker 2 still runs, as lines; none if nothing does."""
    lines = []
    if places.dedicated and after.workers:
        lines.append(f"{after.workers} of its workers are members of group {places.group}")
    elif not places.dedicated and (line := _not_stopped(after, places)):
        lines.append(line)
    for what, earlier, later in (
        ("stored positions", before.positions, after.positions),
        ("written to the target", before.targets, after.targets),
    ):
        grown = sorted(tp for tp, end in later.items() if end > earlier.get(tp, end))
        if grown:
            shown = ", ".join(str(tp) for tp in grown[:_SHOWN]) + (", ..." if len(grown) > _SHOWN else "")
            lines.append(f"something has {what} meanwhile: {shown}")
    return lines


def _not_stopped(seen: ActivitySample, places: Places) -> str:
    """Return that a connector of Kafka Connect was not stopped, though it may have nothing to copy.

    Its last state is that of workers which may have been killed since: without any worker it does not run. With
    others it does, or will after their rebalance, whatever its state is then (UNASSIGNED, FAILED and restarted).
    """
    if seen.status is None or seen.status.state == State.STOPPED or seen.workers == 0:
        return ""
    workers = f"group {places.group} has {seen.workers} workers"
    if seen.workers is None:
        unread = f"whether its workers run cannot be read: {seen.workers_error}"
        absent = (
            f"there is no group {places.group} of its workers: name it with --worker-group, also if they were killed"
        )
        workers = absent if seen.workers_error is None else unread
    return (
        f"its connector {places.connector} is {seen.status} according to topic {places.status_topic}, and {workers};"
        f" {_HOW_TO_STOP}"
    )
