"""Opens the watch of a flow: whether the MirrorMaker 2 that it was taken over from copies again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.errors import AuthorizationFailed
from mirror.relay.progress.flow_topic import takeover_topic_of
from mirror.runtime.clock import SystemClock
from mirror.takeover.takeover_topic import TakeoverTopic
from mirror.takeover.watch import MirrorMakerWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mirror.client import Admin
    from mirror.config.models import FlowConfig, MirrorConfig
    from mirror.takeover.takeover_topic import TakeoverRecord

_READ_MS: Final = 30_000


def open_watch(config: MirrorConfig, flow: FlowConfig, target: Admin, warn: Callable[[str], None]) -> MirrorMakerWatch:
    """Return the watch of a flow; that of a flow that was not taken over does nothing. Raises KafkaError.

    ``target`` is a client of the flow's target. ``warn`` gets a line about each connector that cannot be watched.
    """
    options = config.clusters[flow.target].client_options()
    topic = TakeoverTopic(options, flow.name)
    watched: list[tuple[TakeoverRecord, Mapping[str, object]]] = []
    try:
        found = topic.read(_READ_MS) if target.describe_topics([takeover_topic_of(flow.name)]) else []
    except AuthorizationFailed as error:
        warn(f"whether it was taken over from MirrorMaker 2 is not known, so no MirrorMaker 2 is watched: {error}")
        found = []
    for record in found:
        if record.cluster is None:
            watched.append((record, options))
        elif record.cluster in config.clusters:
            watched.append((record, config.clusters[record.cluster].client_options()))
        else:
            warn(
                f"MirrorMaker 2 is not watched: the configuration has no cluster {record.cluster}, which had the topics"
                f" of {record.key.connector} when it was taken over"
            )
    return MirrorMakerWatch(flow.name, topic, watched, copies=flow.includes, warn=warn, clock=SystemClock())
