"""What a Spark checkpoint becomes that continues on the target. Pure.

On a restart Spark (``MicroBatchExecution.populateStartOffsets``) takes the last batch N that was planned, and the one
before it, without which it refuses to start. If N is committed, the next batch begins where N ends. If it is not, N is
run again, with just the records from the end of batch N-1 to the end of N: sinks may have some of them, and are exactly
once by the number of the batch (files, ``foreachBatch``) and the id of the query (Delta). So both are kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from mirror.errors import FlowError
from mirror.positions.places import Found, SourcePosition, check_exact
from mirror.positions.spark_log import (
    NOTHING,
    OffsetsFile,
    Positions,
    encode_initial,
    kafka_positions,
    parse_initial,
    parse_offsets,
    to_json,
)

OFFSETS: Final = "offsets"
COMMITS: Final = "commits"
SOURCES: Final = "sources"


class LastBatch(NamedTuple):
    """The last batch that a query has planned."""

    number: int
    is_committed: bool

    @property
    def numbers(self) -> tuple[int, ...]:
        """The batches that Spark needs for a restart, in order."""
        return (self.number - 1, self.number) if self.number else (0,)


def last_batch(offsets: Iterable[str], commits: Iterable[str], path: str) -> LastBatch:
    """Return the last batch of the checkpoint at ``path``, by the names of its files.

    Raises FlowError if the query has not begun, or Spark itself could not go on.
    """
    planned, committed = _numbers(offsets), _numbers(commits)
    if not planned:
        raise FlowError(f"{path} has no files in {OFFSETS}/: no query has planned a batch there, so it has no position")
    last = max(planned)
    if last and last - 1 not in planned:
        raise FlowError(
            f"{path}/{OFFSETS} has batch {last} and not {last - 1}, without which Spark does not go on; a query with"
            " asynchronous progress tracking is to be run once without it before it is moved"
        )
    done = max(committed, default=-1)
    if done not in {last, last - 1}:
        raise FlowError(
            f"{path} is not of a query that can go on: batch {last} is the last one in {OFFSETS}/, and"
            f" {'none' if done < 0 else done} in {COMMITS}/"
        )
    return LastBatch(last, done == last)


def _numbers(names: Iterable[str]) -> set[int]:
    return {int(name) for name in names if name.isdecimal()}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What has positions in a checkpoint."""

    path: str
    last: LastBatch
    logs: Mapping[int, OffsetsFile]
    """``offsets/N`` of the batches of :attr:`LastBatch.numbers`."""
    positions: Mapping[int, Mapping[str, Positions]]
    """Where these batches end, by the name of the Kafka source."""
    beginnings: Mapping[str, Positions]
    """``sources/NAME/0`` of the Kafka sources that have not read anything in front of the next batch to be run."""

    @property
    def needed(self) -> frozenset[SourcePosition]:
        """The positions that the restarted query reads from, and up to."""
        numbers = self.last.numbers[-1:] if self.last.is_committed else self.last.numbers
        ends = (one for number in numbers for found in self.positions[number].values() for one in found)
        return frozenset((*ends, *(one for found in self.beginnings.values() for one in found)))

    @property
    def wanted(self) -> frozenset[SourcePosition]:
        """All positions of these files: also where a committed batch began, for people who go back by one batch."""
        return self.needed | {one for found in self.positions[self.last.numbers[0]].values() for one in found}

    @property
    def kafka_sources(self) -> frozenset[str]:
        """The names of the Kafka sources."""
        return frozenset(name for found in self.positions.values() for name in found) | self.beginnings.keys()

    @property
    def other_sources(self) -> list[str]:
        """The names of sources that are not Kafka's, which are copied as they are."""
        return [name for name, _ in self.logs[self.last.number].sources if name not in self.kafka_sources]

    @property
    def topics(self) -> list[str]:
        """The source's topics."""
        return sorted({one.topic for one in self.wanted})


def read_checkpoint(
    path: str, last: LastBatch, read: Callable[[str], bytes | None], sources: Iterable[str]
) -> Checkpoint:
    """Return the positions of the checkpoint at ``path``. Raises FlowError with the path of a file that is wrong.

    ``read`` returns a file by its path within the checkpoint, None if there is none; ``sources`` are the names of the
    folders in ``sources/``.
    """
    logs, positions = dict[int, OffsetsFile](), dict[int, dict[str, Positions]]()
    for number in last.numbers:
        name = f"{OFFSETS}/{number}"
        logs[number] = parse_offsets(read(name) or b"", f"{path}/{name}")
        found = {
            source: kafka_positions(text, f"{path}/{name}") for source, text in logs[number].sources if text != NOTHING
        }
        positions[number] = {source: one for source, one in found.items() if one is not None}
    _check_sources(path, last, logs, sources)
    beginnings = dict[str, Positions]()
    start = last.number if last.is_committed else last.number - 1
    for source, text in logs[last.number].sources:
        has_begun = start >= 0 and dict(logs[start].sources).get(source, NOTHING) != NOTHING
        is_other = text != NOTHING and source not in positions[last.number]
        name = f"{SOURCES}/{source}/0"
        if has_begun or is_other:
            continue
        if (content := read(name)) is not None:
            beginnings[source] = parse_initial(content, f"{path}/{name}")
        elif text != NOTHING:
            raise FlowError(f"{path}/{name} is missing: it says where the first batch of source {source} begins")
    checkpoint = Checkpoint(path, last, logs, positions, beginnings)
    if not checkpoint.kafka_sources:
        offset = logs[last.number].sources[0][1]
        raise FlowError(f"{path} has no Kafka source: the offset of its first source is {offset[:40]!r}")
    return checkpoint


def _check_sources(path: str, last: LastBatch, logs: Mapping[int, OffsetsFile], folders: Iterable[str]) -> None:
    """Raise FlowError if the last file lacks a source that the one before it, or the folders, have."""
    there = {name for name, _ in logs[last.number].sources}
    known = {name for one in logs.values() for name, _ in one.sources}
    if logs[last.number].version == 1:
        known |= {name for name in folders if name.isdecimal()}
    if lacking := sorted(known - there):
        raise FlowError(f"{path}/{OFFSETS}/{last.number} is truncated: it has no line of source {', '.join(lacking)}")


def rewritten(checkpoint: Checkpoint, found: Found) -> dict[str, bytes]:
    """Return the files with the target's positions, by their paths within the checkpoint.

    Raises FlowError that names the positions if one that the query needs has no exact offset on the target.
    """
    check_exact(checkpoint.needed, found)
    ends = {one.tp: one for positions in checkpoint.positions[checkpoint.last.number].values() for one in positions}

    def text(positions: Positions) -> str:
        moved = (_moved(one, found, ends.get(one.tp)) for one in positions)
        return to_json(one for one in moved if one is not None)

    files = {
        f"{OFFSETS}/{number}": log.encoded({name: text(one) for name, one in checkpoint.positions[number].items()})
        for number, log in checkpoint.logs.items()
    }
    for name, positions in checkpoint.beginnings.items():
        files[f"{SOURCES}/{name}/0"] = encode_initial(text(positions))
    return files


def _moved(one: SourcePosition, found: Found, end: SourcePosition | None) -> tuple[str, int, int] | None:
    """Return a position on the target.

    Where a committed batch began is not read any more: if it is unknown, it is where the batch ends, and nothing if the
    partition is gone.
    """
    there = found[one]
    if there.offset is None and end is not None:
        there = found[end]
    return None if there.target is None or there.offset is None else (*there.target, there.offset)
