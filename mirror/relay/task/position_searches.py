"""The searches of a task for exact positions: each advances in slices, and rests while there is nothing to read.

A partition whose high watermark does not move must not occupy a thread, for which other partitions wait. So a slice
ends when nothing more comes, and the next one begins when the log has grown, which costs one small request a second.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import CancelledError, Future, InvalidStateError
from contextlib import suppress
from typing import Any, Final, Protocol

from mirror.client import TopicPartition
from mirror.errors import ClientClosed, KafkaTimeout
from mirror.producer.batch.queue import ProducerId
from mirror.relay.progress.committed import Progress
from mirror.relay.progress.position import Appenders, FoundPosition, OpenSearch, PositionQuery, PositionSearch
from mirror.relay.progress.target_loss import TargetLoss
from mirror.timing import FOREVER_MS

_MIN_REST_MS: Final = 20
_MAX_REST_MS: Final = 1_000
_MOST_TOGETHER: Final = 200
"""So many searches are read together at most: the first of them wait for the last ones."""


class TargetEnds(Protocol):
    """The part of ``ClusterLookups`` that is needed."""

    def log_end(self, tp: TopicPartition, timeout_ms: int) -> Future[tuple[int, int]]:
        """Return the high watermark of target ``tp``, and its leader's epoch."""
        ...


class PositionSearches:
    """Used on the task's thread; the results of slices and lookups arrive on other threads."""

    def __init__(
        self,
        positions: PositionSearch[Any],
        lookups: TargetEnds,
        submit: Callable[[Callable[[], Any]], Future[Any]],
        now: Callable[[], int],
        wake: Callable[[], None],
    ) -> None:
        """``submit`` runs a slice in a thread; ``wake`` has :meth:`update` called soon, and may be called by any."""
        self.positions: Final = positions
        self.lookups: Final = lookups
        self.submit: Final = submit
        self.now: Final = now
        self._wake: Final = wake
        self._to_rest: Final = deque[FenceSearch]()
        self._resting: Final = dict[FenceSearch, int]()
        self._to_read: Final = deque[FenceSearch]()
        self._reading = False
        """Whether a thread reads for several searches, or is about to."""
        self._lock: Final = threading.Lock()
        """Held to change :attr:`_reading`, and what waits for it."""

    def of(self, source: TopicPartition, target: TopicPartition) -> AttemptSearch:
        """Return the searches of another attempt at ``target``."""
        return AttemptSearch(self, source, target)

    def rest(self, search: FenceSearch) -> None:
        """Continue ``search`` after a while. May be called from any thread."""
        self._to_rest.append(search)
        self._wake()

    def read_together(self, search: FenceSearch) -> None:
        """Begin to read for ``search``, beside the others that begin meanwhile. May be called from any thread."""
        with self._lock:
            self._to_read.append(search)
            if self._reading:
                return
            self._reading = True
        try:
            self.submit(self._read_all).add_done_callback(self._on_all_read)
        except RuntimeError as error:  # the task has ended
            self._fail_all(ClientClosed(str(error)))

    def _read_all(self) -> None:
        while searches := self._take_to_read():
            waiting: dict[OpenSearch, FenceSearch] = {each.run: each for each in searches if not each.closed}

            def go_on(run: OpenSearch, waiting: dict[OpenSearch, FenceSearch] = waiting) -> None:
                waiting.pop(run).on_read()

            try:
                self.positions.read_together(list(waiting), go_on)
            finally:
                while waiting:
                    go_on(next(iter(waiting)))

    def _take_to_read(self) -> list[FenceSearch]:
        with self._lock:
            self._reading = bool(self._to_read)
            return [self._to_read.popleft() for _ in range(min(_MOST_TOGETHER, len(self._to_read)))]

    def _on_all_read(self, read: Future[None]) -> None:
        error = CancelledError() if read.cancelled() else read.exception()
        if error is not None:
            self._fail_all(error)

    def _fail_all(self, error: BaseException) -> None:
        """The thread has ended: let those fail that wait for it."""
        while searches := self._take_to_read():
            for search in searches:
                search.on_error(error)

    def update(self, now: int) -> None:
        """Continue the searches that have rested."""
        while self._to_rest:
            search = self._to_rest.popleft()
            self._resting[search] = now + search.next_rest_ms()
        for search in [search for search, due_ms in self._resting.items() if due_ms <= now]:
            del self._resting[search]
            search.resume(now)

    def due_ms(self) -> int:
        """Return when :meth:`update` is wanted next."""
        return min(self._resting.values(), default=FOREVER_MS)


