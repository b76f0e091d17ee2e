"""Writes a Spark checkpoint that continues on the target, beside the one of the source."""

from __future__ import annotations

from typing import Final

from mirror.errors import FlowError
from mirror.positions.checkpoint import COMMITS, OFFSETS, SOURCES, Checkpoint, last_batch, read_checkpoint, rewritten
from mirror.positions.files import Files
from mirror.positions.places import Found

UNFINISHED: Final = b"unfinished: mirror positions was interrupted; remove this checkpoint, and write it again\n"
"""In place of the last ``offsets/N`` until all else is there: no Spark takes it for a version."""


class CheckpointFolder:
    """A checkpoint of the source. It is only read."""

    def __init__(self, files: Files, path: str) -> None:
        """``path`` is its ``checkpointLocation``."""
        self._files: Final = files
        self._path: Final = path.rstrip("/") or path

    def read(self) -> Checkpoint:
        """Return what has positions in it. Raises FlowError if Spark could not go on with it."""
        last = last_batch(self._names(OFFSETS), self._names(COMMITS), self._path)
        found = read_checkpoint(self._path, last, self._read, self._names(SOURCES))
        if self._read("metadata") is None:
            raise FlowError(f"{self._path}/metadata is missing: it has the id of the query")
        return found

    # Invariant: A checkpoint that is not whole is refused by Spark, instead of beginning somewhere else.
    # Test: tests/positions/test_continuing.py::test_an_interrupted_checkpoint_is_one_that_spark_refuses
    def write(self, checkpoint: Checkpoint, found: Found, path: str) -> int:
        """Write the checkpoint with the target's positions to ``path``; return how many files it has.

        Raises FlowError if a position is not exact, ``path`` has something in it, or the query has gone on meanwhile.
        """
        path = path.rstrip("/") or path
        if f"{path}/".startswith(f"{self._path}/"):
            raise FlowError(f"{path} is within {self._path}: name a folder beside it")
        if self._files.names(path):
            raise FlowError(f"{path} has something in it: name another folder, or remove it")
        new = rewritten(checkpoint, found)
        last = f"{OFFSETS}/{checkpoint.last.number}"
        self._files.create(f"{path}/{last}", UNFINISHED)
        copied = [name for name in self._files.walk(self._path) if _is_copied(name, checkpoint) and name not in new]
        for name in copied:
            self._files.copy(f"{self._path}/{name}", f"{path}/{name}")
        for name, content in new.items():
            if name != last:
                self._files.create(f"{path}/{name}", content)
        if self.read() != checkpoint:
            raise FlowError(f"the query of {self._path} has gone on meanwhile: stop it, remove {path}, and begin again")
        self._files.replace(f"{path}/{last}", new[last])
        return len(copied) + len(new)

    def _names(self, folder: str) -> list[str]:
        return self._files.names(f"{self._path}/{folder}")

    def _read(self, name: str) -> bytes | None:
        return self._files.read(f"{self._path}/{name}")


def _is_copied(name: str, checkpoint: Checkpoint) -> bool:
    """Whether a file is taken over as it is.

    Of the batches only the last ones are, and no checksum: Hadoop's are of the content of files that change. Where a
    Kafka source that has read something began is not read any more.
    """
    folder, _, rest = name.partition("/")
    file = name.rpartition("/")[2]
    if file.startswith(".") and file.endswith(".crc"):
        return False
    if folder == COMMITS:
        return rest in {f"{number}" for number in checkpoint.last.numbers}
    if folder == SOURCES:
        return rest.partition("/")[0] not in checkpoint.kafka_sources
    return folder != OFFSETS
