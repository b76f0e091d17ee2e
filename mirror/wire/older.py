"""What requests and responses of older versions lack, supplied here so that callers need not know versions. No I/O.

FindCoordinator before version 4 (KIP-699) and OffsetFetch before version 8 (KIP-709) have one key in a request: what a
caller put into one request is sent as several, and their responses are joined to the one that the caller expects.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from mirror.wire.api import Api
from mirror.wire.messages.base import Message
from mirror.wire.messages.fetch import ListOffsetsResponse
from mirror.wire.messages.groups import OffsetFetchRequest, OffsetFetchResponse, OffsetFetchResponseGroup
from mirror.wire.messages.metadata import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
    MetadataResponse,
)
from mirror.wire.versions import BrokerVersions

_SEVERAL_KEYS_FROM: Final = 4
_SEVERAL_GROUPS_FROM: Final = 8
_RELIABLE_EPOCHS_FROM: Final = 9


def parts(api: Api, version: int, body: Any) -> Sequence[Message]:
    """Return the bodies to send for ``body`` in ``version``: itself, or one for each of its keys."""
    each: Sequence[Message] = ()
    if api is Api.FIND_COORDINATOR and version < _SEVERAL_KEYS_FROM:
        each = [FindCoordinatorRequest(body.key_type, (), key) for key in body.coordinator_keys]
    elif api is Api.OFFSET_FETCH and version < _SEVERAL_GROUPS_FROM:
        each = [OffsetFetchRequest((), body.require_stable, one.group_id, one.topics) for one in body.groups]
    return each or (body,)


def join(sent: Sequence[Message], responses: Sequence[Any]) -> Message:
    """Return the response to the request whose :func:`parts` are ``sent``, from theirs, in the same order."""
    throttle_ms = max(response.throttle_time for response in responses)
    pairs: Any = zip(sent, responses, strict=True)
    if isinstance(sent[0], FindCoordinatorRequest):
        return FindCoordinatorResponse(
            tuple(
                Coordinator(one.key, answer.node_id, answer.host, answer.port, answer.error_code, answer.error_message)
                for one, answer in pairs
            ),
            throttle_ms,
        )
    groups = (OffsetFetchResponseGroup(one.group_id, answer.topics, answer.error_code) for one, answer in pairs)
    return OffsetFetchResponse(tuple(groups), throttle_ms)


def drop_unreliable(versions: BrokerVersions, version: int, response: Message) -> None:
    """Remove the leader epochs from a response of ``version`` that do not count.

    Brokers before Apache Kafka 2.4 may name old ones in metadata while replicas are reassigned, and refuse requests
    that then have them (``MetadataResponse.hasReliableLeaderEpochs``, KAFKA-9212). Brokers that do not say where a
    leader epoch ends, as other implementations of the protocol, cannot be asked about any.
    """
    if not isinstance(response, MetadataResponse | ListOffsetsResponse):
        return
    old = isinstance(response, MetadataResponse) and version < _RELIABLE_EPOCHS_FROM
    if old or not versions.compares_epochs:
        for topic in response.topics:
            for partition in topic.partitions:
                partition.leader_epoch = -1
