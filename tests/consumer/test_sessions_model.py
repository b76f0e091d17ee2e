"""Fetch sessions against a broker that believes every word: what it would read is always what is wanted (KIP-227)."""

from __future__ import annotations

import uuid

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from mirror.cluster.types import TopicPartition
from mirror.consumer.sessions import FetchSession, SessionRequest, Wanted
from mirror.wire.messages.fetch import FetchPartition

TPS = [TopicPartition(topic, partition) for topic in ("a", "b") for partition in range(2)]
IDS = {tp.topic: [uuid.UUID(int=n + 10 * ord(tp.topic[0])) for n in range(2)] for tp in TPS}

wanted_sets = st.dictionaries(
    st.sampled_from(TPS), st.tuples(st.integers(0, 3), st.integers(0, 1)), max_size=len(TPS)
).map(
    lambda chosen: {
        tp: Wanted(IDS[tp.topic][which], FetchPartition(tp.partition, offset, 1000))
        for tp, (offset, which) in chosen.items()
    }
)


class Broker:
    """The sessions as ``FetchManager`` keeps them: id -> (next epoch, what is read), by topic id and partition."""

    def __init__(self) -> None:
        self.sessions: dict[int, tuple[int, dict[tuple[uuid.UUID | None, int], FetchPartition]]] = {}
        self.next_id = 1

    def fetch(self, request: SessionRequest) -> tuple[int, int, dict[tuple[uuid.UUID | None, int], FetchPartition]]:
        """(error code, session id, what is read)."""
        sent = {(w.topic_id, w.partition.partition): w.partition for w in request.send.values()}
        if request.epoch == 0:
            self.sessions.pop(request.session_id, None)
            self.sessions[self.next_id] = (1, sent)
            self.next_id += 1
            return 0, self.next_id - 1, sent
        if request.session_id not in self.sessions:
            return 70, 0, {}
        epoch, reading = self.sessions[request.session_id]
        if epoch != request.epoch:
            return 71, 0, {}
        forgotten = {(topic_id, tp.partition) for tp, topic_id in request.forget.items()}
        reading = {key: value for key, value in reading.items() if key not in forgotten} | sent
        self.sessions[request.session_id] = (epoch + 1, reading)
        return 0, request.session_id, reading


class FetchSessions(RuleBasedStateMachine):
    """Any mixture of fetches, lost requests, lost answers and forgotten sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker()
        self.session = FetchSession()
        self.asked = 0

    @rule(wanted=wanted_sets)
    def fetch(self, wanted: dict[TopicPartition, Wanted]) -> None:
        request = self.session.next_request(wanted)
        error, session_id, reading = self.broker.fetch(request)
        if error:
            self.session.failed(forgotten=error == 70)
            # One full fetch later all is well again.
            request = self.session.next_request(wanted)
            error, session_id, reading = self.broker.fetch(request)
        assert error == 0
        self.session.answered(session_id)
        assert reading == {(w.topic_id, w.partition.partition): w.partition for w in wanted.values()}

    @rule(wanted=wanted_sets)
    def request_is_lost(self, wanted: dict[TopicPartition, Wanted]) -> None:
        self.session.next_request(wanted)
        self.session.failed()

    @rule(wanted=wanted_sets)
    def answer_is_lost(self, wanted: dict[TopicPartition, Wanted]) -> None:
        self.broker.fetch(self.session.next_request(wanted))
        self.session.failed()

    @precondition(lambda self: self.broker.sessions)
    @rule(data=st.data())
    def broker_evicts(self, data: st.DataObject) -> None:
        del self.broker.sessions[data.draw(st.sampled_from(sorted(self.broker.sessions)))]

    @precondition(lambda self: self.session.epoch == 0)
    @rule(wanted=wanted_sets)
    def broker_keeps_no_session(self, wanted: dict[TopicPartition, Wanted]) -> None:
        self.session.next_request(wanted)
        self.session.answered(0)
        assert not self.session.open


FetchSessions.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
test_fetch_sessions_tell_the_broker_exactly_what_is_wanted = FetchSessions.TestCase


def test_the_epoch_wraps_to_one() -> None:
    session = FetchSession(session_id=7, epoch=2**31 - 1)
    session.answered(7)
    assert session.epoch == 1


def test_an_unchanged_fetch_says_nothing() -> None:
    session = FetchSession()
    wanted = {TPS[0]: Wanted(None, FetchPartition(0, 5, 1000))}
    session.next_request(wanted)
    session.answered(3)
    assert session.next_request(wanted) == SessionRequest(3, 1, {}, {})
