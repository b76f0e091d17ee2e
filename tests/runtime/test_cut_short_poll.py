"""Ctrl-C in a poll must not lose what was on its way."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest

from mirror.client import Consumer, Fetched, TopicPartition

TP = TopicPartition("orders", 0)


def fetched(offset: int) -> Fetched:
    return Fetched(tp=TP, offset=offset, next_offset=offset + 1)


@pytest.mark.parametrize("arrives", ["before the next poll", "during the next poll", "never"])
def test_what_a_poll_cut_short_would_have_returned_comes_with_the_next(
    arrives: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Consumer({"bootstrap.servers": "127.0.0.1:9"}) as consumer:
        consumer.assign([TP])
        waited: list[Future[Any]] = []

        def cut_short(future: Future[Any], _stuck_ms: int) -> Any:
            waited.append(future)
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(consumer._thread, "wait", cut_short)
            with pytest.raises(KeyboardInterrupt):
                consumer.poll(60_000)
        if arrives == "before the next poll":
            waited[0].set_result([fetched(1)])
            assert [one.offset for one in consumer.poll(0)] == [1]
        elif arrives == "during the next poll":

            def answered(_future: Future[Any], _stuck_ms: int) -> Any:
                waited[0].set_result([fetched(1)])
                return [fetched(2)]

            with monkeypatch.context() as patch:
                # The network thread is not to answer the older poll itself.
                patch.setattr(consumer._thread, "submit", lambda _core, _event: None)
                patch.setattr(consumer._thread, "wait", answered)
                assert [one.offset for one in consumer.poll(60_000)] == [1, 2]
        assert consumer.poll(0) == []
