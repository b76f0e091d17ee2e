"""Every request of a transaction, answered with every kind of code, or not at all (KIP-360, KIP-890).

Whatever can be retried ends in a commit of everything, once. What asks for an abort ends in one, after which the
producer goes on. A fatal error is raised, and ends the producer.
"""

from __future__ import annotations

import pytest

from mirror.errors import AuthorizationFailed, BrokerError, ConfigError, Fenced, KafkaTimeout, NeedsAbort
from mirror.producer.txn.steps import TransactionState
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action
from tests.producer.site import T0, T1, committed, failure
from tests.producer.test_transactions import SOURCE, group_offset, one_more

_EXPLICIT = [Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN]
_BOTH = [Api.PRODUCE, Api.TXN_OFFSET_COMMIT, Api.END_TXN]
_IN_IT = [(1, api) for api in (*_EXPLICIT, *_BOTH)] + [(2, api) for api in _BOTH]
"""The requests in a transaction, under each version."""
_ALL = [*_IN_IT, (1, Api.INIT_PRODUCER_ID), (2, Api.INIT_PRODUCER_ID)]
_REQUESTS = pytest.mark.parametrize(("version", "api"), _ALL, ids=lambda one: getattr(one, "name", one))


def _producer(version: int) -> FakeProducer:
    cluster = FakeCluster(2)
    cluster.add_topic("t", 2)
    cluster.features["transaction.version"] = version
    cluster.coordinators |= {"x": 1, "group": 1}
    return FakeProducer(cluster, **{"transactional.id": "x", "delivery.timeout.ms": 6_000, "request.timeout.ms": 2_000})


def _answer(api: Api, code: int, *, handled: bool = False) -> Action:
    """``code`` as the answer to a request of ``api``, for its first partition where it has partitions."""
    return Action(errors={T0: code} if api is Api.PRODUCE else {api.label: code}, handled=handled)


def _all_of_it(producer: FakeProducer) -> None:
    producer.init()
    one_more(producer, b"first", 1)
    one_more(producer, b"second", 2)
    for partition in range(2):
        assert committed(producer.cluster, partition) == [b"first", b"second"]
    assert group_offset(producer.cluster) == 2
    assert producer.taken == producer.released


_RETRIED = [
    errors.REQUEST_TIMED_OUT,
    errors.COORDINATOR_LOADING,
    errors.COORDINATOR_NOT_AVAILABLE,
    errors.NOT_COORDINATOR,
    errors.CONCURRENT_TRANSACTIONS,
]
_RETRIED_PRODUCE = [errors.NOT_ENOUGH_REPLICAS, errors.NOT_LEADER, errors.UNKNOWN_TOPIC_OR_PARTITION]


@_REQUESTS
@pytest.mark.parametrize("code", _RETRIED)
@pytest.mark.parametrize("handled", [False, True])
def test_retriable_codes_end_in_a_commit(version: int, api: Api, code: int, handled: bool) -> None:
    """Also where it was done all the same: a coordinator whose log's replicas were late says 15, or 16."""
    producer = _producer(version)
    for _ in range(3):
        producer.cluster.control.on(api, _answer(api, code, handled=handled))
    _all_of_it(producer)


def test_step_that_is_retried_is_pending_with_its_last_error() -> None:
    producer = _producer(2)
    assert producer.core.pending_step[0] is None
    refusal = _answer(Api.INIT_PRODUCER_ID, errors.CONCURRENT_TRANSACTIONS)
    producer.cluster.control.on(Api.INIT_PRODUCER_ID, refusal, times=None)
    assert isinstance(failure(producer, producer.init_async(500)), KafkaTimeout)
    step, why = producer.core.pending_step
    assert step == "fencing older producers"
    assert "CONCURRENT_TRANSACTIONS" in str(why)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("code", _RETRIED_PRODUCE)
def test_retriable_codes_of_a_produce_end_in_a_commit(version: int, code: int) -> None:
    producer = _producer(version)
    producer.cluster.control.on(Api.PRODUCE, _answer(Api.PRODUCE, code), times=3)
    _all_of_it(producer)


@_REQUESTS
@pytest.mark.parametrize(
    "lost",
    [{"close": "before"}, {"close": "after"}, {"silent": True}, {"half": "close"}, {"half": "silent"}],
    ids=lambda lost: "-".join(f"{key}-{value}" for key, value in lost.items()),
)
def test_lost_before_or_after_it_was_handled_it_ends_in_a_commit(
    version: int, api: Api, lost: dict[str, object]
) -> None:
    producer = _producer(version)
    for _ in range(2):
        producer.cluster.control.on(api, Action(**lost))  # type: ignore[arg-type]
    _all_of_it(producer)


_NOT_OURS = (2, Api.END_TXN, errors.INVALID_TXN_STATE)
"""Under version 2 the response to a commit of a transaction that a newer producer has aborted."""
_ABORTABLE = [errors.INVALID_TXN_STATE, errors.INVALID_PRODUCER_ID_MAPPING, 59, 120]


