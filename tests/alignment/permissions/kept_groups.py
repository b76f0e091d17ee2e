"""Positions of groups, as if a flow had committed them."""

from __future__ import annotations

from mirror.groups.commit_decision import NEVER, Intent
from mirror.groups.intents import GroupTopicKey, encode_intents, encode_key
from mirror.relay.progress.flow_topic import FlowTopic, KeyValue, group_topic_of


def keep_positions(target: str, flow: str, topic: str, *groups: str) -> None:
    """Store intents of these groups in the flow's group topic, which exists on the cluster at address ``target``."""
    intents = encode_intents({0: Intent(1, 1, NEVER, NEVER, 0, 0)})
    records = {name: KeyValue(encode_key(GroupTopicKey(name, topic)), intents) for name in groups}
    assert FlowTopic({"bootstrap.servers": target}, group_topic_of(flow)).write(records, 20_000) == {}
