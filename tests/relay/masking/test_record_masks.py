"""Which records a test copy has, and what it masks of their keys, values and headers."""

from __future__ import annotations

import hashlib
import hmac
import pickle
import traceback
from collections.abc import Mapping
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.client import Record
from mirror.errors import FlowError, RecordNotMasked
from mirror.relay.batches.reencode import DROPPED_BY_TRANSFORM, ReencodeReason, ReencodeSpec, reencode
from mirror.relay.batches.transforms import Transform, transform_of
from mirror.relay.masking.record_masks import Masking, RecordMasks, Sample, check_masks, share_of
from mirror.relay.model.policy import CopyPolicy
from mirror.wire.decode import records_of
from tests.relay.batches.test_reencode import TIME, gappy

SECRET: Final = b"a secret of a test"


def masking(masks: Mapping[str, str], sample: str = "100%", *, leaves_out: bool = False) -> Masking:
    return Masking(sample=sample, masks=tuple(masks.items()), secret=SECRET, leaves_out=leaves_out)


def transform(masking: Masking, own: str = "") -> Transform:
    made = transform_of(CopyPolicy(masking=masking, transform=own))
    assert made is not None
    return made


def record(key: bytes | None = b"k", value: bytes | None = b"{}", *headers: tuple[str, bytes | None]) -> Record:
    return Record(7, TIME, key, value, headers)


def doubled(record: Record) -> Record | None:
    """A transform that makes JSON of what is none, and leaves something out."""
    if record.value == b"left out":
        return None
    return record.replace(value=b'{"card":"%s"}' % (record.value or b""), key=b"other")


# --- sample


@given(st.binary(max_size=40), st.fractions("0.00000001", 1), st.fractions("0.00000001", 1))
def test_a_key_is_in_or_out_by_its_bytes_alone(key: bytes, one: object, other: object) -> None:
    shares = sorted([share_of("100%") * one, share_of("100%") * other])  # type: ignore[operator]
    records = [Record(offset, offset * 3, key, value, ()) for offset, value in ((1, b"x"), (2, None))]
    small, large = ([Sample(share).has(record) for record in records] for share in shares)
    assert len(set(small)) == len(set(large)) == 1
    assert large[0] or not small[0]
    # By the documented hash: other programs may draw the same sample.
    number = int.from_bytes(hashlib.sha256(key).digest()[:8])
    assert small[0] == (shares[0] == 1 or number < int(shares[0] * 2**64))


@pytest.mark.parametrize(("text", "expected"), [("1%", 1_000), ("50%", 50_000), ("0.1%", 100), ("100%", 100_000)])
def test_a_sample_has_its_share_of_keys_and_of_records_without_a_key(text: str, expected: int) -> None:
    sample = Sample(share_of(text))
    for records in (
        [Record(0, 0, b"customer-%d" % number, None, ()) for number in range(100_000)],
        [Record(number, 0, None, b"same", ()) for number in range(100_000)],
    ):
        assert sum(map(sample.has, records)) == pytest.approx(expected, rel=0.25)


def test_a_sample_has_its_share_of_each_partition() -> None:
    """Partitions are by a hash, too, which must not decide with it."""
    from aiokafka.partitioner import murmur2

    sample, counts = Sample(share_of("10%")), [0] * 10
    for number in range(20_000):
        key = b"%d" % number
        if sample.has(record(key)):
            counts[(murmur2(key) & 0x7FFFFFFF) % 10] += 1
    assert all(count == pytest.approx(200, rel=0.35) for count in counts), counts


@pytest.mark.parametrize("text", ["", "1", "0%", "101%", "1e1%", "-1%", "0.0000001%", "1 %", "٣%", "000.0%"])
def test_what_is_no_share_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r'a percentage from "0\.000001%" to "100%"'):
        share_of(text)


# --- masks


@given(
    st.one_of(st.none(), st.binary()),
    st.one_of(st.none(), st.binary()),
    st.lists(st.tuples(st.sampled_from(["a", "b", "\udcff"]), st.one_of(st.none(), st.binary())), max_size=4),
)
def test_masks_of_any_bytes(key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]) -> None:
    masks = RecordMasks(masking({"key": "hash", "value": "constant:x", "header:a": "hash", "header:*": "drop"}))
    before = Record(3, 4, key, value, tuple(headers))
    after = masks.masked(before)
    assert after == masks.masked(before)
    assert (after.offset, after.timestamp_ms) == (3, 4)
    assert after.value == (None if value is None else b"x")
    assert (after.key is None) == (key is None)
    for was, now in [
        (key, after.key),
        *zip([v for n, v in headers if n == "a"], [v for _, v in after.headers], strict=True),
    ]:
        if was is None:
            assert now is None
        elif was.removeprefix(b"-").isdigit():
            assert now is not None
            assert (len(now), now.isdigit()) == (15, True)
        else:
            assert now == hmac.new(SECRET, was, "sha256").hexdigest()[:32].encode()
    assert {name for name, _ in after.headers} <= {"a"}


