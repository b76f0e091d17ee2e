"""Fetch sessions against a broker that believes every word: what it would read is always what is wanted (KIP-227)."""

from __future__ import annotations

import uuid

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from mirror.cluster.types import TopicPartition
from mirror.consumer.sessions import FetchSession, SessionRequest, Wanted
from mirror.wire.messages.fetch import FetchPartition
from tests.examples import examples

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

Key = tuple[TopicPartition, uuid.UUID | None]


class Broker:
    """The sessions as ``FetchManager`` keeps them: id -> (next epoch, what is read).

    Partitions are known by topic and number, and by the topic's id, too, unless ``by_name`` (before Fetch 13).
    """

    def __init__(self, *, by_name: bool) -> None:
        self.by_name = by_name
        self.sessions: dict[int, tuple[int, dict[Key, FetchPartition]]] = {}
        self.next_id = 1

    def key(self, tp: TopicPartition, topic_id: uuid.UUID | None) -> Key:
        """Return what the broker knows a partition by."""
        return tp, None if self.by_name else topic_id

    def fetch(self, request: SessionRequest) -> tuple[int, int, dict[Key, FetchPartition]]:
        """(error code, session id, what is read)."""
        sent = {self.key(tp, w.topic_id): w.partition for tp, w in request.send.items()}
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
        forgotten = {self.key(tp, topic_id) for tp, topic_id in request.forget.items()}
        reading = {key: value for key, value in (reading | sent).items() if key not in forgotten}
        self.sessions[request.session_id] = (epoch + 1, reading)
        return 0, request.session_id, reading


class FetchSessions(RuleBasedStateMachine):
    """Any mixture of fetches, lost requests, lost answers and forgotten sessions."""

    by_name = False

    def __init__(self) -> None:
        super().__init__()
        self.broker = Broker(by_name=self.by_name)
        self.session = FetchSession()

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
        assert reading == {self.broker.key(tp, w.topic_id): w.partition for tp, w in wanted.items()}

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


class FetchSessionsByName(FetchSessions):
    """The same with a broker before Fetch 13."""

    by_name = True


for _machine in (FetchSessions, FetchSessionsByName):
    _machine.TestCase.settings = settings(max_examples=examples(25, 60), stateful_step_count=25, deadline=None)
test_fetch_sessions_contain_exactly_what_is_wanted = FetchSessions.TestCase
test_fetch_sessions_by_name_contain_exactly_what_is_wanted = FetchSessionsByName.TestCase


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
