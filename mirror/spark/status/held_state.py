"""Why a flow may not copy before a person decides: its latch, and a MirrorMaker 2 that copies again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from mirror.errors import KafkaError
from mirror.relay.progress.flow_topic import latch_topic_of, takeover_topic_of
from mirror.relay.progress.latch import Latch, read_latch
from mirror.takeover.resumption import resumption
from mirror.takeover.takeover_topic import TakeoverTopic

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mirror.observation import Side

_TIMEOUT_MS: Final = 10_000


def read_resumed(target: Side, options: Mapping[str, object], flow: str) -> str | None:
    """Return the line about a MirrorMaker 2 that copies again, for which the flow has stopped; None if there is none.

    ``options`` are those of ``target``. None also if that cannot be read: a run says so.
    """
    try:
        if not target.describe([takeover_topic_of(flow)]):
            return None
        found = TakeoverTopic(options, flow).read(_TIMEOUT_MS)
    except KafkaError:
        return None
    return next((resumption(one, one.resumed, flow) for one in found if one.resumed), None)


def read_latch_of(target: Side, options: Mapping[str, object], flow: str) -> Latch | None:
    """Return the latch of the flow; None if it cannot be read: a run says so. ``options`` are those of ``target``."""
    try:
        return read_latch(options, flow, _TIMEOUT_MS) if target.describe([latch_topic_of(flow)]) else Latch()
    except KafkaError:
        return None
