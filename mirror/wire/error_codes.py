"""Classify the error codes of Kafka's ``Errors``: the action each requires, its exception and its text."""

from __future__ import annotations

import enum
from typing import Final

from mirror.causes import BY_ERROR
from mirror.errors import (
    AuthorizationFailed,
    BrokerError,
    Fenced,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RecordRejected,
    RecordTooLarge,
    brief,
)
from mirror.wire.kio_import import lean

with lean():
    from kio.schema.errors import ErrorCode


class ErrorAction(enum.Enum):
    """The action that an error code requires of the client."""

    __hash__ = object.__hash__  # Enum's is a Python function; actions are hashed several times per batch

    OK = "ok"
    RETRY = "retry"
    REFRESH_METADATA = "refresh metadata, then retry"
    FIND_COORDINATOR = "find the coordinator, then retry"
    NEW_SESSION = "begin a new fetch session"
    DUPLICATE = "already written: a success"
    FENCED = "a newer producer took over"
    ABORTABLE = "abort the transaction, then continue"
    FATAL = "fatal"


_CODES_BY_ACTION: Final = {
    ErrorAction.OK: (ErrorCode.none,),
    ErrorAction.REFRESH_METADATA: (
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.leader_not_available,
        ErrorCode.not_leader_or_follower,
        ErrorCode.replica_not_available,
        ErrorCode.listener_not_found,
        ErrorCode.fenced_leader_epoch,
        ErrorCode.unknown_leader_epoch,
        ErrorCode.kafka_storage_error,
        ErrorCode.offset_not_available,
        ErrorCode.not_controller,
        ErrorCode.unknown_topic_id,
        ErrorCode.inconsistent_topic_id,
    ),
    ErrorAction.FIND_COORDINATOR: (ErrorCode.coordinator_not_available, ErrorCode.not_coordinator),
    ErrorAction.RETRY: (
        ErrorCode.request_timed_out,
        ErrorCode.network_exception,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_enough_replicas,
        ErrorCode.not_enough_replicas_after_append,
        ErrorCode.concurrent_transactions,
        ErrorCode.throttling_quota_exceeded,
        ErrorCode.unstable_offset_commit,
        # Either damaged in transit: sending it again may succeed. Or in memory: see produce_responses.py.
        ErrorCode.corrupt_message,
    ),
    ErrorAction.NEW_SESSION: (
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    ),
    ErrorAction.DUPLICATE: (ErrorCode.duplicate_sequence_number,),
    ErrorAction.FENCED: (
        ErrorCode.invalid_producer_epoch,
        ErrorCode.producer_fenced,
        ErrorCode.transaction_coordinator_fenced,
    ),
    # A new producer epoch resets the state: KIP-360 where brokers lost the producer's state, KIP-890 where a partition
    # was not verified as part of the transaction.
    ErrorAction.ABORTABLE: (
        ErrorCode.invalid_txn_state,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.unknown_producer_id,
        ErrorCode.transaction_abortable,
    ),
}

_ACTIONS: Final = {int(code): action for action, codes in _CODES_BY_ACTION.items() for code in codes}

_CLASSES: Final[dict[int, type[BrokerError]]] = {
    int(ErrorCode.topic_authorization_failed): AuthorizationFailed,
    int(ErrorCode.group_authorization_failed): AuthorizationFailed,
    int(ErrorCode.cluster_authorization_failed): AuthorizationFailed,
    int(ErrorCode.transactional_id_authorization_failed): AuthorizationFailed,
    int(ErrorCode.invalid_producer_epoch): Fenced,
    int(ErrorCode.producer_fenced): Fenced,
    int(ErrorCode.out_of_order_sequence_number): OutOfOrderSequence,
    int(ErrorCode.message_too_large): RecordTooLarge,
    int(ErrorCode.record_list_too_large): RecordTooLarge,
    int(ErrorCode.invalid_record): RecordRejected,
    int(ErrorCode.invalid_timestamp): RecordRejected,
    int(ErrorCode.offset_out_of_range): OffsetOutOfRange,
}

_RESOURCES: Final = {
    int(ErrorCode.topic_authorization_failed): "topic",
    int(ErrorCode.group_authorization_failed): "group",
    int(ErrorCode.cluster_authorization_failed): "cluster",
    int(ErrorCode.transactional_id_authorization_failed): "transactional id",
}
"""The type of resource on which a permission is missing, by error code."""

_ADVICE: Final = {
    int(ErrorCode.message_too_large): "larger than the topic's max.message.bytes; raise it",
    int(ErrorCode.unknown_topic_or_partition): "the topic or partition does not exist, or was deleted",
    int(ErrorCode.invalid_transaction_timeout): (
        "transaction.timeout.ms is above the brokers' transaction.max.timeout.ms; lower the one or raise the other"
    ),
    int(ErrorCode.non_empty_group): "the group has members; stop its consumers first",
    int(ErrorCode.group_subscribed_to_topic): "a member of the group reads the topic; stop its consumers first",
    int(ErrorCode.unstable_offset_commit): "a transaction has an offset of the partition, and has not ended",
}
"""Advice for errors that the broker sent without a message."""

