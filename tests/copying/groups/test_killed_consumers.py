"""A consumer is killed on the source, and one of the same group is started on the target."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.copying.group_site import group_sync
from tests.copying.groups.consumers import Command, confluent_consumer, java_consumer, reading
from tests.copying.pair import TwoClusters
from tests.copying.writers import Made, batch_of, write_batches

pytestmark = [pytest.mark.brokers, pytest.mark.timeout(600)]

RECORDS: Final = 100
"""Written in each turn."""
COMMIT_EVERY: Final = 5
PROTOCOLS: Final = "consumer", "classic"
IN_MAKE_CLUSTER: Final = pytest.mark.cluster


def write(pair: TwoClusters, topic: str, values: list[bytes]) -> None:
    made = [Made(None, value, (), 0) for value in values]
    write_batches(pair.source.address, topic, [batch_of(made[at : at + 10]) for at in range(0, len(made), 10)])


@pytest.mark.parametrize(
    ("consumer", "turns"),
    [
        (confluent_consumer, 1),
        pytest.param(java_consumer, 20, marks=IN_MAKE_CLUSTER),
        pytest.param(confluent_consumer, 20, marks=IN_MAKE_CLUSTER),
    ],
)
def test_each_record_is_read_and_none_again_whose_offset_was_committed(
    pair: TwoClusters, unique: Callable[[str], str], tmp_path: Path, consumer: Callable[[Path], Command], turns: int
) -> None:
    """It is killed at any record, and rounds go on meanwhile; each turn has a group of its own."""
    topic, name, command, rng = pair.topics(), unique("g.billing"), consumer(tmp_path), random.Random()
    values: list[bytes] = []
    with group_sync(pair, topic) as sync:
        for turn in range(turns):
            group, protocol = f"{name}.{turn}", PROTOCOLS[turn % 2]
            values += [b"%d" % number for number in range(turn * RECORDS, (turn + 1) * RECORDS)]
            write(pair, topic, values[-RECORDS:])
            if rng.random() < 0.5:
                pair.complete(topic)
            as_member = group, topic, protocol
            killed = [pair.source.address, *as_member, "earliest", str(COMMIT_EVERY)]
            with reading(command, *killed, errors=tmp_path / "source.log") as first:
                first.await_values(rng.randint(2, len(values)), meanwhile=sync.round)
            assert first.values == values[: len(first.values)]
            pair.complete(topic)
            state = sync.round().groups[group]
            assert state.is_in_step, state
            position = state.positions[0].source_offset or 0
            assert 0 < position <= len(first.values)
            started = [pair.target.address, *as_member, "none", "0"]
            with reading(command, *started, errors=tmp_path / "target.log") as second:
                second.await_values(len(values) - position)
            assert second.values == values[position:], f"turn {turn}: killed after {len(first.values)}"
