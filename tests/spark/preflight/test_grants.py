"""What mirror init prints to be granted is all that a flow needs, in few commands."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from mirror.config.load import load
from mirror.config.models import MirrorConfig
from mirror.spark.preflight.grants import grant_commands
from mirror.spark.preflight.permission_table import PERMISSIONS
from mirror.spark.preflight.permissions import Allowed, FlowPermissions, Kind, Side, name_of

_FILE = """
[clusters.paris]
"bootstrap.servers" = "paris-1:9092"
[clusters.berlin]
"bootstrap.servers" = "berlin-1:9092"
[flows.f]
source = "paris"
target = "berlin"
"""
_USERS = {Side.SOURCE: "User:reader", Side.TARGET: "User:writer"}


class Granted(NamedTuple):
    """What one command grants."""

    side: Side
    operations: set[str]
    option: str
    name: str
    prefixed: bool


def _config(lines: str) -> MirrorConfig:
    return load(Path("mirror.toml"), text=(_FILE + lines).encode(), environ={})


def _granted(config: MirrorConfig) -> Iterator[Granted]:
    for command in grant_commands(config, config.flows["f"], _USERS):
        words = shlex.split(command)
        assert words[:2] == ["kafka-acls", "--bootstrap-server"]
        side = {"paris-1:9092": Side.SOURCE, "berlin-1:9092": Side.TARGET}[words[2]]
        assert words[3:6] == ["--add", "--allow-principal", _USERS[side]]
        prefixed = words[-2:] == ["--resource-pattern-type", "prefixed"]
        rest = words[6 : -2 if prefixed else None]
        operations = {after for word, after in itertools.pairwise(rest) if word == "--operation"}
        resources = [word for word in rest[2 * len(operations) :] if word != "--cluster"]
        if not resources:
            yield Granted(side, operations, "--cluster", "kafka-cluster", prefixed=False)
        for option, name in zip(resources[::2], resources[1::2], strict=True):
            yield Granted(side, operations, option, name, prefixed)


def _covers(one: Granted, side: Side, kind: Kind, name: str) -> bool:
    if (one.side, one.option) != (side, kind.option):
        return False
    return name.startswith(one.name) if one.prefixed else one.name in {name, "*"}


@pytest.mark.parametrize(
    ("lines", "topics"),
    [
        ('topics = ["orders", "clicks-.*"]', ["orders", "clicks-eu"]),
        ('topics = ["a.b", "x|y"]\nnaming = "identity"', ["a.b", "x", "y"]),
        ('topics = [".*"]\ndelivery = "at-least-once"\nmirrormaker.heartbeats = true', ["orders"]),
        ('topics = [".*"]\non-topic-deleted = "delete"\nacls.sync = true', ["orders"]),
        ('topics = ["heart.*"]\nmirrormaker.heartbeats = true', ["hearts"]),
        ('topics = ["t"]\nregister-producers = true\nexactly-once-by = "sequences"\nconfigs = "off"', ["t"]),
    ],
)
def test_all_that_a_flow_needs_is_granted(lines: str, topics: list[str]) -> None:
    config = _config(lines)
    granted = list(_granted(config))
    found = FlowPermissions(config=config, flow=config.flows["f"], topics=topics)
    found.allowed[Side.SOURCE, Kind.TOPIC] = dict.fromkeys(topics, Allowed(None, 2))
    for one in PERMISSIONS:
        side, kind = one.place
        for name in one.needing(found):
            allowed = {
                operation for each in granted if _covers(each, side, kind, name) for operation in each.operations
            }
            if allowed & {"Read", "Write", "Alter", "Delete"}:
                allowed.add("Describe")
            needed = {name_of(operation) for operation in (*one.operations, *one.resource.also)}
            assert needed <= allowed, (one.resource.words, name)


def test_no_more_topics_are_granted_than_those_whose_names_begin_so() -> None:
    granted = list(_granted(_config('topics = ["orders", "clicks-.*"]')))
    source = {(one.name, one.prefixed) for one in granted if one.side is Side.SOURCE}
    assert source == {("orders", False), ("clicks-", True)}
    target = {(one.name, one.prefixed) for one in granted if one.side is Side.TARGET and one.option == "--topic"}
    assert {one for one in target if not one[0].startswith("mirror")} == {
        ("paris.orders", False),
        ("paris.clicks-", True),
    }


def test_what_a_prefix_covers_is_not_granted_again() -> None:
    config = _config('topics = ["orders"]')
    granted = list(_granted(config))
    groups = [(one.name, one.prefixed) for one in granted if one.option == "--group"]
    assert groups == [("mirror.f.", True)]
    assert len(list(grant_commands(config, config.flows["f"], _USERS))) <= 6
