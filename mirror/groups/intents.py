"""The records of a flow's group topic: what is about to be committed for groups, and which were resumed. Pure.

The partitions of a group and target topic share a record, so that a group costs a few records, not thousands. A record
has the group's name on the target, as it has the topic's: it is about that group whatever the rules of names say later.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from mirror.cluster.types import TopicPartition
from mirror.groups.commit_decision import ANY_SOURCE, NEVER, Intent
from mirror.relay.progress import stored_json as stored
from mirror.relay.progress.flow_topic import KeyValue
from mirror.wire.integers import INT32_MAX

_VERSION: Final = 1
_encode_json: Final = json.JSONEncoder(separators=(",", ":")).encode
"""As json.dumps(), which makes an encoder for each call."""
_NO_TIMES: Final[Mapping[int, int]] = {}


class GroupTopicKey(NamedTuple):
    """Identifies a record of intents."""

    group: str
    """Its name on the source."""
    topic: str
    """The target topic."""


class ResumeKey(NamedTuple):
    """Identifies a record that says at which offsets of the target the user has resumed a group."""

    group: str


Offsets = dict[int, int]
"""By partition."""


# Invariant: What was stored for a group of the target counts for that group alone, also once `names` has another rule.
# Test: tests/groups/test_names_on_fakes.py::test_an_edited_rule_takes_no_group_of_the_target_s_own_for_the_flow_s
class StoredIntents:
    """What the group topic says: of the records of a key, the one at the highest offset."""

    def __init__(self, source_group: Callable[[str], str | None] | None = None) -> None:
        """``source_group`` returns the name by which a group of the target is known here; of None, none is kept.

        Intents of another group count as none then: a rule has given its name on the target to this one. Without a
        function, all groups have their names on the target.
        """
        self._source_group: Final[Callable[[str], str | None]] = source_group or str
        self._renames: Final = source_group is not None
        self._intents: dict[GroupTopicKey, dict[int, Intent]] = {}
        self._times: dict[GroupTopicKey, dict[int, int]] = {}
        """When the position of an intent was stored first (ms since 1970), by partition, where that is known."""
        self._resumed: dict[str, dict[str, Offsets]] = {}
        self._offsets: dict[GroupTopicKey | ResumeKey, int] = {}
        """Where the records are that this process has written."""
        self._own: set[int] = set()
        """The same, of those that have not been read since."""

    def clear(self) -> None:
        """Forget everything: the topic is read from its beginning."""
        self._intents.clear()
        self._times.clear()
        self._resumed.clear()
        self._offsets.clear()
        self._own.clear()

    def written(self, offsets: Mapping[GroupTopicKey | ResumeKey, int]) -> None:
        """Remember at which offsets the records are that this process has written, and put here.

        A transaction's marker, and so its records, may become visible after the call that has committed it.
        """
        self._offsets.update(offsets)
        self._own.update(offsets.values())

    def take(self, key: bytes | None, value: bytes | None, offset: int) -> str | None:
        """Take the record at ``offset``, unless this process has written a later one of its key.

        What cannot be parsed is no intent: what it was about counts as taken over. Return the group of which something
        has changed; None if nothing has.
        """
        if offset in self._own:  # it is known; parsing all of a round's own took a tenth of its CPU time
            self._own.discard(offset)
            return None
        parsed = parse_key(key, self._source_group)
        if parsed is None or offset <= self._offsets.get(parsed, NEVER):
            return None
        self._offsets.pop(parsed, None)
        if isinstance(parsed, ResumeKey):
            self.put_resumed(parsed.group, parse_resumed(value))
        else:
            is_other = self._renames and parse_source(key, value) != parsed.group
            self.put(parsed, {} if is_other else parse_intents(value), parse_times(value))
        return parsed.group

    def put(self, key: GroupTopicKey, intents: Mapping[int, Intent], times: Mapping[int, int] = _NO_TIMES) -> None:
        """Set the intents of a group and topic, and when each position was stored first; without any, forget them."""
        if intents:
            self._intents[key], self._times[key] = dict(intents), dict(times)
        else:
            self._intents.pop(key, None)
            self._times.pop(key, None)

    def of(self, key: GroupTopicKey) -> Mapping[int, Intent]:
        """Return the intents by partition."""
        return self._intents.get(key, {})

    def get(self, group: str, tp: TopicPartition) -> Intent | None:
        """Return the last intent for a target partition."""
        return self.of(GroupTopicKey(group, tp.topic)).get(tp.partition)

    def times(self, key: GroupTopicKey) -> Mapping[int, int]:
        """Return when the positions of intents were stored first (ms since 1970), by partition, where that is known."""
        return self._times.get(key, _NO_TIMES)

    def stored_ms(self, group: str, tp: TopicPartition, offset: int | None) -> int | None:
        """Return when ``offset`` was stored first as the last position for a target partition; None if it is not."""
        intent = self.get(group, tp)
        is_last = intent is not None and intent.target == offset
        return self.times(GroupTopicKey(group, tp.topic)).get(tp.partition) if is_last else None

    def times_after(self, key: GroupTopicKey, intents: Mapping[int, Intent], now_ms: int) -> dict[int, int]:
        """Return the same once ``intents`` are stored at ``now_ms``: positions that were there keep their times."""
        last, times = self.of(key), self.times(key)
        found = {}
        for number, intent in intents.items():
            before = last.get(number)
            is_new = before is None or before.source != intent.source or before.target != intent.target
            time_ms = now_ms if is_new else times.get(number)
            if time_ms is not None:
                found[number] = time_ms
        return found

    def resumed(self, group: str, tp: TopicPartition) -> int | None:
        """Return the target's offset at which the group was resumed by hand."""
        return self._resumed.get(group, {}).get(tp.topic, {}).get(tp.partition)

    def resumed_of(self, group: str) -> dict[str, Offsets]:
        """Return at which offsets of the target the group was resumed by hand, by topic."""
        return {topic: dict(offsets) for topic, offsets in self._resumed.get(group, {}).items()}

    def resumed_after(self, changes: Mapping[GroupTopicKey, Mapping[int, Intent]]) -> dict[str, dict[str, Offsets]]:
        """Return at which offsets groups stay resumed once ``changes`` are stored, for the groups where that changes.

        A new intent ends the resume of its partition: it says itself what it replaces, and a later reset of the target
        to the same offset is a takeover.
        """
        found: dict[str, dict[str, Offsets]] = {}
        for key, intents in changes.items():
            resumed = self._resumed.get(key.group, {}).get(key.topic, {})
            written = {number for number in resumed if self.of(key).get(number) != intents.get(number)}
            if written:
                of_group = found.setdefault(key.group, dict(self._resumed[key.group]))
                of_group[key.topic] = {number: at for number, at in resumed.items() if number not in written}
        return {group: {topic: of for topic, of in topics.items() if of} for group, topics in found.items()}

    def put_resumed(self, group: str, offsets: Mapping[str, Offsets]) -> None:
        """Set at which offsets of the target the user has resumed a group; without any, forget that."""
        if offsets:
            self._resumed[group] = dict(offsets)
        else:
            self._resumed.pop(group, None)

    def groups(self) -> set[str]:
        """Return the groups with intents."""
        return {key.group for key in self._intents}

    def partitions(self, is_wanted: Callable[[str], bool] = lambda _: True) -> dict[str, set[TopicPartition]]:
        """Return the target partitions with intents, by group, of those that ``is_wanted``."""
        found: dict[str, set[TopicPartition]] = {}
        for key, intents in self._intents.items():
            if not is_wanted(key.group):
                continue
            found.setdefault(key.group, set()).update(TopicPartition(key.topic, number) for number in intents)
        return found