class AttemptSearch:
    """The searches of one attempt at one partition: one for each of its fences."""

    def __init__(self, searches: PositionSearches, source: TopicPartition, target: TopicPartition) -> None:
        self._searches: Final = searches
        self._source: Final = source
        self._target: Final = target
        self._current: FenceSearch | None = None
        self._closed = False

    @property
    def advanced_ms(self) -> int:
        """When it last read something new, in monotonic ms; 0 before it began."""
        return 0 if self._current is None else self._current.advanced_ms

    def find(
        self, progress: Progress, appenders: Appenders, fence: ProducerId, timeout_ms: int, loss: TargetLoss | None
    ) -> Future[FoundPosition]:
        """Search up to the marker of ``fence``; what an earlier fence of the attempt was searched for ends.

        The future fails if nothing new was read for ``timeout_ms``, and with ClientClosed once the attempt has ended.
        """
        query = PositionQuery(
            source=self._source, target=self._target, progress=progress, appenders=appenders, fence=fence, loss=loss
        )
        if self._current is not None:
            self._current.close()
        self._current = current = FenceSearch(self._searches, query, timeout_ms)
        if self._closed:  # read after the search was stored: close() has closed it, or is noticed here
            current.close()
        else:
            current.begin()
        return current.outcome

    def timeout_error(self) -> KafkaTimeout | None:
        """Return the error of the search in progress if it takes too long; None if there is none."""
        current = self._current
        return None if current is None or current.outcome.done() else current.timeout_error()

    def close(self) -> None:
        """Read nothing more; a search that has not ended fails. May be called from another thread than find()."""
        self._closed = True
        # The outcome's callbacks refer to the attempt, which refers to this.
        current, self._current = self._current, None
        if current is not None:
            current.close()


class FenceSearch:
    """One search, up to the marker of one fence."""

    def __init__(self, searches: PositionSearches, query: PositionQuery, timeout_ms: int) -> None:
        self.outcome: Final[Future[FoundPosition]] = Future()
        self._searches: Final = searches
        self._target: Final = query.target
        self._timeout_ms: Final = timeout_ms
        self.run: Final[OpenSearch] = searches.positions.begin(query)
        self._advanced_ms = 0
        self._rest_ms = _MIN_REST_MS
        self.closed = False
        """Whether its attempt has ended."""
        self._was_read = False

    @property
    def advanced_ms(self) -> int:
        """When it last read something new, in monotonic ms."""
        return self.run.advanced_ms

    def timeout_error(self) -> KafkaTimeout:
        """As the run says."""
        return self.run.timeout_error()

    def begin(self) -> None:
        """Begin to read."""
        self._ask()

    def close(self) -> None:
        """Read nothing more; a search that has not ended fails."""
        self.closed = True
        self.run.stop()
        self._fail(ClientClosed(f"{self._target}: the attempt has ended before its exact position was found"))

    # --- slices, and rests between them

    def next_rest_ms(self) -> int:
        """Return how long to rest: longer each time, until something new was read."""
        advanced_ms = self.advanced_ms
        self._rest_ms = min(_MAX_REST_MS, 2 * self._rest_ms) if advanced_ms == self._advanced_ms else _MIN_REST_MS
        self._advanced_ms = advanced_ms
        return self._rest_ms

    def resume(self, now: int) -> None:
        """Continue after a rest."""
        if self.closed:
            return
        if now - self.run.advanced_ms >= self._timeout_ms:
            self.run.stop()
            self._fail(self.run.timeout_error())
        elif self.run.awaited_offset is None:
            self._advance()
        else:
            self._ask()

    def _ask(self) -> None:
        """Advance if there is more to read. A leader that is away must not occupy a thread."""
        self._searches.lookups.log_end(self._target, max(1, self._timeout_ms)).add_done_callback(self._on_end)

    def _on_end(self, found: Future[tuple[int, int]]) -> None:
        error = found.exception()
        if isinstance(error, KafkaTimeout):
            self._searches.rest(self)
        elif error is not None:
            self._fail(error)
        elif found.result()[0] == self.run.awaited_offset:
            self._searches.rest(self)
        elif self._was_read:
            self._advance()
        else:
            self._was_read = True
            self._searches.read_together(self)

    def on_read(self) -> None:
        """Go on: the target was read for several searches."""
        if self.run.settled:
            self._on_found(self.run.advance())
        else:
            self._advance()

    def on_error(self, error: BaseException) -> None:
        """Fail: with ClientClosed if a thread was not to run any more."""
        cancelled = isinstance(error, CancelledError)
        self._fail(ClientClosed(f"{self._target}: the task has ended") if cancelled else error)

    def _advance(self) -> None:
        if self.closed:
            return
        try:
            advanced = self._searches.submit(self.run.advance)
        except RuntimeError as error:  # the task has ended
            self._fail(ClientClosed(str(error)))
            return
        advanced.add_done_callback(self._on_advanced)

    def _on_advanced(self, advanced: Future[FoundPosition | None]) -> None:
        try:
            found = advanced.result()
        except (CancelledError, Exception) as error:  # noqa: BLE001 - it is passed on to the attempt
            self.on_error(error)
        else:
            self._on_found(found)

    def _on_found(self, found: FoundPosition | None) -> None:
        if found is None:
            self._searches.rest(self)
            return
        with suppress(InvalidStateError):  # it was closed meanwhile
            self.outcome.set_result(found)

    def _fail(self, error: BaseException) -> None:
        with suppress(InvalidStateError):  # it has ended
            self.outcome.set_exception(error)
