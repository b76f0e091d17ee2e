"""Harmless differences between lists of records: what a flow makes of them, and what it permits."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace

from mirror.errors import RecordNotMasked
from mirror.verify.values import Named, Rules, TimeLimits
from mirror.wire.decode import Record
from tests.relay.batches.logs_by_hand import Made
from tests.verify.damages import FOREIGN, source_records
from tests.verify.harmless import RecordCase
from tests.verify.logs import RECORDS, by_sevens, numbered


def _same(records: list[Made]) -> list[Made]:
    return list(records)


def _singles(records: Sequence[Made]) -> list[list[Made]]:
    return [[record] for record in records]


def _at_once(records: Sequence[Made]) -> list[list[Made]]:
    return [list(records)]


def _uneven(records: Sequence[Made]) -> list[list[Made]]:
    cuts = [0, 1, 3, 20, 21, 60, 61, 62, 150, len(records)]
    return [list(records[start:stop]) for start, stop in itertools.pairwise(cuts)]


_ADDED = (("copied-by", b"mirror"), ("null", None))


def _with_headers(records: list[Made]) -> list[Made]:
    return [record._replace(headers=(*record.headers, *_ADDED)) for record in records]


def _upper(record: Record) -> Record | None:
    return record.replace(value=record.value.upper() if record.value else record.value)


def _uppered(records: list[Made]) -> list[Made]:
    return [record._replace(value=record.value.upper() if record.value else record.value) for record in records]


def _drop_fives(record: Record) -> Record | None:
    return None if record.key and record.key.endswith(b"5") else record


def _unmaskable_fives(record: Record) -> Record | None:
    if record.key and record.key.endswith(b"5"):
        raise RecordNotMasked("it is not JSON", left_out=True)
    return record


def _without_fives(records: list[Made]) -> list[Made]:
    return [record for record in records if not (record.key and record.key.endswith(b"5"))]


NOW = 1_700_000_500_000
_LIMITS = TimeLimits(before_ms=300_000, after_ms=600_000, first_copy_ms=NOW - 100_000, now_ms=NOW, policy="clamp")


def _at(time_ms: int) -> Callable[[], list[Made]]:
    def source() -> list[Made]:
        records = [numbered(n)._replace(time_ms=NOW - 50_000 + n) for n in range(RECORDS)]
        records[70:80] = [record._replace(time_ms=time_ms) for record in records[70:80]]
        return records

    return source


def _clamped_to(time_ms: int) -> Callable[[list[Made]], list[Made]]:
    def target(records: list[Made]) -> list[Made]:
        return records[:70] + [one._replace(time_ms=time_ms) for one in records[70:80]] + records[80:]

    return target


def _without(*numbers: int) -> Callable[[list[Made]], list[Made]]:
    return lambda records: [record for number, record in enumerate(records) if number not in numbers]


def _large() -> list[Made]:
    records = source_records()
    records[20] = records[20]._replace(value=bytes(50_000))
    return records


def _foreign_at(*places: int, count: int = 1) -> Callable[[list[Made]], list[Made]]:
    def target(records: list[Made]) -> list[Made]:
        found = list(records)
        for place in sorted(places, reverse=True):
            found[place:place] = [FOREIGN._replace(value=b"%d %d" % (place, n)) for n in range(count)]
        return found

    return target


def _repeated(start: int, stop: int) -> Callable[[list[Made]], list[Made]]:
    return lambda records: [*records[:stop], *records[start:]]


def _identical() -> list[Made]:
    return [Made(None, b"tick", (), 5)] * RECORDS


def _empties() -> list[Made]:
    return [Made(b"", b"", (("", b""),), n) for n in range(RECORDS)]


def _nulls() -> list[Made]:
    return [Made(None, None, (("h", None),), n) for n in range(RECORDS)]


def _timeless() -> list[Made]:
    return [numbered(n)._replace(time_ms=-1) for n in range(RECORDS)]


def _backwards() -> list[Made]:
    return [numbered(n)._replace(time_ms=RECORDS - n) for n in range(RECORDS)]


_PERMITTED = Rules(foreign_allowed=True)
_AT_LEAST_ONCE = Rules(repeats_allowed=True)

RECORD_CASES = [
    RecordCase("the same batches", Rules(), source_records, _same),
    *(
        RecordCase(f"the codec {codec}", Rules(), source_records, _same, codec=codec)
        for codec in ("none", "gzip", "snappy", "zstd")
    ),
    RecordCase("a batch for each record", Rules(), source_records, _same, layout=_singles),
    RecordCase("one batch", Rules(), source_records, _same, layout=_at_once),
    RecordCase("batches of seven", Rules(), source_records, _same, layout=by_sevens),
    RecordCase("batches of any size", Rules(), source_records, _same, layout=_uneven),
    RecordCase("batches of any size, in another codec", Rules(), source_records, _same, codec="zstd", layout=_uneven),
    RecordCase("records that are all the same", Rules(), _identical, _same, layout=by_sevens),
    RecordCase("empty keys and values", Rules(), _empties, _same, layout=by_sevens),
    RecordCase("null keys and values", Rules(), _nulls, _same, layout=by_sevens),
    RecordCase("timestamps that decrease", Rules(), _backwards, _same, layout=by_sevens),
    RecordCase("records without timestamps", Rules(), _timeless, _same, layout=by_sevens),
    RecordCase("headers that the flow adds", Rules(headers=_ADDED), source_records, _with_headers),
    RecordCase("a transform that changes", Rules(transform=_upper), source_records, _uppered),
    RecordCase(
        "a transform that drops", Rules(transform=_drop_fives), source_records, _without_fives, {Named.DROPPED: 19}
    ),
    RecordCase(
        "a transform and headers",
        Rules(transform=_upper, headers=_ADDED),
        source_records,
        lambda records: _with_headers(_uppered(records)),
        layout=by_sevens,
    ),
    RecordCase(
        "timestamps clamped because they were too old",
        Rules(times=_LIMITS),
        _at(5),
        _clamped_to(NOW - 300_000 - 90_000),
        {Named.CLAMPED: 10},
    ),
    RecordCase(
        "timestamps clamped because they were too new",
        Rules(times=_LIMITS),
        _at(NOW * 2),
        _clamped_to(NOW + 600_000 - 90_000),
        {Named.CLAMPED: 10},
    ),
    RecordCase(
        "records left out because they were too old",
        Rules(times=replace(_LIMITS, policy="skip")),
        _at(5),
        _without(*range(70, 80)),
        {Named.BAD_TIMESTAMP: 10},
    ),
    RecordCase(
        "records left out because they were too new",
        Rules(times=replace(_LIMITS, policy="skip")),
        _at(NOW * 2),
        _without(*range(70, 80)),
        {Named.BAD_TIMESTAMP: 10},
    ),
    RecordCase(
        "a record left out because it is too large",
        Rules(skips_above_bytes=10_000),
        _large,
        _without(20),
        {Named.TOO_LARGE: 1},
    ),
    RecordCase(
        "a record left out because it has no key",
        Rules(skips_keyless=True),
        source_records,
        _without(35),
        {Named.NO_KEY: 1},
    ),
    RecordCase(
        "records left out because they cannot be masked",
        Rules(transform=_unmaskable_fives),
        source_records,
        _without_fives,
        {Named.UNMASKABLE: 19},
    ),
    RecordCase("a permitted foreign record", _PERMITTED, source_records, _foreign_at(55), {Named.FOREIGN: 1}),
    RecordCase(
        "permitted foreign records at both ends",
        _PERMITTED,
        source_records,
        _foreign_at(0, RECORDS),
        {Named.FOREIGN: 2},
    ),
    RecordCase(
        "permitted foreign batches", _PERMITTED, source_records, _foreign_at(50, 120, count=100), {Named.FOREIGN: 200}
    ),
    RecordCase(
        "a permitted foreign record between any two",
        _PERMITTED,
        source_records,
        _foreign_at(*range(RECORDS)),
        {Named.FOREIGN: RECORDS},
    ),
    RecordCase("repetitions at least once", _AT_LEAST_ONCE, source_records, _repeated(90, 120), {Named.REPEATED: 30}),
    RecordCase(
        "the end repeated at least once", _AT_LEAST_ONCE, source_records, _repeated(150, RECORDS), {Named.REPEATED: 50}
    ),
    RecordCase(
        "all repeated at least once", _AT_LEAST_ONCE, source_records, _repeated(0, RECORDS), {Named.REPEATED: RECORDS}
    ),
]