def test_a_text_has_one_pseudonym_in_keys_values_and_headers() -> None:
    masks = RecordMasks(masking(dict.fromkeys(("key", "value:$.id", "value:$.n", "header:h"), "hash")))
    found = masks.masked(record(b"bob", b'{"id":"bob"}', ("h", b"bob")))
    assert found.key is not None
    assert (found.value, found.headers) == (b'{"id":"%s"}' % found.key, (("h", found.key),))
    number = masks.masked(record(b"42", b'{"id":"42","n":42}'))
    assert number.value == b'{"id":"%s","n":%s}' % (number.key, number.key)
    other = RecordMasks(Masking(secret=b"another secret", masks=(("key", "hash"),)))
    assert other.masked(record(b"bob")).key != found.key


@pytest.mark.parametrize(
    ("action", "expected"),
    [
        ("hash", (("h", b"123456789012345"), ("h", None), ("o", b"2"))),
        ("null", (("h", None), ("h", None), ("o", b"2"))),
        ("drop", (("o", b"2"),)),
        ("constant:x", (("h", b"x"), ("h", None), ("o", b"2"))),
        ("keep", (("h", b"1"), ("h", None), ("o", b"2"))),
    ],
)
def test_headers(action: str, expected: tuple[tuple[str, bytes | None], ...]) -> None:
    masks = RecordMasks(masking({"header:h": action}))
    found = masks.masked(record(b"k", b"", ("h", b"1"), ("h", None), ("o", b"2"))).headers
    if action == "hash":
        assert found[0][1] != b"1"
        found = (("h", b"123456789012345"), *found[1:])
    assert found == expected


def test_a_json_key_is_masked_inside_and_a_tombstone_stays_one() -> None:
    masks = RecordMasks(masking({"key:$.id": "hash", "value:$.a": "null"}))
    found = masks.masked(record(b'{"id": "bob","t":1}', None))
    assert found.value is None
    assert found.key is not None
    assert b"bob" not in found.key
    assert found.key.endswith(b',"t":1}')


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (b"\x00\x00\x00\x00\x05\x10bob", "it is not JSON, but begins as a schema registry's serializers do"),
        (b"\xff{}", "it is not JSON"),
        ("\ufeff{}".encode(), "it is not JSON"),
        ('{"a":1}'.encode("utf-16-le"), "it is not JSON"),
        (b"", "it is not JSON"),
        (b'{"a":"bob"', "it is not JSON"),
        (b'{"a":[{"b":"bob"}]}', r"\$\.a is an array"),
    ],
)
def test_what_cannot_be_masked_stops_the_copy_with_its_place_and_without_its_content(
    value: bytes, message: str
) -> None:
    mask = transform(masking({"value:$.a.b" if b"[" in value else "value:$.a": "hash"}))
    sources = [gappy([(b"k", b'{"a":null}', [], TIME), (b"k", value, [], TIME)], [1, 1], "none", 0, 0)]
    with pytest.raises(
        RecordNotMasked, match=f"the value of the record at offset 1 cannot be masked: {message}"
    ) as caught:
        reencode(sources, ReencodeSpec(transform=mask))
    assert "bob" not in str(caught.value)
    assert 'on-unmaskable = "skip"' in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))  # noqa: S301 - as Spark does between a task and its driver
    assert (str(again), again.left_out) == (str(caught.value), False)


def test_what_cannot_be_masked_is_left_out_and_counted_if_the_flow_says_so() -> None:
    mask = transform(masking({"value:$.a": "null"}, leaves_out=True))
    values = [b'{"a":1}', b"no JSON", b'{"a":2}']
    made = reencode(
        [gappy([(b"k", one, [], TIME) for one in values], [1] * 3, "none", 0, 0)], ReencodeSpec(transform=mask)
    )
    assert [one.value for part in made.batches for one in records_of(part.batch)] == [b'{"a":null}'] * 2
    assert made.dropped == {ReencodeReason.UNMASKABLE: 1}


