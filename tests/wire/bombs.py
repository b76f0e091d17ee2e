"""Batches of a few KB or MB that unfold to GBs: as a hostile producer sends them, header and checksum right.

Run as a program (codec, kind, bytes it may be) it reads one, and prints what came of it and what memory that took.
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

import cramjam

from mirror.errors import MirrorError
from mirror.relay.batches.reencode import ReencodeSpec, reencode
from mirror.wire.legacy import MessageSet
from mirror.wire.records import AnyBatch, Batch
from tests.fakes.record_batches import build
from tests.wire.legacy_sets import ATTRIBUTES_AT, messages, with_crc

CODECS = {"gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
MB = 1024 * 1024
_PIECE = 16 * MB
_XERIAL = b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1)


def bomb(codec: str, megabytes: int) -> bytes:
    """So many MB of zeros, compressed. Pieces behind each other are one stream to all of these formats."""
    if codec == "snappy":
        block = bytes(cramjam.snappy.compress_raw(bytes(MB)))
        return _XERIAL + (struct.pack(">i", len(block)) + block) * megabytes
    piece = bytes(getattr(cramjam, codec).compress(bytes(_PIECE)))
    return piece * (megabytes * MB // _PIECE)


def batch_bomb(codec: str, megabytes: int) -> Batch:
    """One record, it says."""
    return Batch(memoryview(sealed(build((b"",), base_offset=44, attributes=CODECS[codec]), bomb(codec, megabytes))))


def sealed(batch: bytearray, payload: bytes) -> bytearray:
    """``batch`` with another payload, and the length and checksum that belong to it (a fast one)."""
    from crc32c import crc32c

    made = bytearray(batch[:61]) + payload
    struct.pack_into(">i", made, 8, len(made) - 12)
    struct.pack_into(">I", made, 17, crc32c(memoryview(made)[21:]))
    return made


def set_bomb(codec: str, megabytes: int) -> MessageSet:
    """A message set of magic 1."""
    (made,) = messages(1, [(0, None, bomb(codec, megabytes))], [44])
    made[ATTRIBUTES_AT] = CODECS[codec]
    return MessageSet(memoryview(with_crc(made)))


def legal(codec: str, megabytes: int) -> Batch:
    """A batch of ``megabytes`` of records of 4 KB that are all alike: the most that compression can do, and legal."""
    from mirror.wire.encode import BatchBuilder

    builder = BatchBuilder(codec, 2**31 - 1)
    for number in range(megabytes * 256):
        builder.append(None, b"%04d" % (number % 10_000) + bytes(4_080), (), 1_700_000_000_000)
    return builder.build()


def main(codec: str, kind: str, most: int) -> None:
    """Reads one, as the deep path does."""
    one: AnyBatch
    if kind == "legal":
        one = legal(codec, 100)
    else:
        one = batch_bomb(codec, 2048) if kind == "batch" else set_bomb(codec, 2048)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak from here on
    before = _peak()
    try:
        made = reencode([one], ReencodeSpec(limit=MB, max_source_bytes=most))
        result = f"{len(made.batches)} batches, {sum(each.batch.count for each in made.batches)} records"
    except MirrorError as error:
        result = f"{type(error).__name__}: {error}"
    print(f"{one.size} bytes|{(_peak() - before) // 1024} MB|{result}")  # noqa: T201 - it is a program


def _peak() -> int:
    """KB, since it was reset."""
    status = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
