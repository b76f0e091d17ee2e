"""Applications with transactions under any mixture of faults, against what readers may see in the end.

Of a committed transaction everything is seen, once and in order, its offsets too; of an aborted one nothing; of one
whose commit was never answered all or nothing. An attempt that is fenced has a newer one of its id, and changes
nothing any more. Every call and every batch is answered in time, nothing is left open, and when the faults are over
all goes on.
"""

from __future__ import annotations

import enum

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from mirror.cluster.types import TopicPartition
from mirror.errors import Fenced, KafkaError
from mirror.producer.batch.queue import ProducerId
from mirror.wire.api import Api
from tests.examples import examples
from tests.fakes import errors
from tests.fakes.client import FakeClient, FakeProducer
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action, ServerCall
from tests.fakes.record_batches import values_of
from tests.producer.applications import MOST, Application, Outcome, Phase, Txn
from tests.producer.faults import (
    LOST,
    NODES,
    PARTITIONS,
    PRODUCE,
    REFUSED_FOR_LONG,
    TOPIC,
    Fault,
    Knobs,
    action,
    fault,
    for_a_while,
)

_DELIVERY_MS, _REQUEST_MS = 6_000, 2_000
_TIMES = {"request.timeout.ms": _REQUEST_MS, "socket.connection.setup.timeout.ms": 1_000}
_NAMES = ["a", "b"]
_MOST_APPS = 5
_ADDS = [Api.ADD_PARTITIONS_TO_TXN, Api.ADD_OFFSETS_TO_TXN]
_COORDINATORS = [Api.INIT_PRODUCER_ID, *_ADDS, Api.TXN_OFFSET_COMMIT, Api.END_TXN]
_NOT_DONE = [errors.COORDINATOR_LOADING, errors.NOT_COORDINATOR, errors.CONCURRENT_TRANSACTIONS]
_PERHAPS_DONE = [errors.COORDINATOR_NOT_AVAILABLE, errors.NOT_COORDINATOR]
"""What a coordinator says when its log's replicas did not confirm what it wrote, or it lost its place meanwhile."""


class What(enum.Enum):
    """What an application does next, if it is not waiting; whatever needs a transaction begins one."""

    ALL = "records, offsets and a commit"
    SEND = "records"
    OFFSETS = "offsets"
    COMMIT = "a commit"
    ABORT = "an abort"
    NOTHING = "nothing"


Doing = tuple[int, What, int, int]
"""Which application does what, with how many batches for each partition, and within how many ms."""
_DOINGS = st.tuples(
    st.integers(0, _MOST_APPS - 1),
    st.sampled_from([What.ALL, *What]),
    st.sampled_from([1, 2, 5]),
    st.sampled_from([60_000, 60_000, 700, 0]),
)
_MS = st.sampled_from([1, 10, 90, 250, 1_000, 4_000, 9_000])
_partitions = st.integers(0, PARTITIONS - 1)
_nodes = st.integers(1, NODES)
_in_ms = st.sampled_from([0, 1, 50, 500, 3_000])
_few = st.integers(1, 2)
_apis = st.sampled_from([*_COORDINATORS, Api.FIND_COORDINATOR, Api.METADATA])
_FAULTS: st.SearchStrategy[Fault] = st.one_of(
    fault("start", name=st.sampled_from(_NAMES)),
    fault("leader_moves", partition=_partitions, node=_nodes, later=_in_ms),
    fault("coordinator_moves", key=st.sampled_from([*_NAMES, "group-a", "group-b"]), node=_nodes, later=_in_ms),
    fault("connections_break", node=_nodes, later=_in_ms),
    fault("broker_restarts", node=_nodes, ms=st.sampled_from([1, 300, 3_000, 9_000])),
    fault("requests_fare_badly", api=st.just(Api.PRODUCE), knobs=PRODUCE, times=_few),
    fault("requests_fare_badly", api=_apis, knobs=LOST, times=_few),
    fault("produce_is_refused_for_a_while", knobs=REFUSED_FOR_LONG, ms=st.sampled_from([1_000, _DELIVERY_MS + 1_000])),
    fault("a_coordinator_refuses", api=st.sampled_from(_COORDINATORS), code=st.sampled_from(_NOT_DONE), times=_few),
    fault(
        "a_coordinator_does_it_and_says_otherwise",
        api=st.sampled_from(_COORDINATORS),
        code=st.sampled_from(_PERHAPS_DONE),
    ),
    fault("a_coordinator_wants_an_abort", api=st.sampled_from(_COORDINATORS[1:])),
    fault("what_was_sent_on_broken_connections_comes_late", ms=st.sampled_from([None, 0, 10, 700, 5_000, 15_000])),
)


