"""The threads of a task beside its loop: an encoder, and a few for lookups that wait."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any, Final, TypeVar

from mirror.relay.batches.batch_pipeline import SubmitReencode
from mirror.relay.batches.encoder import Encoder
from mirror.relay.batches.reencode import ReencodeResult, ReencodeSpec, is_brief, reencode, reencode_steps
from mirror.relay.batches.transforms import Transform
from mirror.relay.futures import done, failed
from mirror.wire.records import AnyBatch

T = TypeVar("T")

_LOOKUP_THREADS: Final = 4
_CHANGE_THREADS: Final = 2
"""They read assignments, and what a partition needs that is taken, beside the lookups of thousands that fail."""
_SEARCH_THREADS: Final = 4
"""They read and compare logs, beside the lookups for which other partitions wait."""
_MAX_EXPANSION: Final = 4
"""A batch may decompress to this many times ``buffer.memory``: with the default, from 1 MB to a hundred."""


def max_decompressed_bytes(buffer_memory: int) -> int:
    """Return the largest size of a batch, decompressed, that a task decodes."""
    return _MAX_EXPANSION * buffer_memory


def _outcome_of(call: Callable[[], T]) -> Future[T]:
    """Return a future with what ``call`` returns, or raises."""
    try:
        return done(call())
    except Exception as error:  # noqa: BLE001 - the future has it, as that of another thread would
        return failed(error)


class TaskWorkers:
    """Re-encodes batches and runs lookups, so that the task's loop never waits for either."""

    def __init__(self, buffer_memory: int, transform: Transform | None, lookups: Executor | None = None) -> None:
        """``transform`` is the flow's; ``lookups`` replaces the threads."""
        self._encoder: Final = Encoder(buffer_memory)
        self._lookups: Final = lookups or ThreadPoolExecutor(_LOOKUP_THREADS, thread_name_prefix="mirror-inquiry")
        self._changes: Final = lookups or ThreadPoolExecutor(_CHANGE_THREADS, thread_name_prefix="mirror-change")
        self._searches: Final = lookups or ThreadPoolExecutor(_SEARCH_THREADS, thread_name_prefix="mirror-search")
        self._transform: Final = transform
        self._max_decompressed_bytes: Final = max_decompressed_bytes(buffer_memory)

    def submit(self, lookup: Callable[..., Any], *arguments: Any) -> Future[Any]:
        """Run ``lookup``, which may wait, in a thread."""
        return self._lookups.submit(lookup, *arguments)

    def submit_change(self, read: Callable[..., T], *arguments: Any) -> Future[T]:
        """Run ``read``, which reads what a change of the task's assignments needs, in a thread."""
        return self._changes.submit(read, *arguments)

    def submit_search(self, advance: Callable[[], T]) -> Future[T]:
        """Run a slice of a search in a thread, after those that were submitted before."""
        return self._searches.submit(advance)

    def reencoder(self, owner: Hashable) -> SubmitReencode:
        """Return a function that re-encodes batches in the encoder's thread, where owners take turns.

        What is brief is done at once: merging two small batches would take half a ms more if two threads had to wake.
        """

        def submit(sources: Sequence[AnyBatch], spec: ReencodeSpec) -> Future[ReencodeResult]:
            spec = replace(spec, transform=self._transform, max_source_bytes=self._max_decompressed_bytes)
            if is_brief(sources, spec):
                return _outcome_of(partial(reencode, sources, spec))
            return self._encoder.submit(owner, partial(reencode_steps, sources, spec))

        return submit

    def close(self) -> None:
        """Start nothing more; lookups that run end by their own timeouts."""
        self._encoder.close()
        self._lookups.shutdown(wait=False, cancel_futures=True)
        self._changes.shutdown(wait=False, cancel_futures=True)
        self._searches.shutdown(wait=False, cancel_futures=True)
