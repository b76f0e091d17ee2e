"""The producer's face without a broker: callbacks that wait or exit, calls that are cut short, what close leaves."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from mirror.client import Admin, BufferMemory, Consumer, Producer, TopicPartition
from mirror.cluster.events import Event
from mirror.errors import (
    ClientClosed,
    InvalidArgument,
    KafkaError,
    KafkaTimeout,
    NetworkThreadDied,
    RecordTooLarge,
    WrongState,
)
from mirror.producer.batch.queue import ProducerId
from mirror.runtime.thread import NetworkThread
from mirror.wire.encode import BatchBuilder
from mirror.wire.records import Batch
from tests.client_state import memory, pending, place, unanswered
from tests.polling import eventually

AT_ONCE_S = 20.0
TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def producer(silent: str) -> Iterator[Producer]:
    """With memory for one batch, and partitions that it knows."""
    producer = Producer({"bootstrap.servers": silent, "batch.size": 1_000, "buffer.memory": 1_000})
    for tp in (TP, OTHER):
        place(producer, tp).known = True
    yield producer
    producer.close(0)


class _Run(Event):
    """Does something on the network thread, where callbacks run."""

    def __init__(self, action: Callable[[], object]) -> None:
        self._action = action
        self.outcome: Future[Any] = Future()

    def apply(self, core: object, now: int) -> None:
        del core, now
        try:
            self.outcome.set_result(self._action())
        except KafkaError as error:
            self.outcome.set_exception(error)


def _on(thread: NetworkThread, action: Callable[[], object]) -> BaseException | None:
    """What ``action`` raises in a callback, which must come at once."""
    run = _Run(action)
    began = time.monotonic()
    thread.submit(None, run)
    error = run.outcome.exception(30)
    assert time.monotonic() - began < AT_ONCE_S
    return error


def _batch(size: int = 100) -> Batch:
    builder = BatchBuilder("none", 10_000)
    builder.append(None, b"x" * size, (), 1_700_000_000_000)
    return builder.build()


def _clean(producer: Producer) -> bool:
    return memory(producer).memory.free == 1_000 and not unanswered(producer)


# --- callbacks


WAITS: dict[str, Callable[[Producer], object]] = {
    "flush": lambda producer: producer.flush(),
    "init": lambda producer: producer.init_transactions(),
    "offsets": lambda producer: producer.send_offsets_to_transaction({TP: 1}, "g"),
    "commit": lambda producer: producer.commit_transaction(),
    "abort": lambda producer: producer.abort_transaction(),
}


@pytest.mark.parametrize("name", WAITS)
def test_nobody_waits_on_the_network_thread(name: str, silent: str) -> None:
    """It would wait for itself; and it has asked nothing, so that the call can be made elsewhere."""
    with Producer({"bootstrap.servers": silent, "transactional.id": "t", "default.api.timeout.ms": 100}) as producer:
        error = _on(producer.network_thread, lambda: WAITS[name](producer))
        assert isinstance(error, WrongState)
        assert "cannot wait on the network thread" in str(error)
        assert "call init_transactions() first" in str(_raised(producer.begin_transaction, WrongState))
        assert not producer._ending


def test_nor_do_other_clients(silent: str) -> None:
    with Producer({"bootstrap.servers": silent}) as producer, Admin({"bootstrap.servers": silent}) as admin:
        consumer = Consumer({"bootstrap.servers": silent})
        assert consumer.network_thread is admin.network_thread is producer.network_thread
        for call in (admin.list_topics, consumer.list_topics, lambda: producer.send("unknown", 0)):
            assert isinstance(_on(producer.network_thread, call), WrongState)
        assert not len(pending(producer))
        consumer.close()


def test_what_need_not_wait_goes_on_there(producer: Producer) -> None:
    sent: list[Future[Any]] = []
    assert _on(producer.network_thread, lambda: sent.append(producer.send(*TP, value=b"a"))) is None
    assert _on(producer.network_thread, lambda: sent.append(producer.send(*TP, value=b"b"))) is None
    assert [future.done() for future in sent] == [False, False]
    assert isinstance(_on(producer.network_thread, lambda: producer.send(*OTHER, value=b"no room")), WrongState)
    no_time = _on(producer.network_thread, lambda: producer.send_batch(OTHER, _batch(), block=False))
    assert isinstance(no_time, KafkaTimeout), "it would not have waited"
    assert not memory(producer).memory.waiting


@pytest.mark.parametrize("last", [True, False])
def test_closing_there_does_not_wait(last: bool, silent: str) -> None:
    producer, other = Producer({"bootstrap.servers": silent}), Admin({"bootstrap.servers": silent})
    if last:
        other.close()
    sent = producer.send_batch(TP, _batch(), block=False)
    assert _on(producer.network_thread, producer.close) is None
    assert isinstance(sent.exception(30), ClientClosed)
    if last:
        eventually(lambda: not producer.network_thread.is_alive, what="the thread's end")
    else:
        assert isinstance(_raised(lambda: other.list_topics(timeout_ms=50), KafkaTimeout), KafkaTimeout)
        other.close()


def test_a_callback_that_exits_leaves_nobody_waiting(silent: str) -> None:
    """It ends the network thread: its waiting callers get the error, also those behind the next such callback."""
    producer, admin = Producer({"bootstrap.servers": silent}), Admin({"bootstrap.servers": silent})
    sent = [producer.send_batch(TopicPartition("t", number), _batch(), block=False) for number in range(6)]
    for future in sent[::2]:
        future.add_done_callback(lambda _: sys.exit("a callback's"))
    with ThreadPoolExecutor(1) as another:
        waiting = another.submit(admin.list_topics)
        eventually(lambda: len(admin.network_thread.loop.reaper), what="a call under way")
        producer.close(0)
        assert isinstance(waiting.exception(5), NetworkThreadDied)
    assert all(isinstance(future.exception(5), (ClientClosed, NetworkThreadDied)) for future in sent)
    assert "SystemExit: a callback's" in str(waiting.exception())
    admin.close()


# --- cut short


def test_a_batch_cannot_be_taken_back(producer: Producer) -> None:
    sent = producer.send_batch(TP, _batch(), block=False)
    assert not sent.cancel()
    producer.close(0)
    assert isinstance(sent.exception(0), ClientClosed)


@pytest.mark.parametrize("where", ["before", "after"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, MemoryError])
def test_a_hand_over_that_is_cut_short(
    where: str, error: type[BaseException], producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the network thread has the batch nothing is left of it; after that it is delivered like any other."""
    submit = producer.network_thread.submit
    shared: list[Future[Any] | None] = []

    def cut_short(core: Any, event: Event) -> None:
        batch = place(producer, TP).open
        if batch is not None:
            shared.append(batch.append(None, b"of another thread", (), 0))
        if where == "after":
            # Until the network thread has it.
            submit(core, event)
            eventually(lambda: producer.core.batches.busy, what="the batch in its queue")
        raise error

    for send in (lambda: producer.send(*TP, value=b""), lambda: producer.send_batch(TP, _batch())):
        with monkeypatch.context() as patch:
            patch.setattr(producer.network_thread, "submit", cut_short)
            _raised(send, error)
        if where == "after":
            break
        assert _clean(producer)
        assert place(producer, TP).open is None
    (other,) = [future for future in shared if future is not None]
    if where == "after":
        assert not other.done()
        assert len(unanswered(producer)) == 1
        producer.close(0)
        assert isinstance(other.exception(0), ClientClosed)
    else:
        assert isinstance(other.exception(0), KafkaError), "it was added to a batch that never left"
    eventually(lambda: _clean(producer), what="all the memory")