@pytest.mark.parametrize(
    ("version", "api", "code"),
    [(*one, code) for one in _IN_IT for code in _ABORTABLE if (*one, code) != _NOT_OURS],
    ids=lambda one: getattr(one, "name", one),
)
def test_abortable_codes_end_in_an_abort_and_the_next_transaction_commits(version: int, api: Api, code: int) -> None:
    producer = _producer(version)
    producer.init()
    one_more(producer, b"first", 1)
    producer.cluster.control.on(api, _answer(api, code))
    producer.begin()
    for tp in (T0, T1):
        producer.send(tp, b"hidden")
    producer.add_offsets("group", {SOURCE: 2})
    error = failure(producer, producer.commit())
    assert isinstance(error, NeedsAbort)
    assert isinstance(error.__cause__, BrokerError)
    assert error.__cause__.code == code
    producer.finish(producer.abort())
    one_more(producer, b"third", 3)
    for partition in range(2):
        assert committed(producer.cluster, partition) == [b"first", b"third"]
    assert group_offset(producer.cluster) == 3
    assert producer.taken == producer.released


_FATAL = [
    (errors.INVALID_PRODUCER_EPOCH, Fenced),
    (errors.PRODUCER_FENCED, Fenced),
    (errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, AuthorizationFailed),
    (errors.UNKNOWN_SERVER_ERROR, BrokerError),
]


@pytest.mark.parametrize(
    ("version", "api", "code", "kind"),
    [
        (*one, *fatal)
        for one in _IN_IT
        for fatal in _FATAL
        if one[1] is not Api.PRODUCE and (one[1], fatal[0]) != (Api.END_TXN, errors.UNKNOWN_SERVER_ERROR)
    ]
    + [(*_NOT_OURS, Fenced)],
    ids=lambda one: getattr(one, "name", getattr(one, "__name__", one)),
)
def test_fatal_codes_end_the_producer(version: int, api: Api, code: int, kind: type[BrokerError]) -> None:
    producer = _producer(version)
    producer.init()
    producer.cluster.control.on(api, _answer(api, code))
    producer.begin()
    producer.send(T0, b"hidden")
    offsets = producer.add_offsets("group", {SOURCE: 2})
    error = failure(producer, producer.commit())
    assert type(error) is kind
    assert error.code == code
    assert offsets.done()
    assert producer.core.transactions.state is TransactionState.FATAL_ERROR
    for ask in (producer.init_async, producer.commit, producer.abort):
        again = failure(producer, ask())
        assert type(again) is kind
    assert type(failure(producer, producer.send(T0))) is kind
    producer.run_for(20_000)
    assert committed(producer.cluster) == []
    assert producer.taken == producer.released


@pytest.mark.parametrize("version", [1, 2])
def test_a_refused_record_aborts_the_transaction_only(version: int) -> None:
    producer = _producer(version)
    producer.init()
    producer.cluster.control.on(Api.PRODUCE, _answer(Api.PRODUCE, errors.INVALID_RECORD))
    producer.begin()
    producer.send(T0, b"refused")
    assert isinstance(failure(producer, producer.commit()), NeedsAbort)
    producer.finish(producer.abort())
    one_more(producer, b"fine", 1)
    assert committed(producer.cluster) == [b"fine"]


# --- permissions, and what brokers do not allow


@pytest.mark.parametrize(
    ("version", "api", "code", "needed"),
    [
        (1, Api.ADD_PARTITIONS_TO_TXN, errors.TOPIC_AUTHORIZATION_FAILED, "Write on the topic"),
        (1, Api.ADD_OFFSETS_TO_TXN, errors.GROUP_AUTHORIZATION_FAILED, "Read on the group"),
        (1, Api.TXN_OFFSET_COMMIT, errors.GROUP_AUTHORIZATION_FAILED, "Read on the group"),
        (2, Api.TXN_OFFSET_COMMIT, errors.GROUP_AUTHORIZATION_FAILED, "Read on the group"),
        (1, Api.PRODUCE, errors.TOPIC_AUTHORIZATION_FAILED, "Write on the topic"),
        (2, Api.PRODUCE, errors.TOPIC_AUTHORIZATION_FAILED, "Write on the topic"),
    ],
)
def test_a_missing_permission_is_named_and_ends_the_transaction_only(
    version: int, api: Api, code: int, needed: str
) -> None:
    producer = _producer(version)
    producer.init()
    producer.cluster.control.on(api, _answer(api, code))
    producer.begin()
    producer.send(T0, b"hidden")
    producer.add_offsets("group", {SOURCE: 1})
    error = failure(producer, producer.commit())
    assert isinstance(error, NeedsAbort)
    assert isinstance(error.__cause__, AuthorizationFailed)
    assert f"the permission {needed} is missing" in str(error.__cause__)
    producer.finish(producer.abort())
    one_more(producer, b"allowed", 2)
    assert committed(producer.cluster) == [b"allowed"]


def test_a_transactional_id_that_is_not_ours_to_use_is_named() -> None:
    producer = _producer(1)
    code = errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    producer.cluster.control.on(Api.INIT_PRODUCER_ID, _answer(Api.INIT_PRODUCER_ID, code))
    error = failure(producer, producer.init_async())
    assert isinstance(error, AuthorizationFailed)
    assert "of 'x'" in str(error)
    assert "the permission Write on the transactional id is missing" in str(error)


def test_a_timeout_that_brokers_do_not_allow_is_a_wrong_configuration() -> None:
    cluster = FakeCluster()
    cluster.add_topic("t", 2)
    options = {"transactional.id": "x", "transaction.timeout.ms": 10_000_000}
    producer = FakeProducer(cluster, **options)
    future = producer.init_async()
    producer.run_until(future.done)
    error = future.exception(0)
    assert isinstance(error, ConfigError)
    assert "transaction.timeout.ms = 10000000" in str(error)
    assert "transaction.max.timeout.ms" in str(error)
