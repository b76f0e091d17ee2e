"""The records about created topics: what is read is what was written, and nothing else counts."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mirror.alignment.deletions.records import (
    CreatedTopic,
    Creations,
    SourceTopic,
    created_record,
    intent_record,
    intent_removal,
)
from mirror.alignment.inventory import TopicInventory, encode_key, encode_topic

_IDS = st.uuids().map(str)
_TIMES = st.integers(0, 2**45)
_SOURCES = st.builds(SourceTopic, name=st.from_regex("[a-z.]{1,9}", fullmatch=True), topic_id=_IDS, cluster_id=_IDS)
_CREATED = st.builds(
    CreatedTopic,
    topic_id=_IDS,
    source=_SOURCES,
    again=st.one_of(st.just(""), _IDS),
    gone_ms=_TIMES,
    deleting=st.booleans(),
    deleted_ms=_TIMES,
    cleaned_ms=_TIMES,
)


@given(_CREATED, _SOURCES)
def test_what_is_read_is_what_was_written(created: CreatedTopic, source: SourceTopic) -> None:
    found = Creations()
    found.take(*created_record("paris.t", created))
    found.take(*intent_record("paris.u", source))
    assert (found.topics, found.intents) == ({"paris.t": created}, {"paris.u": source})
    found.take(*intent_removal("paris.u"))
    found.take(*created_record("paris.t", None))
    assert (found.topics, found.intents) == ({}, {})


def test_an_intent_makes_no_topic_the_flow_s_own() -> None:
    source = SourceTopic(name="t", topic_id="s", cluster_id="c")
    found = Creations()
    found.take(*intent_record("paris.t", source))
    assert found.topics == {}


def test_topics_in_step_are_known_and_other_records_say_nothing() -> None:
    found = Creations()
    found.take(encode_key("paris.t"), encode_topic(TopicInventory("x", created=True)))
    assert (found.known, found.topics) == ({"paris.t"}, {})
    for value in (None, b"", b"[]", b"{}", b'{"v":2,"topic_id":"x"}', b'{"v":1,"topic_id":"x","source":{"name":"t"}}'):
        found.take(b'{"created":"u"}', value)
        found.take(b'{"intent":"u"}', value)
        found.take(None, value)
    assert (found.topics, found.intents) == ({}, {})
    found.take(encode_key("paris.t"), None)
    assert found.known == set()
