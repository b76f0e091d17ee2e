"""The groups of a flow are known by their names, as the code that uses them makes them."""

from __future__ import annotations

import pytest

from mirror.client import TopicPartition
from mirror.groups.own_groups import is_own_group
from mirror.relay.progress.committed import group_of, lazy_group_of
from mirror.relay.progress.control_record import control_partition


def test_groups_that_flows_use_are_known() -> None:
    tps = [TopicPartition("orders", number) for number in range(100)]
    names = {group(flow, tp) for flow in ("f", "paris-berlin_2") for group in (group_of, lazy_group_of) for tp in tps}
    assert all(map(is_own_group, [*names, control_partition("paris-berlin")[0]]))


@pytest.mark.parametrize("name", ["mirror", "mirror.f", "mirror.f.x", "mirror.f.g.1", "my.mirror.f.1", "mirror.f.1x"])
def test_other_groups_are_not(name: str) -> None:
    assert not is_own_group(name)
