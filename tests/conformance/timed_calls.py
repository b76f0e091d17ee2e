"""The consumer's eleven timed calls, each with the request that it needs from a broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pytest

from mirror.client import Consumer, TopicPartition
from mirror.errors import KafkaTimeout
from mirror.wire.api import Api
from tests.conformance.topics import read
from tests.faults.frames import Seen
from tests.stalls import Stalls, Timed

Run = Callable[[Consumer, TopicPartition, int | None], object]
FINAL_EPOCH = -1


@dataclass(frozen=True, slots=True)
class TimedCall:
    """``run(consumer, tp, timeout_ms)`` makes the call; ``api`` is the request behind it, found by ``where``."""

    name: str
    api: Api
    run: Run
    where: Callable[[Seen], bool] = lambda _: True

    def __str__(self) -> str:
        return self.name


def _poll(consumer: Consumer, tp: TopicPartition, timeout_ms: int | None) -> object:
    consumer.assign([tp])
    consumer.seek(tp, 0)
    return consumer.poll(timeout_ms)


def _position(consumer: Consumer, tp: TopicPartition, timeout_ms: int | None) -> object:
    consumer.assign([tp])
    consumer.seek_to_beginning([tp])
    return consumer.position(tp, timeout_ms)


def _commit(consumer: Consumer, tp: TopicPartition, timeout_ms: int | None) -> object:
    consumer.commit_sync({tp: 5}, timeout_ms)
    return None


def _is_final(seen: Seen) -> bool:
    return bool(seen.body().session_epoch == FINAL_EPOCH)


CALLS = (
    TimedCall("beginning_offsets", Api.LIST_OFFSETS, lambda c, tp, t: c.beginning_offsets([tp], t)),
    TimedCall("client_instance_id", Api.GET_TELEMETRY_SUBSCRIPTIONS, lambda c, _, t: c.client_instance_id(t)),
    TimedCall("close", Api.FETCH, lambda c, _, t: c.close(t), _is_final),
    TimedCall("commit_sync", Api.OFFSET_COMMIT, _commit),
    TimedCall("committed", Api.OFFSET_FETCH, lambda c, tp, t: c.committed([tp], t)),
    TimedCall("end_offsets", Api.LIST_OFFSETS, lambda c, tp, t: c.end_offsets([tp], t)),
    TimedCall("list_topics", Api.METADATA, lambda c, _, t: c.list_topics(t)),
    TimedCall("offsets_for_times", Api.LIST_OFFSETS, lambda c, tp, t: c.offsets_for_times({tp: 0}, t)),
    TimedCall("partitions_for", Api.METADATA, lambda c, tp, t: c.partitions_for(tp.topic, t)),
    TimedCall("poll", Api.FETCH, _poll),
    TimedCall("position", Api.LIST_OFFSETS, _position),
)


def warm_up(call: TimedCall, consumer: Consumer, tp: TopicPartition) -> None:
    """Connect and find leader and coordinator, so that ``call`` needs nothing but its own request."""
    consumer.beginning_offsets([tp])
    consumer.committed([tp])
    if call.name == "close":  # with a fetch session that it has to end
        consumer.assign([tp])
        consumer.seek(tp, 0)
        assert len(read(consumer, 1)) > 0


def times_out(call: TimedCall, consumer: Consumer, tp: TopicPartition, timeout_ms: int, stalls: Stalls) -> Timed:
    """Make the call, which must run out of time in its own way; what it took."""
    with stalls.timing() as took:
        if call.name == "poll":
            assert call.run(consumer, tp, timeout_ms) == []
        elif call.name == "close":
            call.run(consumer, tp, timeout_ms)
        else:
            with pytest.raises(KafkaTimeout):
                call.run(consumer, tp, timeout_ms)
    return took


def with_telemetry(_: Seen, body: Any) -> Any:
    """An ApiVersions answer (kio's) that offers GetTelemetrySubscriptions 0, as with a telemetry receiver."""
    one = body.api_keys[0]
    key = Api.GET_TELEMETRY_SUBSCRIPTIONS.value.key
    added = replace(
        one, api_key=type(one.api_key)(key), min_version=type(one.min_version)(0), max_version=type(one.max_version)(0)
    )
    return replace(body, api_keys=(*(api for api in body.api_keys if api.api_key != key), added))
