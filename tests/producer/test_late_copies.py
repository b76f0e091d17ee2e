"""A copy of a request that comes late, after its transaction has ended: no part of the next one, nor an end to it."""

from __future__ import annotations

import pytest

from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.client import FakeProducer
from tests.fakes.control import Action, ServerCall
from tests.producer.site import T0, T1, TIMES, committed, expired, finish, send, transactional
from tests.producer.test_transactions import SOURCE, VERSIONS, group_offset, one_more


class Copy:
    """A request that a broker got, and handles when the test says so: its connection broke meanwhile."""

    def __init__(self, producer: FakeProducer, api: Api) -> None:
        self._cluster = producer.cluster
        self._call: ServerCall | None = None
        self._api = api
        self._cluster.control.add(self._catch)

    def _catch(self, call: ServerCall) -> Action | None:
        if call.api is not self._api or self._call is not None:
            return None
        self._call = call
        return Action(close="before")

    def arrives(self) -> None:
        assert self._call is not None
        self._cluster.handle(self._call)


_MOMENTS = ["before the abort", "after the abort", "in the next one, before its batch", "behind its batch", "at last"]


@VERSIONS
@pytest.mark.parametrize("verifies", [True, False])
@pytest.mark.parametrize("moment", _MOMENTS)
def test_late_produce_never_joins_the_next_transaction(version: int, verifies: bool, moment: str) -> None:
    """Brokers that do not verify take it under the old epoch, also into a transaction that is not its own."""
    producer = transactional(version, **TIMES)
    cluster = producer.cluster
    cluster.verifies = verifies or version == 2
    one_more(producer, b"first", 1)
    late = Copy(producer, Api.PRODUCE)
    refusal = cluster.control.on(Api.PRODUCE, Action(errors={T0: errors.NOT_ENOUGH_REPLICAS}), times=None)
    producer.begin()
    expired(producer, send(producer, b"late"))
    refusal.errors = {}
    if moment == "before the abort":
        late.arrives()
    producer.finish(producer.abort())
    if moment == "after the abort":
        producer.run_for(100)
        late.arrives()
    producer.begin()
    if moment == "in the next one, before its batch":
        producer.send(T1, b"other")
        producer.run_for(100)
        late.arrives()
    finish(producer, producer.send(T0, b"next"))
    if moment == "behind its batch":
        late.arrives()
    producer.finish(producer.commit())
    producer.run_for(100)
    if moment == "at last":
        late.arrives()
    assert committed(cluster) == [b"first", b"next"]
    for partition in range(2):
        assert not cluster.log("t", partition).open_transactions, "nothing hangs"


@VERSIONS
@pytest.mark.parametrize("commit", [True, False])
def test_a_late_end_never_ends_the_next_transaction(version: int, commit: bool) -> None:
    """Of two requests to end one transaction, the first may come when the next one has only half of its records."""
    producer = transactional(version, **TIMES)
    cluster = producer.cluster
    late = Copy(producer, Api.END_TXN)
    producer.begin()
    finish(producer, producer.send(T0, b"first"))
    producer.finish(producer.commit() if commit else producer.abort())
    producer.begin()
    finish(producer, producer.send(T0, b"next"))
    late.arrives()
    finish(producer, producer.send(T0, b"last"))
    producer.finish(producer.commit())
    producer.run_for(100)
    assert committed(cluster) == [b"first"] * commit + [b"next", b"last"]
    markers = [one for one in cluster.log("t").batches() if one.is_control]
    assert len(markers) == 2, "each transaction has ended once"


@VERSIONS
@pytest.mark.parametrize("commit", [True, False])
def test_a_late_offset_commit_never_joins_the_next_transaction(version: int, commit: bool) -> None:
    """It has no sequence that would distinguish it from one of the next transaction: that one gets another epoch."""
    producer = transactional(version, **TIMES)
    cluster = producer.cluster
    late = Copy(producer, Api.TXN_OFFSET_COMMIT)
    producer.begin()
    offsets = producer.add_offsets("group", {SOURCE: 1})
    if commit:
        producer.finish(producer.commit())
        assert offsets.exception(0) is None
    else:
        cluster.control.on(Api.TXN_OFFSET_COMMIT, Action(silent=True))
        producer.run_for(500)
        producer.finish(producer.abort())
    producer.begin()
    producer.add_offsets("group", {SOURCE: 2})
    producer.run_for(500)
    late.arrives()
    producer.finish(producer.commit())
    producer.run_for(100)
    assert group_offset(cluster) == 2
    late.arrives()
    one_more(producer, b"next", 3)
    assert group_offset(cluster) == 3
