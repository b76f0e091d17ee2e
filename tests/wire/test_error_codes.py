"""Every error code has a verdict, an exception and a name."""

from __future__ import annotations

import pytest
from kio.schema.errors import ErrorCode

from mirror.causes import BY_ERROR
from mirror.errors import (
    AuthorizationFailed,
    BrokerError,
    Fenced,
    OffsetOutOfRange,
    OutOfOrderSequence,
    RecordRejected,
    RecordTooLarge,
)
from mirror.wire import error_codes as verdicts
from mirror.wire.error_codes import ErrorAction, broker_error, code_name, verdict

_ACTIONS_IN_KAFKA = {
    "unknown_topic_or_partition": ErrorAction.REFRESH_METADATA,
    "leader_not_available": ErrorAction.REFRESH_METADATA,
    "not_leader_or_follower": ErrorAction.REFRESH_METADATA,
    "fenced_leader_epoch": ErrorAction.REFRESH_METADATA,
    "unknown_leader_epoch": ErrorAction.REFRESH_METADATA,
    "unknown_topic_id": ErrorAction.REFRESH_METADATA,
    "kafka_storage_error": ErrorAction.REFRESH_METADATA,
    "request_timed_out": ErrorAction.RETRY,
    "not_enough_replicas": ErrorAction.RETRY,
    "not_enough_replicas_after_append": ErrorAction.RETRY,
    "coordinator_load_in_progress": ErrorAction.RETRY,
    "unstable_offset_commit": ErrorAction.RETRY,
    "concurrent_transactions": ErrorAction.RETRY,
    "throttling_quota_exceeded": ErrorAction.RETRY,
    "coordinator_not_available": ErrorAction.FIND_COORDINATOR,
    "not_coordinator": ErrorAction.FIND_COORDINATOR,
    "duplicate_sequence_number": ErrorAction.DUPLICATE,
    "producer_fenced": ErrorAction.FENCED,
    "invalid_producer_epoch": ErrorAction.FENCED,
    "invalid_txn_state": ErrorAction.ABORTABLE,
    "invalid_producer_id_mapping": ErrorAction.ABORTABLE,
    "unknown_producer_id": ErrorAction.ABORTABLE,
    "transaction_abortable": ErrorAction.ABORTABLE,
    "none": ErrorAction.OK,
}
_FATAL = [
    "offset_out_of_range",
    "message_too_large",
    "out_of_order_sequence_number",
    "topic_authorization_failed",
    "invalid_record",
    "unsupported_version",
    "unknown_server_error",
    "invalid_transaction_timeout",
    "transactional_id_authorization_failed",
]


@pytest.mark.parametrize("code", list(ErrorCode), ids=lambda code: code.name)
def test_every_code_has_a_verdict_a_name_and_an_exception(code: ErrorCode) -> None:
    assert isinstance(verdict(int(code)), ErrorAction)
    assert code_name(int(code)) == code.name.upper()
    error = broker_error(int(code), "writing to t-0", "the broker's words")
    assert error.code == int(code)
    assert str(error) == f"writing to t-0: {code.name.upper()} (error {int(code)}): the broker's words" + (
        f"; {BY_ERROR[int(code)].words}" if int(code) in BY_ERROR else ""
    )


@pytest.mark.parametrize(("name", "wanted"), _ACTIONS_IN_KAFKA.items())
def test_actions_follow_kafkas_errors(name: str, wanted: ErrorAction) -> None:
    assert verdict(int(ErrorCode[name])) is wanted


@pytest.mark.parametrize("name", _FATAL)
def test_what_a_retry_cannot_help_is_fatal(name: str) -> None:
    assert verdict(int(ErrorCode[name])) is ErrorAction.FATAL


def test_a_code_that_nobody_knows_is_fatal_and_shown_as_its_number() -> None:
    assert verdict(12_345) is ErrorAction.FATAL
    assert code_name(12_345) == "error 12345"


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("topic_authorization_failed", AuthorizationFailed),
        ("group_authorization_failed", AuthorizationFailed),
        ("cluster_authorization_failed", AuthorizationFailed),
        ("producer_fenced", Fenced),
        ("invalid_producer_epoch", Fenced),
        ("out_of_order_sequence_number", OutOfOrderSequence),
        ("message_too_large", RecordTooLarge),
        ("invalid_timestamp", RecordRejected),
        ("offset_out_of_range", OffsetOutOfRange),
        ("unknown_server_error", BrokerError),
    ],
)
def test_codes_have_the_exceptions_of_the_tree(name: str, wanted: type[BrokerError]) -> None:
    assert type(broker_error(int(ErrorCode[name]), "about")) is wanted


def test_a_transaction_timeout_above_the_brokers_is_explained() -> None:
    text = str(broker_error(verdicts.INVALID_TRANSACTION_TIMEOUT, "getting a producer id"))
    assert text.endswith(
        "(error 50): transaction.timeout.ms is above the brokers' transaction.max.timeout.ms; "
        "lower the one or raise the other"
    )


def test_what_a_broker_says_is_repeated_in_part() -> None:
    """A text of millions of characters would be kept, logged, and printed again with each attempt."""
    text = str(broker_error(42, "topic 'x'", "A\n" * 10_000_000))
    assert text.startswith("topic 'x': INVALID_REQUEST (error 42): A A A")
    assert len(text) < 1_000


def test_names_in_an_error_are_as_long_as_names_may_be() -> None:
    """A group's or transactional id's name may have 32,767 bytes; what follows it is to be seen all the same."""
    text = str(broker_error(30, f"group {'g' * 30_000!r}", needs="Read"))
    assert text.endswith("the permission Read on the group is missing; grant it to this client's user")
    assert len(text) < 2_000
    assert f"topic {'t' * 249!r}" in str(broker_error(3, f"topic {'t' * 249!r}"))
