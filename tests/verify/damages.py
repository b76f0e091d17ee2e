"""Kinds of damage to the records of a target: each changes a list of records, and says what is to be found.

They are lists of records, so that real clients can write them, too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from mirror.verify.values import Kind
from tests.relay.batches.logs_by_hand import Made
from tests.verify.logs import RECORDS, Found, numbered

FOREIGN = Made(b"foreign", b"not of the source", (), 1_600_000_000_000)

Change = Callable[[list[Made]], list[Found]]
"""Changes the target's records in place. Returns what is to be found, with target offsets from 0."""


class Damage(NamedTuple):
    name: str
    change: Change


def source_records() -> list[Made]:
    """Records with nulls and empty parts among them."""
    records = [numbered(number) for number in range(RECORDS)]
    records[35] = records[35]._replace(key=None)
    records[36] = records[36]._replace(key=b"")
    records[32] = records[32]._replace(value=None)
    records[33] = records[33]._replace(value=b"")
    records[34] = records[34]._replace(headers=(("null", None), ("empty", b""), ("twice", b"a"), ("twice", b"b")))
    return records


def _without(*numbers: int) -> Change:
    def change(target: list[Made]) -> list[Found]:
        for number in reversed(numbers):
            del target[number]
        return [Found(Kind.MISSING, number, number - at) for at, number in enumerate(numbers)]

    return change


def _run_missing(start: int, stop: int) -> Change:
    def change(target: list[Made]) -> list[Found]:
        del target[start:stop]
        return [Found(Kind.MISSING, start, start, stop - start)]

    return change


def _again(start: int, stop: int, at: int) -> Change:
    """The records from ``start`` on are there once more, in front of the one that was ``at``."""

    def change(target: list[Made]) -> list[Found]:
        target[at:at] = target[start:stop]
        return [Found(Kind.DOUBLED, start, at, stop - start)]

    return change


def _altered(number: int, part: str, **fields: object) -> Change:
    def change(target: list[Made]) -> list[Found]:
        target[number] = target[number]._replace(**fields)  # type: ignore[arg-type] # of the field that is named
        return [Found(Kind.CONTENT, number, number, 1, (part,))]

    return change


def _value(number: int, alter: Callable[[bytes], bytes | None]) -> Change:
    return _altered(number, "value", value=alter(numbered(number).value or b""))


def _moved(number: int, to: int) -> Change:
    """The record is where the one with the number ``to`` was."""

    def change(target: list[Made]) -> list[Found]:
        target.insert(to, target.pop(number))
        return [Found(Kind.ORDER, number, to)]

    return change


def _batches_exchanged(target: list[Made]) -> list[Found]:
    target[50:70] = target[60:70] + target[50:60]
    return [Found(Kind.ORDER, 60, 50, 10)]


def _reversed(target: list[Made]) -> list[Found]:
    target[50:53] = target[52:49:-1]
    return [Found(Kind.ORDER, 52, 50), Found(Kind.ORDER, 51, 51)]


def _foreign(at: int, count: int = 1) -> Change:
    def change(target: list[Made]) -> list[Found]:
        target[at:at] = [FOREIGN._replace(value=b"%d" % n) for n in range(count)]
        return [Found(Kind.FOREIGN, at, at, count)]

    return change


def _replaced(target: list[Made]) -> list[Found]:
    target[77] = FOREIGN
    return [Found(Kind.MISSING, 77, 77), Found(Kind.FOREIGN, 78, 77)]


def _other_values(target: list[Made]) -> list[Found]:
    """A batch of as many records, with other values."""
    target[120:130] = [one._replace(value=b"other " + one.key if one.key else b"") for one in target[120:130]]
    return [Found(Kind.CONTENT, 120, 120, 10, ("value",))]


def _other_content(target: list[Made]) -> list[Found]:
    """A batch of as many records at the same times, with nothing else in common."""
    target[120:130] = [FOREIGN._replace(value=b"%d" % n, time_ms=one.time_ms) for n, one in enumerate(target[120:130])]
    return [Found(Kind.CONTENT, 120, 120, 10, ("key", "value", "headers"))]


