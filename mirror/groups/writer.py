"""Stores intents in the flow's group topic, under a producer identity that fences the writers of earlier runs."""

from __future__ import annotations

from collections.abc import Mapping

from mirror.groups.commit_decision import Intent
from mirror.groups.intents import GroupTopicKey, Offsets, ResumeKey, encode_intents, encode_key, encode_resumed
from mirror.relay.progress.fenced_writer import FencedWriter
from mirror.relay.progress.flow_topic import FlowTopic, KeyValue


def transactional_id(flow: str) -> str:
    """Return the id under which a flow's intents are stored. No partition has it: theirs end with a number."""
    return f"mirror.{flow}.groups"


class IntentWriter(FencedWriter):
    """Writes intents in transactions, as :class:`FencedWriter` does."""

    def __init__(self, topic: FlowTopic, flow: str, timeout_ms: int) -> None:
        """``timeout_ms`` limits each call."""
        super().__init__(topic, transactional_id(flow), timeout_ms)

    def write_intents(
        self,
        intents: Mapping[GroupTopicKey, Mapping[int, Intent]],
        resumed: Mapping[str, Mapping[str, Offsets]],
        times: Mapping[GroupTopicKey, Mapping[int, int]],
    ) -> dict[GroupTopicKey | ResumeKey, int]:
        """Store the intents of each key, and where each group is resumed, all or none. Raises KafkaError, Fenced.

        ``times`` says when the intents' positions were stored first. The record of a key or group is deleted if there
        are none. Returns at which offsets the records are.
        """
        records: dict[GroupTopicKey | ResumeKey, KeyValue] = {
            **{
                key: KeyValue(encode_key(key), encode_intents(of, times[key]) if of else None)
                for key, of in intents.items()
            },
            **{
                ResumeKey(group): KeyValue(encode_key(ResumeKey(group)), encode_resumed(of) if of else None)
                for group, of in resumed.items()
            },
        }
        return dict(zip(records, self.write(records.values()), strict=True))
