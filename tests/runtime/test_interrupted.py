"""Ctrl-C in a call: the call ends with its caller, and nothing of it is retried behind what follows."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest

from mirror.client import Admin, Consumer, Producer, TopicPartition
from mirror.wire.api import Api
from tests.cluster.test_admin_each_call import CASES
from tests.fakes import errors
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action, ServerCall
from tests.polling import eventually
from tests.runtime.test_thread import CALLS as CONSUMER_CALLS

TP = TopicPartition("orders", 0)


def interrupt(
    client: Any, call: Callable[[Any], object], monkeypatch: pytest.MonkeyPatch, when: Callable[[], object] = bool
) -> None:
    """Make the call, which Ctrl-C ends as soon as ``when()`` has returned."""

    def interrupted(*_: object) -> None:
        when()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(client.network_thread, "wait", interrupted)
        with pytest.raises(KeyboardInterrupt):
            call(client)


def nothing_goes_on(thread: Any) -> bool:
    """Whether the network thread has no event that is still to be completed."""
    return not len(thread.loop.reaper) and not thread.loop.events


ALL: dict[str, tuple[Callable[[str], Any], Callable[[Any], object]]] = {
    **{
        f"Consumer.{name}": (lambda silent: Consumer({"bootstrap.servers": silent, "group.id": "readers"}), call)
        for name, call in {
            **CONSUMER_CALLS,
            "close": lambda c: c.close(),
            "last_error": lambda c: c.last_error(TP),
            "last_responses": lambda c: c.last_responses(),
        }.items()
    },
    **{
        f"Admin.{name}": (lambda silent: Admin({"bootstrap.servers": silent}), case.call)
        for name, case in CASES.items()
    },
    "Producer.send": (lambda silent: Producer({"bootstrap.servers": silent}), lambda p: p.send("t", 0)),
}


@pytest.mark.parametrize("name", ALL)
def test_an_interrupted_call_ends(name: str, silent: str, other: Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    make, call = ALL[name]
    client = make(silent)
    if isinstance(client, Consumer):
        client.assign([TP])
    interrupt(client, call, monkeypatch)
    eventually(lambda: nothing_goes_on(other.network_thread), what="its end")
    client.close(*[0] * (not isinstance(client, Admin)))


def test_an_interrupted_transactional_call_can_be_repeated_and_ends_with_its_producer(
    silent: str, other: Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    producer = Producer({"bootstrap.servers": silent, "transactional.id": "t"})
    interrupt(producer, Producer.init_transactions, monkeypatch)
    repeated = producer.init_transactions_async()
    producer.close(0)
    assert repeated.exception(30) is not None
    eventually(lambda: nothing_goes_on(other.network_thread), what="its end")


def test_an_interrupted_commit_does_not_overwrite_a_later_one(
    cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A coordinator that is loading refuses the first one for a while, and would take a retry of it."""
    cluster.add_topic("orders")

    def loading(call: ServerCall) -> Action | None:
        offsets = [p.committed_offset for t in call.body.topics for p in t.partitions] if _is_commit(call) else []
        return (
            Action(errors={TP: errors.COORDINATOR_LOADING})
            if offsets == [100] and cluster.clock.now() < ready_ms
            else None
        )

    with Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "g"}) as consumer:
        assert consumer.committed([TP]) == {TP: None}
        ready_ms = cluster.clock.now() + 10_000
        cluster.control.add(loading)
        refused = functools.partial(eventually, lambda: cluster.calls(Api.OFFSET_COMMIT), what="its first attempt")
        interrupt(consumer, lambda c: c.commit_sync({TP: 100}), monkeypatch, refused)
        consumer.commit_sync({TP: 5})
        assert cluster.clock.now() < ready_ms, "the later commit came first"
        eventually(lambda: cluster.clock.now() > ready_ms + 2_000, what="two seconds more on the cluster's clock")
        (committed,) = consumer.committed([TP]).values()
        assert committed is not None
        assert committed.offset == 5


def _is_commit(call: ServerCall) -> bool:
    return call.api is Api.OFFSET_COMMIT
