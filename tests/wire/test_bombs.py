"""A few KB that unfold to 2 GB cost no more than the limit; what is large and legal is read. In own processes."""

from __future__ import annotations

import subprocess
import sys
import time

import pytest

from mirror.errors import BatchTooLarge, CorruptBatch
from mirror.wire.decompress import MAX_DECOMPRESSED_BYTES, decompress
from tests.wire.bombs import CODECS, MB, bomb

_MOST = 16 * MB
_AROUND_MB = 8
"""For what the interpreter and the compressors take beside it: zstd's window is the largest."""


def _read(codec: str, kind: str, most: int) -> tuple[int, str]:
    """(MB that it took, what came of it)."""
    command = [sys.executable, "-m", "tests.wire.bombs", codec, kind, str(most)]
    result = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()
    _, took, what = result.split("|")
    return int(took.removesuffix(" MB")), what


@pytest.mark.parametrize("kind", ["batch", "set"])
@pytest.mark.parametrize("codec", CODECS)
def test_a_bomb_costs_no_more_memory_than_its_limit(codec: str, kind: str) -> None:
    took, what = _read(codec, kind, _MOST)
    assert took <= _MOST // MB + _AROUND_MB
    if (codec, kind) == ("zstd", "set"):
        assert (
            what
            == "CorruptBatch: the message set at offset 44 (magic 1) is corrupt: codec 4 is not valid in its format"
        )
        return
    assert what.startswith("BatchTooLarge: the " + ("batch" if kind == "batch" else "message set") + " at offset 44")
    assert what.endswith(f" bytes of {codec} that are more than {_MOST} when decompressed")


@pytest.mark.parametrize("codec", CODECS)
def test_what_unfolds_to_a_hundred_mb_and_is_legal_is_read_whole(codec: str) -> None:
    """In less than one and a half times its size."""
    took, what = _read(codec, "legal", MAX_DECOMPRESSED_BYTES)
    assert what == "100 batches, 25600 records"
    assert 95 <= took <= 150


@pytest.mark.parametrize("codec", CODECS)
def test_exactly_as_much_as_there_may_be_is_read(codec: str) -> None:
    data, number = memoryview(bomb(codec, 16)), CODECS[codec]
    assert decompress(number, data, _MOST, "it", reserve=61)[61:].nbytes == _MOST
    with pytest.raises(BatchTooLarge, match=f"it has {len(data)} bytes of {codec} that are more than {_MOST - 1} "):
        decompress(number, data, _MOST - 1, "it")


@pytest.mark.parametrize("length", [-1, 0, 2**31 - 1, 7])
def test_a_block_of_snappy_that_lies_about_its_length(length: int) -> None:
    data = bytearray(bomb("snappy", 1))
    data[16:20] = length.to_bytes(4, "big", signed=True)
    with pytest.raises(CorruptBatch, match="its snappy cannot be decompressed"):
        decompress(CODECS["snappy"], memoryview(data), MAX_DECOMPRESSED_BYTES, "it")


def test_snappy_that_says_it_is_4_gb_costs_nothing() -> None:
    began_s = time.thread_time()
    with pytest.raises(BatchTooLarge):
        decompress(CODECS["snappy"], memoryview(b"\xff\xff\xff\xff\x0f" + bytes(100)), MAX_DECOMPRESSED_BYTES, "it")
    assert time.thread_time() - began_s < 1
