"""Records that the target would refuse, and failing transforms: errors name them in one line, with the offset."""

from __future__ import annotations

import operator
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.errors import FlowError, RecordRejected
from mirror.relay.batches.reencode import ReencodeReason, ReencodeResult, ReencodeSpec, TimestampRule, reencode
from mirror.relay.batches.transforms import Transform, load_transform, one_at_a_time
from mirror.wire.decode import Record, records_of
from mirror.wire.encode import BatchBuilder
from mirror.wire.records import Batch

EARLIEST, LATEST = 1_600_000_000_000, 1_700_000_000_000


def source(times: Sequence[int] = (LATEST,)) -> Batch:
    """Build records b"0", b"1", ... with these timestamps, from offset 0 on."""
    builder = BatchBuilder("none", 1_000_000)
    for number, time_ms in enumerate(times):
        assert builder.append(b"key", b"%d" % number, (), time_ms)
    return builder.build()


def rule(policy: str) -> ReencodeSpec:
    return ReencodeSpec(timestamps=TimestampRule(EARLIEST, LATEST, policy))


def read(made: ReencodeResult) -> list[Record]:
    return [one for part in made.batches for one in records_of(part.batch)]


# --- times


@pytest.mark.parametrize("policy", ["fail", "clamp", "skip"])
def test_allowed_timestamp_is_unchanged(policy: str) -> None:
    times = [EARLIEST, LATEST, -1, EARLIEST + 1]
    made = reencode([source(times)], rule(policy))
    assert [one.timestamp_ms for one in read(made)] == times
    assert made.dropped == {}


def test_timestamp_after_the_latest_fails_with_advice() -> None:
    with pytest.raises(RecordRejected) as caught:
        reencode([source([LATEST, LATEST + 1])], rule("fail"))
    assert caught.value.code == 32
    assert str(caught.value) == (
        "the record at offset 1 has the time 1700000000001 (2023-11-14 22:13:20 UTC), after what the target allows"
        " (1700000000000 (2023-11-14 22:13:20 UTC)): raise message.timestamp.after.max.ms of the target topic,"
        ' or set on-bad-timestamp = "clamp", "skip" or "aside"'
    )


def test_timestamp_before_the_earliest_names_the_other_key() -> None:
    with pytest.raises(
        RecordRejected, match=r"offset 0 .*before what the target .*message\.timestamp\.before\.max\.ms"
    ):
        reencode([source([EARLIEST - 1])], rule("fail"))


@pytest.mark.parametrize("time", [2**63 - 1, -(2**62)])
def test_timestamp_without_a_date_is_shown_as_a_number(time: int) -> None:
    with pytest.raises(RecordRejected, match=rf"has the time {time}, "):
        reencode([source([time])], rule("fail"))


@given(times=st.lists(st.integers(-5, 2**62), min_size=1, max_size=8))
def test_clamped_timestamp_is_the_nearest_allowed(times: list[int]) -> None:
    made = reencode([source(times)], rule("clamp"))
    assert [one.timestamp_ms for one in read(made)] == [
        time if time == -1 else min(max(time, EARLIEST), LATEST) for time in times
    ]
    assert [one.value for one in read(made)] == [b"%d" % number for number in range(len(times))]


def test_skipped_timestamps_are_counted_and_progress_passes_them() -> None:
    made = reencode([source([EARLIEST - 1, LATEST, LATEST + 1])], rule("skip"))
    assert [one.value for one in read(made)] == [b"1"]
    assert made.dropped == {ReencodeReason.BAD_TIMESTAMP: 2}
    assert [(part.base_offset, part.next_offset) for part in made.batches] == [(1, 3)]
    assert reencode([source([EARLIEST - 1])], rule("skip")).batches == []


def test_timestamp_is_checked_after_the_transform() -> None:
    recipe = ReencodeSpec(
        timestamps=TimestampRule(EARLIEST, LATEST, "fail"), transform=lambda one: one._replace(timestamp_ms=LATEST)
    )
    assert [one.timestamp_ms for one in read(reencode([source([LATEST + 1])], recipe))] == [LATEST]


# --- transforms


def broken(record: Record) -> Record:
    """Raise on the second record, with a text of two lines."""
    if record.value == b"1":
        raise ValueError("not\n  this one")
    return record


def test_transform_that_raises_is_named_with_offset_and_cause() -> None:
    with pytest.raises(FlowError) as caught:
        reencode([source([1, 2])], ReencodeSpec(transform=broken))
    assert str(caught.value) == f"transform {__name__}:broken failed at offset 1: ValueError: not this one"
    assert isinstance(caught.value.__cause__, ValueError)


class _Callable:
    def __call__(self, record: Record) -> Record | None:
        raise KeyError(record.offset)


def test_callable_transform_is_named_by_its_class() -> None:
    with pytest.raises(FlowError, match=r":_Callable failed at offset 0: KeyError: 0$"):
        reencode([source()], ReencodeSpec(transform=_Callable()))