def _shifted_times(target: list[Made]) -> list[Found]:
    target[120:130] = [one._replace(time_ms=one.time_ms + 1) for one in target[120:130]]
    return [Found(Kind.CONTENT, 120, 120, 10, ("timestamp",))]


def _exchanged_values(target: list[Made]) -> list[Found]:
    first, second = target[80], target[81]
    target[80:82] = [first._replace(value=second.value), second._replace(value=first.value)]
    return [Found(Kind.CONTENT, 80, 80, 2, ("value",))]


def _exchanged_keys(target: list[Made]) -> list[Found]:
    first, second = target[80], target[85]
    target[80], target[85] = first._replace(key=second.key), second._replace(key=first.key)
    return [Found(Kind.CONTENT, 80, 80, 1, ("key",)), Found(Kind.CONTENT, 85, 85, 1, ("key",))]


def _made_again_empty(target: list[Made]) -> list[Found]:
    target.clear()
    return [Found(Kind.MISSING, 0, 0, RECORDS)]


def _made_again_and_filled(target: list[Made]) -> list[Found]:
    """What came after the topic was made again."""
    del target[:150]
    return [Found(Kind.MISSING, 0, 0, 150)]


def _other_partition(target: list[Made]) -> list[Found]:
    """It got a record of another partition, which got one of this."""
    target[99] = numbered(99_000)
    return [Found(Kind.MISSING, 99, 99), Found(Kind.FOREIGN, 100, 99)]


def _several(target: list[Made]) -> list[Found]:
    """Damage of every kind."""
    target[10] = target[10]._replace(value=b"changed")
    del target[40]
    target.insert(79, target[78])  # the record 79, twice
    target.insert(150, FOREIGN)
    return [
        Found(Kind.CONTENT, 10, 10, 1, ("value",)),
        Found(Kind.MISSING, 40, 40),
        Found(Kind.DOUBLED, 79, 79),
        Found(Kind.FOREIGN, 150, 150),
    ]


def _late_by_one(target: list[Made]) -> list[Found]:
    """A record is lost, and another one is there in its place at the end, so that the counts agree."""
    del target[20]
    target.append(FOREIGN)
    return [Found(Kind.MISSING, 20, 20), Found(Kind.FOREIGN, RECORDS, RECORDS - 1)]


def _every_third_lost(target: list[Made]) -> list[Found]:
    lost = list(range(60, 90, 3))
    return _without(*lost)(target)


def _flipped(number: int, at: int, bit: int = 1) -> Change:
    def alter(value: bytes) -> bytes:
        return value[:at] + bytes((value[at] ^ bit,)) + value[at + 1 :]

    return _value(number, alter)


def _key(number: int, key: bytes | None) -> Change:
    return _altered(number, "key", key=key)


def _headers(number: int, *headers: tuple[str, bytes | None]) -> Change:
    return _altered(number, "headers", headers=headers)


def _time(number: int, time_ms: int) -> Change:
    return _altered(number, "timestamp", time_ms=time_ms)


_TIME = numbered(0).time_ms