def test_the_sample_is_drawn_first_then_the_transform_then_the_masks() -> None:
    both = transform(masking({"value:$.card": "hash"}, "10%"), f"{__name__}:doubled")
    keys = [b"%d" % number for number in range(200)]
    drawn = [key for key in keys if Sample(share_of("10%")).has(record(key))]
    assert 0 < len(drawn) < 50
    values = [b"4711", b"left out"]
    sources = [gappy([(key, value, [], TIME) for key in keys for value in values], [1] * 400, "none", 0, 0)]
    made = reencode(sources, ReencodeSpec(transform=both))
    copies = [one for part in made.batches for one in records_of(part.batch)]
    assert [one.key for one in copies] == [b"other"] * len(drawn)
    assert all(one.value is not None and b"4711" not in one.value for one in copies)
    assert made.dropped == {DROPPED_BY_TRANSFORM: 400 - len(drawn)}


def refuses(record: Record) -> Record:
    raise ValueError(f"unexpected {record.value!r}")


def test_errors_of_a_transform_show_nothing_that_is_masked() -> None:
    source = gappy([(b"k", b"ann@example.com", [], TIME)], [1], "none", 7, 0)
    own = f"{__name__}:refuses"
    with pytest.raises(FlowError, match=r"refuses failed with ValueError, .* at offset 7") as raised:
        reencode([source], ReencodeSpec(transform=transform(masking({"value:$.a": "null"}), own)))
    assert "ann@" not in "".join(traceback.format_exception(raised.value))
    with pytest.raises(FlowError, match=r"ann@example.com"):  # a mere sample hides nothing
        reencode([source], ReencodeSpec(transform=transform(masking({}, "99.999999%"), own)))


def test_errors_of_the_flow_s_transform_name_it() -> None:
    failing = transform(masking({"value:$.a": "null"}), "operator:index")
    with pytest.raises(FlowError, match=r"transform _operator:index failed with TypeError, .* at offset 7"):
        reencode([gappy([(b"k", b"{}", [], TIME)], [1], "none", 7, 0)], ReencodeSpec(transform=failing))


# --- what a configuration may say


@pytest.mark.parametrize(
    ("masks", "message"),
    [
        ({"vlaue:$.a": "hash"}, 'a place is "key", "value", "key:$.PATH", "value:$.PATH" or "header:NAME"'),
        ({"value:": "hash"}, "a place is"),
        ({"header:": "hash"}, "a place is"),
        ({"headers": "hash"}, "a place is"),
        ({"value:a": "hash"}, "a path is"),
        ({"value:$a": "hash"}, "a path is"),
        ({"value:$..a": "hash"}, "a path is"),
        ({"value:$.a[0]": "hash"}, "a path is"),
        ({"value:$.a-b": "hash"}, "a path is"),
        ({"value:$.*": "hash"}, "a path is"),
        ({"value:$" + ".a" * 33: "hash"}, "at most 32 steps"),
        ({"value:$.a": "hsah"}, '"value:$.a" = "hsah": here a mask is "hash" or "null" or "constant:TEXT" or "keep"'),
        ({"value:$.a": "drop"}, "here a mask is"),
        ({"value:$.a": "constant"}, "here a mask is"),
        ({"value:$.a": "hash:"}, "here a mask is"),
        ({"value:$.a": "constant:x"}, 'a constant here is JSON, such as 0 or "none" with its quotes'),
        ({"value:$.a": "constant:NaN"}, "a constant here is JSON"),
        ({"value:$.a": "constant:\ud800"}, "a constant here is JSON"),
        ({"value": "null"}, 'here a mask is "hash" or "constant:TEXT"'),
        ({"value": "constant:\ud800"}, "text that UTF-8 can encode"),
        ({"key": "null"}, 'here a mask is "hash"'),
        ({"key:$.a": "null"}, 'here a mask is "hash" or "keep"'),
        ({"header:a": "last"}, 'here a mask is "hash" or "null" or "drop" or "constant:TEXT" or "keep"'),
        ({"value:$.a": "hash", "value:$['a']": "null"}, "are the same place: remove one"),
        ({"value:$.a": "hash", "value": "hash"}, '"value" masks all of it, with "value:$.a": remove one'),
    ],
)
def test_what_is_wrong_with_a_table_of_masks_is_said(masks: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - its text is what this is about
        check_masks(masks)
    assert message in str(caught.value)


def test_what_is_right_passes() -> None:
    check_masks(
        {
            "key:$": "hash",
            "value:$": "null",
            "value:$.id": "keep",
            "value:$.a['b c'][*].d": 'constant:{"x":[1]}',
            "header:*": "drop",
            "header:x:y": "keep",
        }
    )


def test_no_secret_is_shown() -> None:
    shown = masking({"key": "hash"})
    assert SECRET.decode() not in repr(shown)
    assert SECRET.decode() not in repr(CopyPolicy(masking=shown))