def test_memory_comes_back_when_a_batch_cannot_be_begun(producer: Producer, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(*_: object, **__: object) -> None:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr("mirror.runtime.producer.RecordAccumulation", no_memory)
        _raised(lambda: producer.send(*TP, value=b""), MemoryError)
        patch.setattr("mirror.runtime.producer.ProducerBatch", no_memory)
        _raised(lambda: producer.send_batch(TP, _batch()), MemoryError)
    assert _clean(producer)


def test_an_answer_that_comes_at_once_leaves_no_batch_behind(
    producer: Producer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the sender's thread has come back from handing it over."""
    with monkeypatch.context() as patch:
        patch.setattr(producer.network_thread, "submit", lambda _, event: event.fail(KafkaError("at once")))
        sent = producer.send(*TP, value=b"")
    assert str(sent.exception(0)) == "at once"
    assert place(producer, TP).open is None
    assert not unanswered(producer)


def test_a_batch_that_was_settled_while_it_was_filled_is_no_error(producer: Producer) -> None:
    producer.send(*TP, value=b"a")
    kept = place(producer, TP)
    batch = kept.open
    assert batch is not None
    batch.complete_all(KafkaError("it expired"))
    with pytest.raises(WrongState, match="network thread"):
        raise _on(producer.network_thread, lambda: producer.send(*TP, value=b"b")) or AssertionError("there was room")


# --- texts


def test_more_than_all_the_memory(producer: Producer) -> None:
    result = str(_raised(lambda: producer.send(*TP, value=b"x" * 2_000), RecordTooLarge))
    assert "does not fit buffer.memory (1000): raise that" in result
    assert _clean(producer)


def test_its_repr_names_it_and_reports_no_secret(silent: str) -> None:
    options = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": "wonderland",
        "client.id": "copier",
    }
    with Producer({"bootstrap.servers": f"{silent},[::1]:9092", **options}) as producer:
        assert repr(producer) == f"Producer(bootstrap.servers='{silent},[::1]:9092', client.id='copier')"
    with Producer({"bootstrap.servers": silent, "transactional.id": "t-1"}) as producer:
        assert repr(producer).endswith("client.id='mirror', transactional.id='t-1')")


def _raised(call: Callable[[], object], kind: type[BaseException]) -> BaseException:
    with pytest.raises(kind) as raised:
        call()
    return raised.value


def test_threads_that_share_a_batch_while_it_is_handed_over(silent: str) -> None:
    """Every record has an answer, whichever thread began its batch."""
    producer = Producer({"bootstrap.servers": silent})
    place(producer, TP).known = True
    sent: list[Future[Any]] = []

    def work() -> None:
        sent.extend(producer.send(*TP, value=b"x") for _ in range(5))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(sent) == 20
    producer.close(0)
    assert all(isinstance(future.exception(0), ClientClosed) for future in sent)


# --- memory in common


def test_two_producers_of_one_memory(silent: str) -> None:
    memory = BufferMemory(1_000)
    options = {"bootstrap.servers": silent, "buffer.memory": 16_384, "batch.size": 100}
    one, other = Producer(options, memory=memory), Producer(options, memory=memory)
    first = one.send_batch(TP, _batch(600), block=False)
    with pytest.raises(KafkaTimeout, match=r"buffer\.memory \(1000\)"):
        other.send_batch(OTHER, _batch(600), block=False)
    one.close(0)
    assert isinstance(first.exception(0), ClientClosed)
    assert memory.free == 1_000
    second = other.send_batch(OTHER, _batch(600), block=False)
    other.close(0)
    assert isinstance(second.exception(0), ClientClosed)
    assert memory.free == 1_000


def test_what_waits_in_a_dying_thread_is_given_back(silent: str) -> None:
    """Taken in, or still on its way there: the memory may be others', too, who go on."""
    memory = BufferMemory(10_000)
    producer = Producer({"bootstrap.servers": silent}, memory=memory)
    sent = [producer.send_batch(TP, _batch(), block=False)]
    eventually(lambda: producer.core.batches.busy, what="the batch in its queue")
    stopped, go_on = threading.Event(), threading.Event()

    def die() -> None:
        stopped.set()
        go_on.wait(60)
        raise SystemExit

    producer.network_thread.submit(None, _Run(die))
    assert stopped.wait(60)
    sent.append(producer.send_batch(OTHER, _batch(), block=False))
    go_on.set()
    assert [type(future.exception(30)) for future in sent] == [NetworkThreadDied] * 2
    eventually(lambda: memory.free == memory.size, what="all the memory")
    producer.close(0)


def test_a_memory_that_is_none(silent: str) -> None:
    with pytest.raises(InvalidArgument, match="memory must be a BufferMemory, not int"):
        Producer({"bootstrap.servers": silent}, memory=1_000_000)  # type: ignore[arg-type] # without types
    with Producer({"bootstrap.servers": silent}) as producer, pytest.raises(InvalidArgument, match="chain must be"):
        producer.send_batch(TP, _batch(), chain=True)


# --- closing without waiting


def test_closing_without_waiting(silent: str) -> None:
    """Not even for a thread that is busy; what it was to do is dropped, and the last one ends the thread."""
    producers = [Producer({"bootstrap.servers": silent, "transactional.id": f"t-{number}"}) for number in range(50)]
    thread = producers[0].network_thread
    initialized = [producer.init_transactions_async() for producer in producers]
    busy = threading.Event()
    thread.submit(None, _Run(lambda: busy.wait(60)))
    left = [producer.close_async() for producer in producers]
    assert not any(future.done() for future in left)
    _raised(producers[0].begin_transaction, ClientClosed)
    again = producers[0].close_async()
    assert again.result(0) is None
    busy.set()
    assert [future.result(30) for future in left] == [None] * 50
    assert [type(future.exception(0)) for future in initialized] == [ClientClosed] * 50
    eventually(lambda: not thread.is_alive, what="the thread's end")


def test_closing_without_waiting_after_the_threads_death(silent: str) -> None:
    producer = Producer({"bootstrap.servers": silent})
    producer.network_thread.submit(None, _Run(lambda: sys.exit("a callback's")))
    eventually(lambda: producer.network_thread.dead, what="the thread's death")
    assert producer.close_async().result(0) is None
    assert producer.network_thread.users == 0


def test_adoption_and_release_answer_the_callers_before_them_and_free_their_memory(
    producer: Producer, silent: str
) -> None:
    """Without a broker's answer: there is none. The memory is enough for one batch."""
    for chain in range(3):
        producer.adopt(TP, ProducerId(5, chain), chain)
        sent = producer.send_batch(TP, _full_batch(), chain=chain)
        if chain == 1:
            producer.release(TP)
        else:
            producer.adopt(TP, ProducerId(6, chain), 10 + chain)
        with pytest.raises(ClientClosed):
            sent.result(AT_ONCE_S)
    refused = producer.send("t", 0, value=b"x" * 800)
    with pytest.raises(ClientClosed, match="only chain 12 sends here"):
        refused.result(AT_ONCE_S)
    other = Producer({"bootstrap.servers": silent})  # the network thread goes on
    producer.close(0)
    calls: list[Callable[[], object]] = [lambda: producer.adopt(TP, ProducerId(7, 0), 30), lambda: producer.release(TP)]
    for call in calls:
        with pytest.raises(ClientClosed):
            call()
    other.close(0)


def _full_batch() -> Batch:
    builder = BatchBuilder("none", 1_000)
    builder.append(None, b"x" * 800, (), 0)
    return builder.build()