DAMAGES = [
    Damage("a record left out", _without(57)),
    Damage("the first record left out", _without(0)),
    Damage("the last record left out", _without(RECORDS - 1)),
    Damage("the first record of a batch left out", _without(90)),
    Damage("the last record of a batch left out", _without(89)),
    Damage("a batch left out", _run_missing(90, 100)),
    Damage("the first batch left out", _run_missing(0, 10)),
    Damage("the tail cut off between batches", _run_missing(RECORDS - 30, RECORDS)),
    Damage("the tail cut off within a batch", _run_missing(RECORDS - 33, RECORDS)),
    Damage("more left out than the first window has", _run_missing(20, 180)),
    Damage("two records left out", _without(12, 160)),
    Damage("every third record left out", _every_third_lost),
    Damage("a record left out and another added", _late_by_one),
    Damage("the topic made again, and empty", _made_again_empty),
    Damage("the topic made again, with what came later", _made_again_and_filled),
    Damage("a record doubled", _again(58, 59, 59)),
    Damage("a record doubled ten later", _again(58, 59, 69)),
    Damage("the first record doubled", _again(0, 1, 1)),
    Damage("the last record doubled", _again(RECORDS - 1, RECORDS, RECORDS)),
    Damage("a batch doubled", _again(60, 70, 70)),
    Damage("a batch doubled much later", _again(10, 20, 190)),
    Damage("the last batch doubled", _again(RECORDS - 10, RECORDS, RECORDS)),
    Damage("a long run repeated", _again(0, 150, 150)),
    Damage("two neighbours exchanged", _moved(41, 40)),
    Damage("two batches exchanged", _batches_exchanged),
    Damage("three records reversed", _reversed),
    Damage("a record moved far ahead", _moved(180, 30)),
    Damage("a record moved back", _moved(20, 60)),
    Damage("a record moved far back", _moved(20, 190)),
    Damage("a record moved to the front", _moved(44, 0)),
    Damage("one bit of a value", _flipped(66, 5)),
    Damage("the last bit of the last value", _flipped(RECORDS - 1, -1 + len(numbered(RECORDS - 1).value or b""), 128)),
    Damage("the first bit of the first value", _flipped(0, 0, 128)),
    Damage("a value that is longer", _value(66, lambda value: value + b"\0")),
    Damage("a value that is cut off", _value(66, lambda value: value[:-1])),
    Damage("a value that became empty", _value(66, lambda _: b"")),
    Damage("a value that became null", _value(66, lambda _: None)),
    Damage("a null value that became empty", _altered(32, "value", value=b"")),
    Damage("an empty value that became null", _altered(33, "value", value=None)),
    Damage("exchanged values", _exchanged_values),
    Damage("a batch of as many other values", _other_values),
    Damage("a batch of as many other records", _other_content),
    Damage("one bit of a key", _key(66, b"key-67")),
    Damage("a key that became null", _key(66, None)),
    Damage("a null key that became empty", _key(35, b"")),
    Damage("an empty key that became null", _key(36, None)),
    Damage("exchanged keys", _exchanged_keys),
    Damage("another value of a header", _headers(66, ("trace", b"t67"), ("type", b"order"))),
    Damage("another name of a header", _headers(66, ("Trace", b"t66"), ("type", b"order"))),
    Damage("a header left out", _headers(66, ("trace", b"t66"))),
    Damage("all headers left out", _headers(66)),
    Damage("a header added", _headers(66, ("trace", b"t66"), ("type", b"order"), ("more", b""))),
    Damage("headers exchanged", _headers(66, ("type", b"order"), ("trace", b"t66"))),
    Damage(
        "a header that became empty from null",
        _headers(34, ("null", b""), ("empty", b""), ("twice", b"a"), ("twice", b"b")),
    ),
    Damage(
        "a header that became null from empty",
        _headers(34, ("null", None), ("empty", None), ("twice", b"a"), ("twice", b"b")),
    ),
    Damage("a repeated header once only", _headers(34, ("null", None), ("empty", b""), ("twice", b"b"))),
    Damage("a timestamp one later", _time(66, _TIME + 7 * 66 + 1)),
    Damage("a timestamp one earlier", _time(66, _TIME + 7 * 66 - 1)),
    Damage("the timestamp of the last record", _time(RECORDS - 1, _TIME)),
    Damage("the timestamps of a batch one later", _shifted_times),
    Damage("a foreign record", _foreign(75)),
    Damage("a foreign record in front", _foreign(0)),
    Damage("a foreign record at the end", _foreign(RECORDS)),
    Damage("a foreign batch", _foreign(70, 10)),
    Damage("more foreign records than the first window has", _foreign(70, 300)),
    Damage("a record replaced by a foreign one", _replaced),
    Damage("a record of another partition", _other_partition),
    Damage("damage of every kind", _several),
]
