"""What a flow's aside topic explains of each partition, without the records' content. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from mirror.relay.batches.aside import COPIED, CORRUPT, AsideRecord, Settlement
from mirror.verify.items import digest_of
from mirror.verify.values import Aside, AsideContents
from mirror.wire.decode import Record


@dataclass(slots=True)
class _Found:
    records: dict[int, Aside] = field(default_factory=dict)
    batches: dict[tuple[int, int], bool] = field(default_factory=dict)
    copied: set[int] = field(default_factory=set)


def contents_of(found: Iterable[AsideRecord | Settlement]) -> dict[tuple[str, int], AsideContents]:
    """Return the contents by source topic and partition."""
    partitions = dict[tuple[str, int], _Found]()
    for one in found:
        place = one.place
        of = partitions.setdefault((place.topic, place.partition), _Found())
        if isinstance(one, Settlement):
            _settle(of, one)
        elif one.reason == CORRUPT:
            of.batches.setdefault((place.offset, one.end), False)
        else:
            as_written = Record(place.offset, one.timestamp_ms, one.key, one.value, one.headers)
            known = of.records.get(place.offset)
            if known is None or known.timestamp_ms != one.timestamp_ms:  # of a topic that was made again: the last one
                of.records[place.offset] = Aside(digest_of(as_written), one.timestamp_ms, settled=False)
    return {key: AsideContents(of.records, of.batches, frozenset(of.copied)) for key, of in sorted(partitions.items())}


def _settle(of: _Found, one: Settlement) -> None:
    offset = one.place.offset
    if (record := of.records.get(offset)) is not None and record.timestamp_ms == one.timestamp_ms:
        of.records[offset] = record._replace(settled=True)
    of.batches.update({span: True for span in of.batches if span[0] == offset})
    if one.what == COPIED:
        of.copied.add(one.target_offset)