COORDINATOR_NOT_AVAILABLE: Final = int(ErrorCode.coordinator_not_available)
TOPIC_ALREADY_EXISTS: Final = int(ErrorCode.topic_already_exists)
MESSAGE_TOO_LARGE: Final = int(ErrorCode.message_too_large)
FETCH_SESSION_ID_NOT_FOUND: Final = int(ErrorCode.fetch_session_id_not_found)
OFFSET_OUT_OF_RANGE: Final = int(ErrorCode.offset_out_of_range)
OUT_OF_ORDER_SEQUENCE: Final = int(ErrorCode.out_of_order_sequence_number)
ILLEGAL_SASL_STATE: Final = int(ErrorCode.illegal_sasl_state)
SASL_AUTHENTICATION_FAILED: Final = int(ErrorCode.sasl_authentication_failed)
INVALID_TXN_STATE: Final = int(ErrorCode.invalid_txn_state)
INVALID_TRANSACTION_TIMEOUT: Final = int(ErrorCode.invalid_transaction_timeout)
CONCURRENT_TRANSACTIONS: Final = int(ErrorCode.concurrent_transactions)
CORRUPT_MESSAGE: Final = int(ErrorCode.corrupt_message)
TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Final = int(ErrorCode.transactional_id_authorization_failed)
REQUEST_TIMED_OUT: Final = int(ErrorCode.request_timed_out)
NOT_ENOUGH_REPLICAS: Final = int(ErrorCode.not_enough_replicas)
NETWORK_EXCEPTION: Final = int(ErrorCode.network_exception)
OPERATION_NOT_ATTEMPTED: Final = int(ErrorCode.operation_not_attempted)
NOT_ACKNOWLEDGED: Final = frozenset(
    {REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS, int(ErrorCode.not_enough_replicas_after_append)}
)
"""Errors of a Produce that the replicas did not acknowledge. With all but NOT_ENOUGH_REPLICAS, the leader has written
the batch nevertheless."""
UNKNOWN_TOPIC_OR_PARTITION: Final = int(ErrorCode.unknown_topic_or_partition)
UNKNOWN_TOPIC_ID: Final = int(ErrorCode.unknown_topic_id)
LEADER_NOT_AVAILABLE: Final = int(ErrorCode.leader_not_available)
UNSUPPORTED_SASL_MECHANISM: Final = int(ErrorCode.unsupported_sasl_mechanism)
UNSUPPORTED_VERSION: Final = int(ErrorCode.unsupported_version)
UNKNOWN_SERVER_ERROR: Final = int(ErrorCode.unknown_server_error)
UNSTABLE_OFFSET_COMMIT: Final = int(ErrorCode.unstable_offset_commit)
GROUP_ID_NOT_FOUND: Final = int(ErrorCode.group_id_not_found)
TRANSACTIONAL_ID_NOT_FOUND: Final = int(ErrorCode.transactional_id_not_found)
SECURITY_DISABLED: Final = int(ErrorCode.security_disabled)
GROUP_IN_USE: Final = frozenset(
    int(code)
    for code in (
        ErrorCode.illegal_generation,
        ErrorCode.unknown_member_id,
        ErrorCode.rebalance_in_progress,
        ErrorCode.non_empty_group,
        ErrorCode.group_subscribed_to_topic,
        ErrorCode.unstable_offset_commit,
    )
)
"""Errors of a commit or a deletion without a member, because consumers use the group, and of reading its offsets."""


_MAX_SUBJECT_CHARS: Final = 1_000
"""The most characters of the subject in an error text. A topic's name has at most 249."""


def verdict(code: int) -> ErrorAction:
    """Return the action for ``code``. A code that this client does not know is fatal."""
    return _ACTIONS.get(code, ErrorAction.FATAL)


def code_name(code: int) -> str:
    """Return the name of ``code`` (6: ``NOT_LEADER_OR_FOLLOWER``), or ``error N`` for a code that is not known."""
    try:
        return str(ErrorCode(code).name).upper()
    except ValueError:
        return f"error {code}"


def broker_error(code: int, subject: str, message: str | None = None, *, needs: str | None = None) -> BrokerError:
    """Return the exception for ``code``.

    ``subject`` names the operation and its resource, ``message`` is the broker's text. Both may come from a broker, so
    the text contains a limited part of them. ``needs`` is the ACL operation that the request requires; the text
    names it if the code says that it is missing.
    """
    text = f"{brief(subject, _MAX_SUBJECT_CHARS)}: {code_name(code)} (error {code})"
    if needs and code in _RESOURCES:
        text = f"{text}: the permission {needs} on the {_RESOURCES[code]} is missing; grant it to this client's user"
    elif message or code in _ADVICE:
        text = f"{text}: {brief(message) if message else _ADVICE[code]}"
    if code in BY_ERROR:
        text = f"{text}; {BY_ERROR[code].words}"
    return _CLASSES.get(code, BrokerError)(text, code)