def encoded(
    intents: Mapping[GroupTopicKey, Mapping[int, Intent]],
    resumed: Mapping[str, Mapping[str, Offsets]],
    times: Mapping[GroupTopicKey, Mapping[int, int]],
    target_group: Callable[[str], str] = str,
) -> dict[GroupTopicKey | ResumeKey, KeyValue]:
    """Return the records of the intents of each key, and of where each group is resumed; without any, it is removed.

    ``times`` says when the intents' positions were stored first. ``target_group`` is that of :func:`encode_key`.
    """
    return {
        **{
            key: KeyValue(encode_key(key, target_group), _encode(key, of, times[key], target_group) if of else None)
            for key, of in intents.items()
        },
        **{
            key: KeyValue(encode_key(key, target_group), encode_resumed(of) if of else None)
            for key, of in ((ResumeKey(group), of) for group, of in resumed.items())
        },
    }


def _encode(
    key: GroupTopicKey, intents: Mapping[int, Intent], times: Mapping[int, int], target_group: Callable[[str], str]
) -> bytes:
    return encode_intents(intents, times, "" if target_group(key.group) == key.group else key.group)


def encode_key(key: GroupTopicKey | ResumeKey, target_group: Callable[[str], str] = str) -> bytes:
    """Return ``key`` as JSON, with the name that ``target_group`` returns for its group."""
    group = target_group(key.group)
    fields = {"resume": group} if isinstance(key, ResumeKey) else {"group": group, "topic": key.topic}
    return _encode_json(fields).encode()