@pytest.mark.parametrize("wrong", [b"bytes", 1, (0, 0, None, None, ())])
def test_transform_that_returns_no_record_is_named(wrong: object) -> None:
    transform: Transform = lambda _: wrong  # type: ignore[assignment,return-value] # noqa: E731 - it is what is tried
    with pytest.raises(FlowError, match=rf"<lambda> gave a {type(wrong).__name__}, not a Record or None at offset 0$"):
        reencode([source()], ReencodeSpec(transform=transform))


@pytest.mark.parametrize(
    "wrong",
    [
        {"key": "text"},
        {"value": 1},
        {"timestamp_ms": "now"},
        {"timestamp_ms": 2**63},
        {"timestamp_ms": None},
        {"headers": None},
        {"headers": (("name", 1),)},
        {"headers": (("name",),)},
        {"headers": ((b"name", b"1"),)},
        {"headers": (("\ud800", b"1"),)},
    ],
    ids=str,
)
def test_transform_that_returns_an_invalid_record_is_named(wrong: dict[str, object]) -> None:
    recipe = ReencodeSpec(transform=lambda one: one._replace(**wrong))  # type: ignore[arg-type] # it is what is tried
    with pytest.raises(FlowError, match=r"gave what is no record at offset 0: \w+: "):
        reencode([source()], recipe)
    # It is looked at before it comes to the codec, too.
    recipe = ReencodeSpec(
        transform=recipe.transform, headers=(("h", b"1"),), timestamps=TimestampRule(0, 2**64, "clamp")
    )
    with pytest.raises(FlowError, match=r"gave what is no record at offset 0: \w+: "):
        reencode([source()], recipe)


# --- their names


def test_transform_is_loaded_by_its_name() -> None:
    assert load_transform("operator:itemgetter") is __import__("operator").itemgetter
    assert load_transform("os.path:basename")("a/b") == "b"  # type: ignore[arg-type,comparison-overlap] # any function


def test_the_current_folder_is_searched_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("mirror", "colorsys", "mirror_own_transform"):
        (tmp_path / f"{name}.py").write_text("def rgb_to_hsv(*record):\n    return 'own'\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry])
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)
    before = list(sys.path)
    for _ in range(2):
        own, pythons = (load_transform(f"{name}:rgb_to_hsv") for name in ("mirror_own_transform", "colorsys"))
        assert (own.__module__, pythons.__doc__) == ("mirror_own_transform", None)
        assert pythons.__code__.co_argcount == 3
    assert sys.path == [*before, ""]


def test_transform_runs_for_one_record_at_a_time_in_all_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoder and the searches for a position load it separately."""
    inside, overlaps = list[int](), list[int]()

    class Keeper:
        def __call__(self, one: Record) -> Record | None:
            inside.append(one.offset)
            time.sleep(0.001)
            overlaps.append(len(inside))
            inside.remove(one.offset)
            return None if one.offset else one

    module = ModuleType("keeping_state")
    module.keep = Keeper()  # type: ignore[attr-defined] # as if it were imported
    monkeypatch.setitem(sys.modules, "keeping_state", module)
    loaded = [one_at_a_time("keeping_state:keep") for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda n: loaded[n % 4](Record(n, 0, None, None, ())), range(20)))
    assert overlaps == [1] * 20
    assert [one is not None for one in results] == [True] + [False] * 19


def test_transform_that_is_an_object_is_named_by_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("an_object")
    module.get = operator.itemgetter(9)  # type: ignore[attr-defined] # a record has five fields
    monkeypatch.setitem(sys.modules, "an_object", module)
    with pytest.raises(FlowError, match=r"^transform operator:itemgetter failed at offset 0: IndexError"):
        reencode([source()], ReencodeSpec(transform=one_at_a_time("an_object:get")))


@pytest.mark.parametrize("name", ["operator", "operator:", ":itemgetter", ":", "operator.itemgetter"])
def test_malformed_transform_name_is_refused(name: str) -> None:
    with pytest.raises(FlowError, match=f'^transform = "{name}": give it as "package.module:function"$'):
        load_transform(name)


def test_missing_transform_is_named() -> None:
    with pytest.raises(FlowError, match=r'^transform = "no.such:thing" cannot be loaded: ModuleNotFoundError: No mod'):
        load_transform("no.such:thing")
    with pytest.raises(FlowError, match=r"cannot be loaded: AttributeError: .*no_such"):
        load_transform("operator:no_such")
    with pytest.raises(FlowError, match=r'"os:name" is str, not a function of one record$'):
        load_transform("os:name")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("raise RuntimeError('two\\nlines')", "RuntimeError: two lines$"),
        ("import sys; sys.exit('no')", "SystemExit: no$"),
        ("def f(:", "SyntaxError: "),
    ],
)
def test_failing_import_of_a_transform_is_reported_in_one_line(
    text: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    name = f"broken_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(FlowError, match=why) as caught:
        load_transform(f"{name}:function")
    assert "\n" not in str(caught.value)
