"""What the brokers of :mod:`tests.spark.fakes` refuse, by a few words.

``broker_configs``, ``topic_configs``, ``log_dirs``, ``producers``: refused with that text. ``silent``: a JSON list of
source partitions (``topic/0``) without a leader that answers. ``denied``: a JSON object of ``topic orders`` -> names of
operations; ``no_ids``: a JSON list of transactional ids that may not be seen. ``refused``, ``refused_configs``: JSON,
name -> what a policy says. ``hidden_configs``, ``uncommittable``, ``gone``: JSON lists of topics. ``groups``: a JSON
list of those that are there. ``brokers``: how many are left. ``broker_settings``: a JSON object.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from mirror.client import AclOperation, ResourceType, TopicPartition
from mirror.wire.api import Api
from tests.fakes import errors
from tests.fakes.api_admin import SUPPORTED, FakeGroup
from tests.fakes.cluster import FakeCluster
from tests.fakes.control import Action, ServerCall

RETENTION_MINUTES = "10080"
"""How long the brokers remember committed offsets."""
_POLICY_VIOLATION = 44
_TOPIC, _BROKER = 2, 4

Moods = Mapping[str, str]
_Refusal = Callable[[ServerCall, Moods], Action]


def apply_moods(cluster: FakeCluster, moods: Moods) -> None:
    """Replace all that was refused before."""
    cluster.control.clear()
    cluster.control.add(lambda call: _REFUSALS[call.api](call, moods) if call.api in _REFUSALS else None)
    cluster.admin.may.clear()
    for resource, names in _values(moods, "denied").items():
        kind, _, name = resource.partition(" ")
        key = ResourceType[kind.upper()]
        cluster.admin.may[key, name] = SUPPORTED[key] - {AclOperation[one] for one in names}
    cluster.admin.groups = {name: FakeGroup() for name in _listed(moods, "groups")}
    if "brokers" in moods:
        for node in list(cluster.brokers)[int(moods["brokers"]) :]:
            del cluster.brokers[node]
        cluster.coordinators.clear()
    settings = {"offsets.retention.minutes": RETENTION_MINUTES, **_values(moods, "broker_settings")}
    if "id_expiration_ms" in moods:
        settings["transactional.id.expiration.ms"] = moods["id_expiration_ms"]
    cluster.admin.broker_configs[""] = settings


def _listed(moods: Moods, mood: str) -> list[str]:
    return list(json.loads(moods.get(mood, "[]")))


def _values(moods: Moods, mood: str) -> dict[str, Any]:
    return dict(json.loads(moods.get(mood, "{}")))


def _partitions(call: ServerCall) -> Iterable[TopicPartition]:
    return [TopicPartition(one.name, part) for one in call.body.topics for part in one.partition_indexes]


def _offsets(_: ServerCall, moods: Moods) -> Action:
    names = [name.rpartition("/") for name in _listed(moods, "silent")]
    silent = [TopicPartition(topic, int(number)) for topic, _, number in names]
    return Action(errors=dict.fromkeys(silent, errors.LEADER_NOT_AVAILABLE))


def _producers(call: ServerCall, moods: Moods) -> Action:
    refused = _partitions(call) if "producers" in moods else ()
    return Action(errors=dict.fromkeys(refused, errors.TOPIC_AUTHORIZATION_FAILED))


def _configs(call: ServerCall, moods: Moods) -> Action:
    codes: dict[TopicPartition | str, int] = dict.fromkeys(
        _listed(moods, "hidden_configs"), errors.TOPIC_AUTHORIZATION_FAILED
    )
    messages: dict[str, str] = {}
    for mood, kind, code in (
        ("topic_configs", _TOPIC, errors.TOPIC_AUTHORIZATION_FAILED),
        ("broker_configs", _BROKER, errors.CLUSTER_AUTHORIZATION_FAILED),
    ):
        if mood in moods:
            names = [one.resource_name for one in call.body.resources if one.resource_type == kind]
            codes |= dict.fromkeys(names, code)
            messages |= dict.fromkeys(names, moods[mood])
    return Action(errors=codes, messages=messages)


def _log_dirs(call: ServerCall, moods: Moods) -> Action:
    return Action(errors={str(call.node): errors.CLUSTER_AUTHORIZATION_FAILED} if "log_dirs" in moods else {})


def _creations(call: ServerCall, moods: Moods) -> Action:
    messages, words = _values(moods, "refused"), _values(moods, "refused_configs")
    for topic in call.body.topics if words else ():
        messages |= {topic.name: words[one.name] for one in topic.configs if one.name in words}  # noqa: B035 - the last one
    return Action(errors=dict.fromkeys(messages, _POLICY_VIOLATION), messages=messages)


def _growths(_: ServerCall, moods: Moods) -> Action:
    messages = _values(moods, "refused")
    return Action(errors=dict.fromkeys(messages, _POLICY_VIOLATION), messages=messages)


def _commits(call: ServerCall, moods: Moods) -> Action:
    codes = dict.fromkeys(_listed(moods, "gone"), errors.UNKNOWN_TOPIC_OR_PARTITION)
    codes |= dict.fromkeys(_listed(moods, "uncommittable"), errors.TOPIC_AUTHORIZATION_FAILED)
    asked = [TopicPartition(one.name, part.partition_index) for one in call.body.topics for part in one.partitions]
    return Action(errors={tp: codes[tp.topic] for tp in asked if tp.topic in codes})


def _ids(_: ServerCall, moods: Moods) -> Action:
    return Action(errors=dict.fromkeys(_listed(moods, "no_ids"), errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))


_REFUSALS: Final[dict[Api, _Refusal]] = {
    Api.LIST_OFFSETS: _offsets,
    Api.DESCRIBE_PRODUCERS: _producers,
    Api.DESCRIBE_CONFIGS: _configs,
    Api.DESCRIBE_LOG_DIRS: _log_dirs,
    Api.CREATE_TOPICS: _creations,
    Api.CREATE_PARTITIONS: _growths,
    Api.OFFSET_COMMIT: _commits,
    Api.DESCRIBE_TRANSACTIONS: _ids,
}
