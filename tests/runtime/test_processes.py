"""Clients at the end of the interpreter, across a fork, and without a broker: each in a process of its own."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mirror.sandbox.ports import HOST, free_ports

WITHIN_S = 60.0
"""Far below what would be waited for, for ever or ten minutes long."""


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and never says a word."""
    with socket.create_server((HOST, 0)) as server:
        yield f"{HOST}:{server.getsockname()[1]}"


def run(script: str, servers: str) -> Any:
    """What ``script`` (with SERVERS) prints as JSON; it must end by itself, in time and without a word of complaint."""
    code = f"SERVERS = {servers!r}\n" + textwrap.dedent(script)
    done = subprocess.run(
        [sys.executable, "-W", "error::ResourceWarning", "-c", code],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return json.loads(done.stdout)


@pytest.mark.parametrize("daemon", [True, False])
def test_an_open_consumer_does_not_hold_up_the_interpreters_end(silent: str, daemon: bool) -> None:
    """Its poll waits in a daemon thread for ever, or in a plain one, whose end the interpreter awaits, for a while."""
    began = time.monotonic()
    run(
        f"""
        import threading
        from mirror.client import Consumer
        consumer = Consumer({{"bootstrap.servers": SERVERS}})
        waiting = threading.Thread(target=consumer.poll, args=({600_000 if daemon else 1_000},), daemon={daemon})
        waiting.start()
        while consumer._use._owner is None:
            pass
        print("true")
        """,
        silent,
    )
    assert time.monotonic() - began < WITHIN_S


def test_a_waiting_main_thread_can_be_interrupted(silent: str) -> None:
    """Ctrl-C ends a call that waits."""
    result = run(
        """
        import json, signal, time
        from mirror.client import Consumer
        consumer = Consumer({"bootstrap.servers": SERVERS})
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        signal.signal(signal.SIGALRM, signal.default_int_handler)
        began = time.monotonic()
        try:
            consumer.poll(600_000)
        except KeyboardInterrupt:
            consumer.close(timeout_ms=500)
            print(json.dumps(time.monotonic() - began))
        """,
        silent,
    )
    assert result < WITHIN_S / 2


def test_a_forked_child_gets_its_own_thread_and_jitter(silent: str) -> None:
    result = run(
        """
        import json, os, sys
        from mirror.client import Consumer
        from mirror.errors import KafkaTimeout, NetworkThreadDied

        def asked(consumer):
            try:
                consumer.list_topics(timeout_ms=100)
            except KafkaTimeout:
                return "timed out"
            except NetworkThreadDied as error:
                return str(error)

        consumer = Consumer({"bootstrap.servers": SERVERS})
        found = {"before": asked(consumer)}
        read, write = os.pipe()
        if os.fork() == 0:
            own = Consumer({"bootstrap.servers": SERVERS})
            mine = {
                "inherited": asked(consumer),
                "own": asked(own),
                "same thread": own.network_thread is consumer.network_thread,
                "rng": own.network_thread.loop.rng.random(),
            }
            own.close()
            consumer.close(timeout_ms=100)
            os.write(write, json.dumps(mine).encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            found |= json.load(pipe)
        os.wait()
        found |= {"after": asked(consumer), "alive": consumer.network_thread.is_alive}
        found["parent's rng"] = consumer.network_thread.loop.rng.random()
        consumer.close()
        print(json.dumps(found))
        """,
        silent,
    )
    assert result["before"] == result["own"] == result["after"] == "timed out"
    assert "before a fork" in result["inherited"]
    assert result["same thread"] is False
    assert result["alive"] is True
    assert result["rng"] != result["parent's rng"]


def test_a_forked_child_is_reported_before_it_waits_for_a_lock(silent: str) -> None:
    """Every lock is held by somebody who stays in the parent, as the network thread may at that moment."""
    result = run(
        """
        import contextlib, json, os, time
        from mirror.client import Producer, TopicPartition
        from mirror.errors import KafkaError
        from mirror.wire.encode import BatchBuilder

        def asked(call):
            try:
                call()
            except KafkaError as error:
                return type(error).__name__

        plain = Producer({"bootstrap.servers": SERVERS})
        named = Producer({"bootstrap.servers": SERVERS, "transactional.id": "t"})
        tp = TopicPartition("t", 0)
        builder = BatchBuilder("none", 1_000)
        builder.append(None, b"", (), 0)
        batch = builder.build()
        plain.send_batch(tp, batch, block=False)
        place = plain._place(*tp)
        read, write = os.pipe()
        with contextlib.ExitStack() as locks:
            for one in (place.lock, plain._memory._accounts.lock, named._phase_lock, plain.network_thread._gate):
                locks.enter_context(one)
            child = os.fork()
            if child == 0:
                began = time.monotonic()
                mine = [asked(call) for call in (
                    lambda: plain.send(*tp, value=b""),
                    lambda: plain.send_batch(tp, batch),
                    plain.flush,
                    plain.close,
                    plain.close,
                    named.init_transactions,
                    named.begin_transaction,
                    lambda: named.send_offsets_to_transaction({tp: 1}, "g"),
                    named.commit_transaction,
                    named.abort_transaction,
                    named.close,
                )]
                os.write(write, json.dumps([time.monotonic() - began, *mine]).encode())
                os._exit(0)
        os.close(write)
        with os.fdopen(read) as pipe:
            found = json.load(pipe)
        os.waitpid(child, 0)
        plain.close(0)
        named.close(0)
        print(json.dumps(found))
        """,
        silent,
    )
    died = "NetworkThreadDied"
    assert result[0] < WITHIN_S / 2
    assert result[1:] == [died, died, died, None, None, died, died, died, died, died, None]


IDLE = """
import json, time
from mirror.client import Consumer, TopicPartition
consumer = Consumer({"bootstrap.servers": SERVERS})
consumer.assign([TopicPartition("orders", 0)])
cpu = time.process_time()
assert consumer.poll(3_000) == []
turns = consumer.network_thread._turns
cpu = time.process_time() - cpu
consumer.close(timeout_ms=0)
print(json.dumps({"cpu": cpu, "turns": turns}))
"""


@pytest.mark.slow
def test_an_unreachable_broker_costs_little_cpu() -> None:
    result = run(IDLE, f"{HOST}:{free_ports(1)[0]}")
    assert result["cpu"] < 1
    assert result["turns"] < 200


@pytest.mark.slow
def test_a_silent_broker_costs_little_cpu(silent: str) -> None:
    result = run(IDLE, silent)
    assert result["cpu"] < 1
    assert result["turns"] < 100


@pytest.mark.slow
def test_a_broker_that_hangs_up_is_not_called_again_and_again() -> None:
    """Reconnects wait 50, 100, 200, 400, 800, 1000 ms (KIP-144): eight in three seconds, with luck of the jitter."""
    with socket.create_server((HOST, 0)) as server:
        accepted: list[float] = []

        def hang_up() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                accepted.append(time.monotonic())
                connection.close()

        answering = threading.Thread(target=hang_up, daemon=True)
        answering.start()
        result = run(IDLE, f"{HOST}:{server.getsockname()[1]}")
        server.shutdown(socket.SHUT_RDWR)
    answering.join(30)
    assert 4 <= len(accepted) <= 10
    assert result["cpu"] < 1
