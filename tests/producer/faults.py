"""What the model tests have brokers do to requests."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from mirror.cluster.types import TopicPartition
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action

TOPIC = "t"
PARTITIONS, NODES = 2, 3
Knobs = dict[str, Any]
"""The arguments of an Action, which is made again for each request: some are changed later."""

_REFUSED = [
    errors.NOT_ENOUGH_REPLICAS,
    errors.NOT_LEADER,
    errors.UNKNOWN_TOPIC_OR_PARTITION,
    errors.CORRUPT_MESSAGE,
    errors.FENCED_LEADER_EPOCH,
]
"""Said of a batch that was not written."""
_UNDECIDED = [errors.REQUEST_TIMED_OUT, errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND]
"""Said of a batch that was written; that it was not is possible, too, as far as a client can know."""


Fault = tuple[str, dict[str, Any]]
"""The name of a model's method, and its arguments."""


def fault(name: str, /, **arguments: st.SearchStrategy[Any]) -> st.SearchStrategy[Fault]:
    return st.tuples(st.just(name), st.fixed_dictionaries(arguments))


def everywhere(code: int) -> dict[TopicPartition | str, int]:
    return {TopicPartition(TOPIC, partition): code for partition in range(PARTITIONS)}


def _one_of(codes: list[int]) -> st.SearchStrategy[dict[TopicPartition | str, int]]:
    all_of_them = st.sampled_from(codes).map(everywhere)
    one = st.tuples(st.integers(0, PARTITIONS - 1), st.sampled_from(codes))
    return st.one_of(all_of_them, one.map(lambda pair: {TopicPartition(TOPIC, pair[0]): pair[1]}))


LOST: st.SearchStrategy[Knobs] = st.one_of(
    st.fixed_dictionaries({"delay_ms": st.sampled_from([1, 40, 600, 2_500, 3_500])}),
    st.fixed_dictionaries({"stall_ms": st.sampled_from([1, 40, 600, 2_500, 3_500])}),
    st.fixed_dictionaries({"close": st.sampled_from(["before", "after"])}),
    st.fixed_dictionaries({"half": st.sampled_from(["silent", "close"])}),
    st.just({"silent": True}),
)
"""Late, or never: what any request may suffer."""

PRODUCE: st.SearchStrategy[Knobs] = st.one_of(
    LOST,
    st.fixed_dictionaries({"errors": _one_of([*_REFUSED, *_UNDECIDED])}),
    st.fixed_dictionaries({"errors": _one_of(_UNDECIDED), "handled": st.just(True)}),
    st.fixed_dictionaries({"errors": _one_of([errors.DUPLICATE_SEQUENCE]), "handled": st.just(True)}),
)
"""And what a Produce may, besides."""


REFUSED_FOR_LONG: st.SearchStrategy[Knobs] = st.fixed_dictionaries({"errors": _one_of([*_REFUSED, *_UNDECIDED])})


def action(knobs: Knobs) -> Action:
    return Action(**knobs)


def for_a_while(cluster: FakeCluster, api: Api, knobs: Knobs, ms: int) -> None:
    """Every request of ``api`` in the next ``ms`` fares like that."""
    until = cluster.clock.now() + ms
    cluster.control.add(lambda call: action(knobs) if call.api is api and cluster.clock.now() < until else None)
