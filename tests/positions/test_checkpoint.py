"""What a Spark checkpoint becomes that continues on the target."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mirror.errors import FlowError
from mirror.positions.checkpoint import LastBatch, last_batch, rewritten
from mirror.positions.places import SourcePosition
from mirror.relay.offsets.index import Place
from tests.positions.golden import PLANNED, TWO, V2, moved, read

AT_7 = frozenset({SourcePosition("orders", 0, 7), SourcePosition("orders", 1, 7), SourcePosition("clicks", 0, 14)})
AT_5 = frozenset({SourcePosition("orders", 0, 5), SourcePosition("orders", 1, 5), SourcePosition("clicks", 0, 10)})


@pytest.fixture
def uncommitted(tmp_path: Path) -> Path:
    """Batch 1 is planned, and perhaps written."""
    folder = tmp_path / "cp"
    shutil.copytree(TWO, folder)
    (folder / "commits/1").unlink()
    return folder


def _lines(content: bytes) -> list[str]:
    return content.decode().splitlines()[2:]


def test_a_committed_batch_is_where_the_query_continues() -> None:
    found = read(TWO)
    assert (found.last, found.needed, found.wanted) == (LastBatch(1, is_committed=True), AT_7, AT_7 | AT_5)
    files = rewritten(found, moved(found.wanted))
    assert files.keys() == {"offsets/0", "offsets/1"}
    assert _lines(files["offsets/1"]) == ['{"a.orders":{"0":107,"1":107}}', '{"a.clicks":{"0":114}}']
    assert _lines(files["offsets/0"]) == ['{"a.orders":{"0":105,"1":105}}', '{"a.clicks":{"0":110}}']
    assert files["offsets/1"].splitlines()[:2] == (TWO / "offsets/1").read_bytes().splitlines()[:2]


# Spark runs it again from its beginning to its end.
def test_both_ends_of_a_planned_batch_are_needed(uncommitted: Path) -> None:
    found = read(uncommitted)
    assert (found.last, found.needed) == (LastBatch(1, is_committed=False), AT_7 | AT_5)
    files = rewritten(found, moved(found.wanted))
    assert _lines(files["offsets/0"]) == ['{"a.orders":{"0":105,"1":105}}', '{"a.clicks":{"0":110}}']


def test_the_first_batch_begins_where_its_source_does() -> None:
    found = read(PLANNED)
    assert {one.offset for one in found.needed} == {0, 9}
    files = rewritten(found, moved(found.wanted))
    assert files["sources/0/0"] == b'\0v1\n{"a.orders":{"0":100,"1":100}}'
    assert _lines(files["offsets/0"]) == ['0:{"a.orders":{"0":109,"1":109}}']


def test_sources_with_names_keep_them() -> None:
    found = read(V2)
    files = rewritten(found, moved(found.wanted))
    assert _lines(files["offsets/0"]) == ['1:{"a.clicks":{"0":118}}', '0:{"a.orders":{"0":109,"1":109}}']
    assert files.keys() == {"offsets/0"}, "the first batch is committed: where it began is not read any more"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"place": Place.NOT_COPIED},
            "orders-0 at offset 7: not copied yet (the copy ends at offset 107 of a.orders-0)",
        ),
        ({"place": Place.UNKNOWN, "offset": None, "reason": "no index"}, "orders-0 at offset 7: unknown: no index"),
        ({"passed": 3}, "orders-0 at offset 7: the target has deleted 3 records from there on"),
    ],
)
def test_a_position_that_is_not_exact_is_refused(change: dict[str, object], words: str) -> None:
    found = read(TWO)
    places = moved(found.wanted)
    one = SourcePosition("orders", 0, 7)
    places[one] = places[one]._replace(**change)  # type: ignore[arg-type]
    with pytest.raises(FlowError) as caught:
        rewritten(found, places)
    assert str(caught.value) == f"nothing is written: {words}"


# Retention may have deleted it on both sides: no restart reads it.
def test_where_a_committed_batch_began_may_be_unknown() -> None:
    found = read(TWO)
    places = moved(found.wanted)
    for one in (SourcePosition("orders", 0, 5), SourcePosition("clicks", 0, 10)):
        places[one] = places[one]._replace(place=Place.UNKNOWN, offset=None)
    files = rewritten(found, places)
    assert _lines(files["offsets/0"]) == ['{"a.orders":{"0":107,"1":105}}', '{"a.clicks":{"0":114}}']


def test_the_beginning_of_a_planned_batch_may_not_be_unknown(uncommitted: Path) -> None:
    found = read(uncommitted)
    places = moved(found.wanted)
    one = SourcePosition("orders", 0, 5)
    places[one] = places[one]._replace(place=Place.UNKNOWN, offset=None)
    with pytest.raises(FlowError, match="orders-0 at offset 5: unknown"):
        rewritten(found, places)


def test_other_sources_stay_as_they_are(tmp_path: Path) -> None:
    folder = tmp_path / "cp"
    shutil.copytree(TWO, folder)
    for number in (0, 1):
        path = folder / f"offsets/{number}"
        path.write_text(path.read_text().replace('{"clicks":{"0":', '{"logOffset":').replace("}}", "}", 99))
        lines = path.read_text().split("\n")
        path.write_text("\n".join([lines[0], lines[1] + "}", lines[2] + "}", lines[3]]))
    found = read(folder)
    assert ([*found.kafka_sources], found.other_sources) == (["0"], ["1"])
    assert _lines(rewritten(found, moved(found.wanted))["offsets/1"])[1] == '{"logOffset":14}'


def test_the_beginning_of_another_source_is_not_read(tmp_path: Path) -> None:
    folder = tmp_path / "cp"
    shutil.copytree(PLANNED, folder)
    with (folder / "offsets/0").open("a") as file:
        file.write('\n1:{"logOffset":0}')
    (folder / "sources/1").mkdir()
    (folder / "sources/1/0").write_text('v1\n{"path":"file:///in/a","timestamp":1,"batchId":0}')
    found = read(folder)
    assert (found.other_sources, [*found.beginnings]) == (["1"], ["0"])


def test_a_checkpoint_of_another_source_is_refused(tmp_path: Path) -> None:
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0").write_text('v1\n{}\n{"logOffset":5}')
    with pytest.raises(FlowError) as caught:
        read(tmp_path)
    assert str(caught.value) == "cp has no Kafka source: the offset of its first source is '{\"logOffset\":5}'"


def test_a_source_without_a_record_yet_begins_where_it_did(tmp_path: Path) -> None:
    folder = tmp_path / "cp"
    shutil.copytree(TWO, folder)
    for number in (0, 1):
        path = folder / f"offsets/{number}"
        path.write_text("\n".join([*path.read_text().split("\n")[:-1], "-"]))
    found = read(folder)
    files = rewritten(found, moved(found.wanted))
    assert files["sources/1/0"] == b'\0v1\n{"a.clicks":{"0":100}}'
    assert _lines(files["offsets/1"])[1] == "-"
    (folder / "sources/1/0").unlink()
    assert "sources/1/0" not in rewritten(read(folder), moved(found.wanted)), "Spark makes it on a restart"


def test_a_missing_beginning_of_the_first_batch_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cp"
    shutil.copytree(PLANNED, folder)
    (folder / "sources/0/0").unlink()
    with pytest.raises(FlowError, match="cp/sources/0/0 is missing"):
        read(folder)


def test_a_file_without_its_last_line_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "cp"
    shutil.copytree(TWO, folder)
    path = folder / "offsets/1"
    path.write_text("\n".join(path.read_text().split("\n")[:-1]))
    with pytest.raises(FlowError, match="cp/offsets/1 is truncated: it has no line of source 1"):
        read(folder)


@pytest.mark.parametrize(
    ("offsets", "commits", "words"),
    [
        ([], [], "no query has planned a batch there"),
        ([".0.crc", "x.tmp"], [], "no query has planned a batch there"),
        (["3"], ["3"], "has batch 3 and not 2"),
        (["2", "3"], ["1"], "batch 3 is the last one in offsets/, and 1 in commits/"),
        (["2", "3"], [], "batch 3 is the last one in offsets/, and none in commits/"),
        (["2", "3"], ["4"], "batch 3 is the last one in offsets/, and 4 in commits/"),
    ],
)
def test_a_checkpoint_that_spark_could_not_go_on_with_is_refused(
    offsets: list[str], commits: list[str], words: str
) -> None:
    with pytest.raises(FlowError) as caught:
        last_batch(offsets, commits, "cp")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("offsets", "commits", "numbers", "is_committed"),
    [
        (["0"], [], (0,), False),
        (["0"], ["0"], (0,), True),
        (["9", "10", ".9.crc"], ["9"], (9, 10), False),
        (["9", "10"], ["9", "10"], (9, 10), True),
    ],
)
def test_the_last_batches_are_by_number(
    offsets: list[str], commits: list[str], numbers: tuple[int, ...], is_committed: bool
) -> None:
    found = last_batch(offsets, commits, "cp")
    assert (found.numbers, found.is_committed) == (numbers, is_committed)