def parse_key(key: bytes | None, source_group: Callable[[str], str | None] = str) -> GroupTopicKey | ResumeKey | None:
    """Parse :func:`encode_key`; None for anything else, and for a group for which ``source_group`` returns None."""
    fields = stored.parse_object(key)
    group, topic, resumed = (_text(fields.get(name)) for name in ("group", "topic", "resume"))
    named = group if resumed is None else resumed
    found = None if named is None else source_group(named)
    if found is None:
        return None
    if resumed is not None:
        return ResumeKey(found)
    return GroupTopicKey(found, topic) if topic else None


def _text(value: object) -> str | None:
    """Return a string, which may be empty: old consumers without a group id have committed for the group ""."""
    return value if isinstance(value, str) and stored.text(value) == value else None


def encode_intents(intents: Mapping[int, Intent], times: Mapping[int, int] = _NO_TIMES, source: str = "") -> bytes:
    """Return the intents of the partitions of one topic, and when their positions were stored first, as JSON.

    ``source`` is the group's name on the source, if that is another one than on the target.
    """
    fields: dict[str, Any] = {
        "v": _VERSION,
        "partitions": {number: (*intent[:-1], *intent.others) for number, intent in sorted(intents.items())},
    }
    if source:
        fields["source"] = source
    if times:
        by_time: dict[int, list[int]] = {}  # most partitions share one, that of a round
        for number, time_ms in sorted(times.items()):
            by_time.setdefault(time_ms, []).append(number)
        fields["times"] = by_time
    return _encode_json(fields).encode()


def parse_source(key: bytes | None, value: bytes | None) -> str | None:
    """Return the name on the source of the group whose intents a record has."""
    named = _text(stored.parse_object(value).get("source"))
    return named or _text(stored.parse_object(key).get("group"))


def parse_times(value: bytes | None) -> dict[int, int]:
    """Return when the positions of :func:`encode_intents` were stored first, without what cannot be parsed."""
    fields = stored.parse_object(value)
    by_time = fields.get("times") if fields.get("v") == _VERSION else None
    found: dict[int, int] = {}
    for name, numbers in by_time.items() if isinstance(by_time, dict) else ():
        time_ms = stored.time_ms(int(name)) if _is_decimal(name) else None
        if time_ms is not None and isinstance(numbers, list):
            valid = [number for given in numbers if (number := stored.number(given, INT32_MAX)) is not None]
            found.update(dict.fromkeys(valid, time_ms))
    return found


def _is_decimal(name: str) -> bool:
    """Whether a text is a number of at most as many digits as an int64 has."""
    return name.isascii() and name.isdigit() and len(name) < 20  # noqa: PLR2004 - the digits of an int64


def parse_intents(value: bytes | None) -> dict[int, Intent]:
    """Parse :func:`encode_intents`, without what cannot be parsed."""
    return {number: intent for number, fields in _partitions(value) if (intent := _intent(fields)) is not None}


def encode_resumed(offsets: Mapping[str, Mapping[int, int]]) -> bytes:
    """Return the target's offsets, by topic and partition, at which a group is resumed, as JSON."""
    topics = {topic: {str(number): offset for number, offset in of.items()} for topic, of in offsets.items()}
    return _encode_json({"v": _VERSION, "topics": topics}).encode()


def parse_resumed(value: bytes | None) -> dict[str, Offsets]:
    """Parse :func:`encode_resumed`, without what cannot be parsed."""
    fields = stored.parse_object(value)
    topics = fields.get("topics") if fields.get("v") == _VERSION else None
    return {
        topic: {
            number: offset
            for name, given in of.items()
            if (number := _number(name)) is not None and (offset := stored.number(given)) is not None
        }
        for topic, of in (topics.items() if isinstance(topics, dict) else ())
        if isinstance(of, dict)
    }


def _partitions(value: bytes | None) -> Iterable[tuple[int, Any]]:
    fields = stored.parse_object(value)
    partitions = fields.get("partitions") if fields.get("v") == _VERSION else None
    for name, given in partitions.items() if isinstance(partitions, dict) else ():
        number = _number(name)
        if number is not None:
            yield number, given


def _number(name: str) -> int | None:
    return stored.number(int(name), INT32_MAX) if name.isascii() and name.isdigit() and len(name) < 11 else None  # noqa: PLR2004 - the digits of an int32


def _intent(fields: Any) -> Intent | None:
    fixed = len(Intent._fields) - 1
    if not isinstance(fields, list) or len(fields) < fixed:
        return None
    numbers = [NEVER if given == NEVER and type(given) is int else stored.number(given, ANY_SOURCE) for given in fields]
    valid = [number for number in numbers if number is not None]
    if len(valid) < len(fields) or valid[1] == NEVER:
        return None
    source, target, previous_source, previous, epoch, until_ms = valid[:fixed]
    return Intent(source, target, previous_source, previous, epoch, until_ms, tuple(valid[fixed:]))
