"""More kinds of damage to the records of a target: exchanges, repetitions, refilled logs, and single fields."""

from __future__ import annotations

from mirror.verify.values import Kind
from tests.relay.batches.logs_by_hand import Made
from tests.verify.damages import FOREIGN, Change, Damage
from tests.verify.logs import RECORDS, Found, numbered

_HOUR_MS = 3_600_000


def _fields(number: int, *parts: str, **fields: object) -> Change:
    def change(target: list[Made]) -> list[Found]:
        target[number] = target[number]._replace(**fields)  # type: ignore[arg-type] # of the fields that are named
        return [Found(Kind.CONTENT, number, number, 1, parts)]

    return change


def _exchanged_far(target: list[Made]) -> list[Found]:
    target[20], target[160] = target[160], target[20]
    return [Found(Kind.ORDER, 160, 20), Found(Kind.ORDER, 20, 160)]


def _exchanged_times(target: list[Made]) -> list[Found]:
    first, second = target[80], target[90]
    target[80], target[90] = first._replace(time_ms=second.time_ms), second._replace(time_ms=first.time_ms)
    return [Found(Kind.CONTENT, at, at, 1, ("timestamp",)) for at in (80, 90)]


def _tripled(target: list[Made]) -> list[Found]:
    target[58:58] = [target[57]] * 2
    return [Found(Kind.DOUBLED, 57, at) for at in (58, 59)]


def _each_doubled(target: list[Made]) -> list[Found]:
    target[:] = [record for record in target for _ in range(2)]
    return [Found(Kind.DOUBLED, number, 2 * number + 1) for number in range(RECORDS)]


def _all_doubled(target: list[Made]) -> list[Found]:
    target += target[:]
    return [Found(Kind.DOUBLED, 0, RECORDS, RECORDS)]


def _twice_repeated(target: list[Made]) -> list[Found]:
    target[100:100] = target[90:100] * 2
    return [Found(Kind.DOUBLED, 90, at, 10) for at in (100, 110)]


def _lost_and_doubled(target: list[Made]) -> list[Found]:
    """The counts agree."""
    del target[30]
    target.append(target[-1])
    return [Found(Kind.MISSING, 30, 30), Found(Kind.DOUBLED, RECORDS - 1, RECORDS - 1)]


def _first_batch_lost_and_last_doubled(target: list[Made]) -> list[Found]:
    del target[:10]
    target += target[-10:]
    return [Found(Kind.MISSING, 0, 0, 10), Found(Kind.DOUBLED, RECORDS - 10, RECORDS - 10, 10)]


def _tail_refilled(target: list[Made]) -> list[Found]:
    """The log was cut back, and others have written as much."""
    times = [record.time_ms + _HOUR_MS for record in target[180:]]
    target[180:] = [FOREIGN._replace(value=b"%d" % time_ms, time_ms=time_ms) for time_ms in times]
    return [Found(Kind.MISSING, 180, 180, 20), Found(Kind.FOREIGN, RECORDS, 180, 20)]


def _refilled(target: list[Made]) -> list[Found]:
    """The topic was emptied, and others have written to it."""
    target[:] = [FOREIGN._replace(value=b"%d" % number) for number in range(30)]
    return [Found(Kind.MISSING, 0, 0, RECORDS), Found(Kind.FOREIGN, RECORDS, 0, 30)]


def _all_late(target: list[Made]) -> list[Found]:
    """A clock, or a time zone."""
    target[:] = [record._replace(time_ms=record.time_ms + _HOUR_MS) for record in target]
    return [Found(Kind.CONTENT, 0, 0, RECORDS, ("timestamp",))]


def _foreign_in_each_batch(target: list[Made]) -> list[Found]:
    for at in range(RECORDS - 10, -1, -10):
        target.insert(at, FOREIGN._replace(value=b"%d" % at))
    return [Found(Kind.FOREIGN, at, at + at // 10) for at in range(0, RECORDS, 10)]


def _foreign_with_a_key(target: list[Made]) -> list[Found]:
    """Somebody has written another value for a key of the source."""
    target.insert(120, target[40]._replace(value=b"by others", time_ms=numbered(120).time_ms + 1))
    return [Found(Kind.FOREIGN, 120, 120)]


def _changed_and_lost(target: list[Made]) -> list[Found]:
    target[70] = target[70]._replace(value=b"changed")
    del target[71]
    return [Found(Kind.CONTENT, 70, 70, 1, ("value",)), Found(Kind.MISSING, 71, 71)]


def _lost_around(target: list[Made]) -> list[Found]:
    del target[61:70], target[51:60]
    return [Found(Kind.MISSING, 51, 51, 9), Found(Kind.MISSING, 61, 52, 9)]


def _repeated_at_the_front(target: list[Made]) -> list[Found]:
    target[:0] = target[:10]
    return [Found(Kind.DOUBLED, 0, 10, 10)]


def _nulls_for_a_batch(target: list[Made]) -> list[Found]:
    target[100:110] = [record._replace(value=None) for record in target[100:110]]
    return [Found(Kind.CONTENT, 100, 100, 10, ("value",))]


_TRACE, _TYPE = ("trace", b"t66"), ("type", b"order")

MORE_DAMAGES = [
    Damage("two records exchanged that are far apart", _exchanged_far),
    Damage("exchanged timestamps", _exchanged_times),
    Damage("a record three times", _tripled),
    Damage("each record twice", _each_doubled),
    Damage("all of it twice", _all_doubled),
    Damage("a batch three times", _twice_repeated),
    Damage("a record lost and the last one doubled", _lost_and_doubled),
    Damage("the first batch lost and the last one doubled", _first_batch_lost_and_last_doubled),
    Damage("the tail cut off and refilled by others", _tail_refilled),
    Damage("the topic emptied and refilled by others", _refilled),
    Damage("all timestamps an hour later", _all_late),
    Damage("a foreign record in front of each batch", _foreign_in_each_batch),
    Damage("a foreign value of a key", _foreign_with_a_key),
    Damage("a record changed and the next one lost", _changed_and_lost),
    Damage("all lost but one between two others", _lost_around),
    Damage("the first batch repeated at once", _repeated_at_the_front),
    Damage("a batch of deletions in the place of values", _nulls_for_a_batch),
    Damage("a key that is in the value", _fields(66, "key", "value", key=None, value=b"key-66")),
    Damage("a value that is in the key", _fields(66, "key", "value", key=numbered(66).value, value=None)),
    Damage("a key and a timestamp", _fields(66, "key", "timestamp", key=b"x", time_ms=5)),
    Damage("a timestamp that is not there", _fields(66, "timestamp", time_ms=-1)),
    Damage("a timestamp of 1970", _fields(66, "timestamp", time_ms=0)),
    Damage("a key with a zero behind it", _fields(66, "key", key=b"key-66\0")),
    Damage(
        "the values of a repeated header exchanged",
        _fields(34, "headers", headers=(("null", None), ("empty", b""), ("twice", b"b"), ("twice", b"a"))),
    ),
    Damage("a header twice", _fields(66, "headers", headers=(_TRACE, _TRACE, _TYPE))),
    Damage("a header without a name", _fields(66, "headers", headers=(_TRACE, _TYPE, ("", b"")))),
    Damage("a header whose name and value are exchanged", _fields(66, "headers", headers=(_TRACE, ("order", b"type")))),
    Damage("a header's name that is not UTF-8", _fields(66, "headers", headers=(_TRACE, ("type\udcff", b"order")))),
    Damage("all of a record but its time", _fields(66, "key", "value", "headers", key=b"x", value=b"y", headers=())),
]