class RememberingCluster(FakeCluster):
    """``seen_offsets``: what has become a group's committed offset, in order."""

    def __init__(self, brokers: int) -> None:
        super().__init__(brokers)
        self.seen_offsets: dict[str, list[int]] = {}

    def end_group_transaction(self, group: str, producer_id: int, epoch: int, *, commit: bool) -> None:
        offsets = self.group_transactions[group].pending.get(producer_id, {})
        if commit:
            self.seen_offsets.setdefault(group, []).extend(one.offset for one in offsets.values())
        super().end_group_transaction(group, producer_id, epoch, commit=commit)


class TransactionsModel(RuleBasedStateMachine):
    """All in one loop, as in one process; those that were fenced go on trying beside the newer ones."""

    @initialize(
        version=st.integers(1, 2),
        verifies=st.booleans(),
        marker_ms=st.sampled_from([0, 30, 700]),
        in_flight=st.integers(1, 5),
        timeout_ms=st.sampled_from([_DELIVERY_MS + _REQUEST_MS, 600_000]),
    )
    def begin(self, version: int, verifies: bool, marker_ms: int, in_flight: int, timeout_ms: int) -> None:
        self.cluster = RememberingCluster(NODES)
        self.cluster.add_topic(TOPIC, PARTITIONS)
        self.cluster.features["transaction.version"] = version
        self.cluster.verifies, self.cluster.marker_ms = verifies or version > 1, marker_ms
        self.options = {
            "max.in.flight.requests.per.connection": in_flight,
            "delivery.timeout.ms": _DELIVERY_MS,
            "transaction.timeout.ms": timeout_ms,
            **_TIMES,
        }
        self.client = FakeClient(self.cluster, **_TIMES)
        self.apps: list[Application] = []
        self.start("a")
        self.time_passes(100)

    # --- what happens

    @rule(faults=st.lists(_FAULTS, max_size=2), doings=st.lists(_DOINGS, min_size=1, max_size=4), ms=_MS)
    def faults_and_load(self, faults: list[Fault], doings: list[Doing], ms: int) -> None:
        for name, arguments in faults:
            getattr(self, name)(**arguments)
        for number, what, size, timeout_ms in doings:
            app = self.apps[number % len(self.apps)]
            if app.phase is Phase.READY and what is not What.NOTHING:
                app.begin()
            if app.phase is Phase.OPEN:
                self._do(app, what, size, timeout_ms)
        self.time_passes(ms)

    def _do(self, app: Application, what: What, size: int, timeout_ms: int) -> None:
        if what in {What.SEND, What.ALL}:
            for tp in (TopicPartition(TOPIC, partition) for partition in range(PARTITIONS)):
                for _ in range(size):
                    app.send(tp, 1 + size % 2)
        if what in {What.OFFSETS, What.ALL}:
            app.add_offsets(timeout_ms)
        if what in {What.COMMIT, What.ALL}:
            app.commit(timeout_ms)
        elif what is What.ABORT:
            app.abort(timeout_ms)

    @rule(ms=_MS)
    def time_passes(self, ms: int) -> None:
        until = self.client.now + ms
        while True:
            self.client.run_until(lambda: self._news() or self.client.now >= until, within_ms=ms + 1)
            for app in self.apps:
                app.look()
            if self.client.now >= until:
                return

    def _news(self) -> bool:
        return any(app.has_news for app in self.apps)

    # --- faults, by name

    def start(self, name: str) -> None:
        """Another application, which fences those of the same name."""
        if len(self.apps) < _MOST_APPS:
            options = {**self.options, "transactional.id": name}
            self.apps.append(Application(FakeProducer(self.cluster, self.client, **options), name, len(self.apps)))

    def leader_moves(self, partition: int, node: int, later: int) -> None:
        self.cluster.after(later, lambda: self.cluster.move(TOPIC, partition, node))

    def coordinator_moves(self, key: str, node: int, later: int) -> None:
        self.cluster.after(later, lambda: self.cluster.coordinators.update({key: node}))

    def connections_break(self, node: int, later: int) -> None:
        self.cluster.after(later, lambda: self.cluster.disconnect(node))

    def broker_restarts(self, node: int, ms: int) -> None:
        self.cluster.kill(node)
        self.cluster.after(ms, lambda: self.cluster.start(node))

    def requests_fare_badly(self, api: Api, knobs: Knobs, times: int) -> None:
        for _ in range(times):
            self.cluster.control.on(api, action(knobs))

    def produce_is_refused_for_a_while(self, knobs: Knobs, ms: int) -> None:
        for_a_while(self.cluster, Api.PRODUCE, knobs, ms)

    def a_coordinator_refuses(self, api: Api, code: int, times: int) -> None:
        for _ in range(times):
            self.cluster.control.on(api, action({"errors": {api.label: code}}))

    def a_coordinator_does_it_and_says_otherwise(self, api: Api, code: int) -> None:
        self.cluster.control.on(api, action({"errors": {api.label: code}, "handled": True}))

    def a_coordinator_wants_an_abort(self, api: Api) -> None:
        left = 1

        def refuse_once(call: ServerCall) -> Action | None:
            nonlocal left
            if call.api is not api or not left or not getattr(call.body, "committed", True):
                return None
            left = 0
            return Action(errors={api.label: errors.TRANSACTION_ABORTABLE})

        self.cluster.control.add(refuse_once)

    def what_was_sent_on_broken_connections_comes_late(self, ms: int | None) -> None:
        self.cluster.works_off_ms = ms

    # --- what must hold

    @invariant()
    def every_batch_is_answered_in_time(self) -> None:
        for app in getattr(self, "apps", ()):
            for future, created_ms in app.created_ms.items():
                result = app.producer.answered_ms.get(future, self.client.now)
                assert result <= created_ms + _DELIVERY_MS

    @invariant()
    def whoever_is_fenced_has_a_successor(self) -> None:
        for app in getattr(self, "apps", ()):
            reported_unknown = isinstance(app.died_of, KafkaError) and app.died_of.may_have_been_written
            if app.died_of is not None and not reported_unknown:
                newer = any(self._follows(other, app) for other in self.apps)
                assert isinstance(app.died_of, Fenced), app.died_of
                # Where it is not known whether the coordinator had the transaction, its time-out looks like fencing.
                may_expire = self.options["transaction.timeout.ms"] < 600_000
                assert newer or may_expire or self._fenced_itself(app), app.died_of

    def _fenced_itself(self, app: Application) -> bool:
        """A late copy of a request that was sent again meanwhile: no client can be safe from its own."""
        late = {(call.api, getattr(call.body, "transactional_id", None)) for call in self.cluster.worked_off}
        return any((api, app.name) in late for api in (Api.INIT_PRODUCER_ID, *_ADDS))

    @staticmethod
    def _follows(one: Application, other: Application) -> bool:
        """Whether ``one`` was initialized after ``other``, or may have been."""
        if one.name != other.name or one is other:
            return False
        return one.born_as is None or other.born_as is None or one.born_as > other.born_as

    def teardown(self) -> None:
        if not hasattr(self, "apps"):
            return
        self.cluster.control.clear()
        for node in self.cluster.brokers:
            self.cluster.start(node)
        self.time_passes(_DELIVERY_MS + _REQUEST_MS)
        self._everybody_finishes()
        self.time_passes(20_000)  # late copies
        for app in self.apps:
            assert all(future.done() for future in app.asked), app.number
            assert all(future.done() for txn in app.txns for future in txn.futures)
            assert app.producer.released == app.producer.taken
        for name in _NAMES:
            self._newcomers_can_write(name)
        self._check_partitions()
        self._check_offsets()

    def _everybody_finishes(self) -> None:
        for app in self.apps:
            if app.phase is Phase.OPEN:
                app.commit(60_000)
        for _ in range(60):
            if all(app.phase in {Phase.READY, Phase.DEAD} for app in self.apps):
                return
            self.time_passes(1_000)
        raise AssertionError([(app.number, app.phase, app.producer.core.transactions.state) for app in self.apps])

    def _newcomers_can_write(self, name: str) -> None:
        options = {**self.options, "transactional.id": name}
        app = Application(FakeProducer(self.cluster, self.client, **options), name, len(self.apps))
        self.apps.append(app)
        self._answered(app)
        app.begin()
        for partition in range(PARTITIONS):
            app.send(TopicPartition(TOPIC, partition), 1)
        app.add_offsets(60_000)
        app.commit(60_000)
        self._answered(app)
        self.time_passes(5_000)

    def _answered(self, app: Application) -> None:
        self.client.run_until(lambda: app.has_news, within_ms=10_000)
        app.look()
        assert app.phase is Phase.READY, app.died_of

    def _seen(self, partition: int) -> list[bytes]:
        """What a reader of committed records sees."""
        log = self.cluster.log(TOPIC, partition)
        assert not log.open_transactions, "a transaction is left open"
        gone = [(one.producer_id, one.first_offset, one.last_offset) for one in log.aborted]
        return [
            value
            for one in log.batches()
            if not one.is_control
            and not any(pid == one.producer_id and a <= one.base_offset <= b for pid, a, b in gone)
            for value in values_of(one.view)
        ]

    def _check_partitions(self) -> None:
        seen = {partition: self._seen(partition) for partition in range(PARTITIONS)}
        for partition, values in seen.items():
            assert len(values) == len(set(values)), values
            for name in _NAMES:
                mine = [value for value in values if value.startswith(name.encode())]
                keys = [self._place(*(int(part) for part in value.split(b"/")[1:])) for value in mine]
                assert keys == sorted(keys), f"partition {partition}: {mine}"
        for app in self.apps:
            for txn in app.txns:
                there = {value in seen[tp.partition] for tp, value in txn.values}
                there |= {offset in self.cluster.seen_offsets.get(app.group, []) for offset in txn.offsets}
                self._check_outcome(app, txn, there)

    @staticmethod
    def _check_outcome(app: Application, txn: Txn, there: set[bool]) -> None:
        assert len(there) < 2, f"application {app.number}: half of {txn} is seen"
        if txn.outcome in {Outcome.OPEN, Outcome.ABORTED}:
            assert True not in there, f"application {app.number}: {txn} is seen"
        elif txn.outcome is Outcome.COMMITTED:
            assert False not in there, f"application {app.number}: {txn} is not seen"

    def _check_offsets(self) -> None:
        for group, seen in self.cluster.seen_offsets.items():
            places = [self._place(*divmod(offset, MOST)) for offset in seen]
            assert places == sorted(set(places)), f"{group}: {seen}"

    def _place(self, number: int, written: int) -> tuple[ProducerId | None, int]:
        """Where something comes among what its transactional id wrote."""
        return self.apps[number].born_as, written


TestTransactionsModel = TransactionsModel.TestCase
TestTransactionsModel.settings = settings(max_examples=examples(15, 40), stateful_step_count=30, deadline=None)
