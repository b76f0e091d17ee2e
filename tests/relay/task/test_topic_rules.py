"""What a task reads of both clusters' configurations before it starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from mirror.client import Admin, ConfigResource, Outcomes
from mirror.cluster.types import ConfigEntry, ConfigSource
from mirror.errors import AuthenticationFailed, AuthorizationFailed, KafkaTimeout
from mirror.relay.batches.exactly_once_way import WayRules
from mirror.relay.batches.topic_config import TOPIC_KEYS, TopicConfig
from mirror.relay.model.policy import CopyPolicy
from mirror.relay.task.topic_rules import TopicRules, read_topic_rules, smallest_expiration_ms
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.control import Action
from tests.relay.fake_pair import FakePair

DAY = 86_400_000
AUTO = CopyPolicy(exactly_once_by="auto")
_TOPIC, _BROKER = 2, 4
Read = Callable[..., TopicRules]


@pytest.fixture
def pair(monkeypatch: pytest.MonkeyPatch) -> FakePair:
    return FakePair(monkeypatch, brokers=2, partitions=2)


@pytest.fixture
def read(pair: FakePair) -> Iterator[Read]:
    with (
        Admin({"bootstrap.servers": pair.source.bootstrap}) as source,
        Admin({"bootstrap.servers": pair.target.bootstrap}) as target,
    ):
        yield lambda policy=AUTO: read_topic_rules(source, target, [pair.range_of(0), pair.range_of(1)], policy, 5_000)


def _requests(pair: FakePair) -> list[tuple[int, int, str]]:
    """(node, kind, name) of every resource whose configuration the target was asked for."""
    seen: list[tuple[int, int, str]] = []

    def note(call: object) -> None:
        if getattr(call, "api", None) is Api.DESCRIBE_CONFIGS:
            seen.extend((call.node, each.resource_type, each.resource_name) for each in call.body.resources)  # type: ignore[attr-defined]

    pair.target.control.add(note)
    return seen


def test_rules_have_the_smallest_expiration_of_the_brokers_and_both_topics_configurations(
    pair: FakePair, read: Read
) -> None:
    assert read().ways == {"paris.t": WayRules(mode="auto", expiration_ms=DAY, delivery_ms=5_000)}
    pair.target.admin.broker_configs["2"] = {"producer.id.expiration.ms": "70000"}
    pair.source.topics["t"].configs["cleanup.policy"] = "compact"
    pair.target.topics["paris.t"].configs["message.timestamp.type"] = "LogAppendTime"
    rules = read(CopyPolicy(exactly_once_by="sequences"))
    assert rules.ways["paris.t"] == WayRules(
        mode="sequences", expiration_ms=70_000, compacted="source", log_append_time=True, delivery_ms=5_000
    )
    assert rules.limits["paris.t"].log_append_time


class _ReadKeys(dict[str, str]):
    """Of a topic, with the keys that were read."""

    def __init__(self) -> None:
        super().__init__({"message.timestamp.difference.max.ms": "5"})
        self.read: set[str] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.read.add(key)
        return super().get(key, default)

    def __getitem__(self, key: str) -> str:
        self.read.add(key)
        return super().__getitem__(key)


def test_the_keys_that_are_requested_are_those_that_are_read() -> None:
    configs = _ReadKeys()
    TopicConfig.of(configs)
    assert configs.read == set(TOPIC_KEYS)


def test_the_target_s_topics_are_read_once(pair: FakePair, read: Read) -> None:
    seen = _requests(pair)
    read()
    assert [name for _, kind, name in seen if kind == _TOPIC] == ["paris.t"]
    assert sorted((node, name) for node, kind, name in seen if kind == _BROKER) == [(1, "1"), (2, "2")]


@pytest.mark.parametrize(
    "policy", [CopyPolicy(exactly_once_by="transactions"), CopyPolicy(exactly_once=False, exactly_once_by="auto")]
)
def test_without_sequences_neither_brokers_nor_the_source_are_read(
    pair: FakePair, read: Read, policy: CopyPolicy
) -> None:
    seen = _requests(pair)
    pair.source.control.add(
        lambda call: pytest.fail("the source was asked") if call.api is Api.DESCRIBE_CONFIGS else None
    )
    assert read(policy).ways == {"paris.t": WayRules()}
    assert [(kind, name) for _, kind, name in seen] == [(_TOPIC, "paris.t")]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("1", WayRules(mode="auto", delivery_ms=5_000)),
        ("paris.t", WayRules(mode="auto", expiration_ms=DAY, unread="target", delivery_ms=5_000)),
    ],
)
def test_refused_configurations_of_the_target_are_unknown(
    pair: FakePair, read: Read, name: str, expected: WayRules
) -> None:
    code = errors.CLUSTER_AUTHORIZATION_FAILED if name == "1" else errors.TOPIC_AUTHORIZATION_FAILED
    refused = Action(errors={name: code})
    pair.target.control.add(lambda call: refused if call.api is Api.DESCRIBE_CONFIGS else None)
    assert read().ways["paris.t"] == expected


def test_refused_configuration_of_the_source_is_unknown(pair: FakePair, read: Read) -> None:
    refused = Action(errors={"t": errors.TOPIC_AUTHORIZATION_FAILED})
    pair.source.control.add(lambda call: refused if call.api is Api.DESCRIBE_CONFIGS else None)
    assert read().ways["paris.t"] == WayRules(mode="auto", expiration_ms=DAY, unread="source", delivery_ms=5_000)


def test_a_source_that_does_not_answer_is_left_to_its_copies(pair: FakePair, read: Read) -> None:
    silent = Action(hold="before")
    pair.source.control.add(lambda _: silent)
    began_ms = pair.target.clock.now()
    assert read().ways["paris.t"].unread == "source"
    assert pair.target.clock.now() - began_ms < 30_000


def test_a_source_that_refuses_the_client_is_left_to_its_copies(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    describe = Admin.describe_configs

    def refused(admin: Admin, resources: Iterable[ConfigResource], **more: Any) -> object:
        wanted = list(resources)
        if ConfigResource.topic("t") in wanted:
            raise AuthenticationFailed("refused")
        return describe(admin, wanted, **more)

    monkeypatch.setattr(Admin, "describe_configs", refused)
    assert read().ways["paris.t"] == WayRules(mode="auto", expiration_ms=DAY, unread="source", delivery_ms=5_000)


def test_a_broker_that_does_not_answer_is_left_out_and_delays_the_others_briefly(pair: FakePair, read: Read) -> None:
    pair.target.admin.broker_configs["1"] = {"producer.id.expiration.ms": "80000"}
    silent = Action(hold="before")
    pair.target.control.add(lambda call: silent if call.node == 2 and call.api is Api.DESCRIBE_CONFIGS else None)
    began_ms = pair.target.clock.now()
    assert read().ways["paris.t"].expiration_ms == 80_000
    assert pair.target.clock.now() - began_ms < 9_000, "less than the time that topics have"


def _asks_for(call: Any, kind: int) -> bool:
    return call.api is Api.DESCRIBE_CONFIGS and call.body.resources[0].resource_type == kind


def test_another_broker_is_asked_if_the_first_one_does_not_answer(pair: FakePair, read: Read) -> None:
    asked: list[int] = []

    def first_is_silent(call: Any) -> Action | None:
        if not _asks_for(call, _TOPIC):
            return None
        asked.append(call.node)
        return Action(hold="before") if call.node == asked[0] else None

    pair.target.control.add(first_is_silent)
    assert not read().ways["paris.t"].unread
    assert len(set(asked)) == 2


def test_where_no_broker_answers_the_expiration_is_unknown_or_asked_for_again(pair: FakePair, read: Read) -> None:
    pair.target.control.add(lambda call: Action(hold="before") if _asks_for(call, _BROKER) else None)
    assert read().ways["paris.t"].expiration_ms is None
    with pytest.raises(KafkaTimeout, match="no broker answered within 9 s"):
        read(CopyPolicy(exactly_once_by="sequences"))


def entry(value: str | None, key: str = "producer.id.expiration.ms") -> dict[str, ConfigEntry]:
    return {key: ConfigEntry(value, ConfigSource.DEFAULT, sensitive=False, read_only=False)}


def before_3_4(value: str) -> dict[str, ConfigEntry]:
    return entry(value, "transactional.id.expiration.ms")


FIRST, SECOND = ConfigResource.broker(1), ConfigResource.broker(2)
LATE, REFUSED = KafkaTimeout("no answer"), AuthorizationFailed("refused", 31)


@pytest.mark.parametrize(
    ("found", "expected"),
    [
        (Outcomes({FIRST: entry("9"), SECOND: entry("7")}, {}), 7),
        (Outcomes({FIRST: entry("9")}, {SECOND: LATE}), 9),
        (Outcomes({FIRST: entry("9")}, {SECOND: REFUSED}), None),
        (Outcomes({FIRST: entry("9"), SECOND: before_3_4("8")}, {}), 8),
        (Outcomes({FIRST: {**entry("9"), **before_3_4("8")}}, {}), 9),
        (Outcomes({FIRST: entry("9"), SECOND: {}}, {}), None),
        (Outcomes({FIRST: {**entry(None), **before_3_4("8")}}, {}), None),
        (Outcomes({}, {FIRST: LATE, SECOND: LATE}), None),
        (Outcomes({}, {}), None),
    ],
    ids=[
        "smallest",
        "one is late",
        "one refuses",
        "one is older than 3.4",
        "both keys",
        "neither key",
        "hidden",
        "all are late",
        "no brokers",
    ],
)
def test_expiration_is_unknown_unless_every_broker_that_answers_states_it(
    found: Outcomes[ConfigResource, dict[str, ConfigEntry]], expected: int | None
) -> None:
    assert smallest_expiration_ms(found) == expected
