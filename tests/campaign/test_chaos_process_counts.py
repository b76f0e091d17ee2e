from __future__ import annotations

import os
import socket
import threading

import psutil

from tests.campaign.chaos.process_counts import Count, count, counted, excess, most

BEFORE = {"worker": Count(threads=10, sockets=20, children=0), "script": Count(5, 6, 1)}
ALLOWED = Count(threads=2, sockets=4, children=0)


def test_threads_and_sockets_are_counted() -> None:
    me = psutil.Process(os.getpid())
    before = count(me)
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)):
        threads = [threading.Thread(target=over.wait) for _ in range(3)]
        for thread in threads:
            thread.start()
        after = count(me)
        over.set()
        for thread in threads:
            thread.join()
    assert (after.threads - before.threads, after.sockets - before.sockets) == (3, 1)
    assert counted([("one", me), ("gone", psutil.Process(os.getpid()))])["one"].threads >= 1


def test_maxima_of_several_processes() -> None:
    assert most({"a": Count(1, 9, 2)}, {"a": Count(3, 4, 2), "b": Count(1)}) == {"a": Count(3, 9, 2), "b": Count(1)}


def test_excess_within_bounds_is_allowed() -> None:
    assert excess(BEFORE, BEFORE, ALLOWED) == []
    assert excess(BEFORE, {"worker": Count(12, 24, 0), "script": Count()}, ALLOWED) == []
    assert excess(BEFORE, {"worker": Count(13, 25, 1)}, ALLOWED) == [
        "worker has 13 threads, and had 10",
        "worker has 25 sockets, and had 20",
        "worker has 1 children, and had 0",
    ]


def test_role_that_did_not_exist_is_an_excess() -> None:
    assert excess(BEFORE, {"planner": Count(1, 1, 0)}, ALLOWED) == ["planner was not there before"]
