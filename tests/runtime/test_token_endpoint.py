"""Token endpoints that answer nonsense, in the clear on this machine: one clear error, in time, without the secret."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from mirror.cluster.auth.security import SaslSettings
from mirror.errors import AuthenticationFailed, ConnectionFailed, KafkaError
from mirror.runtime.network.oauth import Token, from_callback, from_endpoint
from mirror.timing import FOREVER_MS

SECRET = "m4rk3r-of-a-secret"
SETTINGS = SaslSettings("OAUTHBEARER", client_id="me", client_secret=SECRET)

Talk = Callable[[socket.socket, threading.Event], None]


@contextlib.contextmanager
def serving(talk: Talk) -> Iterator[str]:
    """The URL of an endpoint that reads requests and then does as ``talk`` says; it is notified when it is over."""
    over = threading.Event()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    seen = b""
                    while not seen.endswith(b"client_credentials"):
                        seen += connection.recv(65536)
                    talk(connection, over)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/token?key={SECRET}"
    finally:
        over.set()
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(30)
        assert not thread.is_alive()


def fetch(url: str, timeout_ms: int = 20_000) -> Token[str]:
    settings = replace(SETTINGS, token_endpoint_url=url)
    # Without the system's certificates, which take 0.1 s of CPU to read: nothing is encrypted.
    return from_endpoint(settings, lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), timeout_ms, None)()


def says(body: bytes, status: str = "200 OK", *headers: str) -> Talk:
    head = "\r\n".join([f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers, "", ""])
    return lambda connection, _: connection.sendall(head.encode() + body)


def sends(data: bytes) -> Talk:
    return lambda connection, _: connection.sendall(data)


def error_of(talk: Talk, timeout_ms: int = 20_000) -> KafkaError:
    """The error, which is fit to be shown."""
    with serving(talk) as url, pytest.raises(KafkaError) as caught:
        fetch(url, timeout_ms)
    text = str(caught.value)
    assert re.match(r"token endpoint http://127\.0\.0\.1:\d+/token: ", text)
    assert text.isprintable()
    assert len(text) < 300
    assert SECRET not in text + repr(caught.value)
    return caught.value


def test_a_sane_one() -> None:
    with serving(says(b'{"access_token": "abc", "expires_in": 60}')) as url:
        assert fetch(url) == Token("abc", 60_000)
        assert fetch(url, FOREVER_MS) == Token("abc", 60_000)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xff\xfe",
        b"<html>sign in</html>",
        b"[]",
        b"1" * 5_000,
        b"[" * 200_000,
        b'{"access_token":' + b"[" * 200_000,
        b'{"token": "x"}',
        b'{"access_token": null}',
        b'{"access_token": 7}',
        *(
            b'{"access_token": "x", "expires_in": %s}' % value
            for value in (b"0", b"-1", b"-1e300", b"1e400", b"NaN", b"-Infinity", b'"soon"', b"null", b"[]", b"{}")
        ),
        b'{"access_token": "' + b"x" * 5_000_000 + b'"}',
    ],
    ids=lambda body: repr(body)[:50],
)
def test_answers_without_a_usable_token(body: bytes) -> None:
    assert isinstance(error_of(says(body)), AuthenticationFailed)


@pytest.mark.parametrize("expires_in", [10**15, 10**17, 1e300, 10**300])
def test_a_token_for_ever(expires_in: float) -> None:
    with serving(says(json.dumps({"access_token": "x", "expires_in": expires_in}).encode())) as url:
        assert 10**18 <= fetch(url).lifetime_ms <= FOREVER_MS


def test_a_callbacks_token_for_ever() -> None:
    """More than a float can say."""
    assert from_callback(lambda: ("x", 10**400), "it")().lifetime_ms == FOREVER_MS


@pytest.mark.parametrize("status", ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"])
@pytest.mark.parametrize("location", ["/token", "http://[", "file:///etc/passwd", "gopher://x", f"http://{SECRET}.x/"])
def test_redirections_are_refused_whatever_they_name(status: str, location: str) -> None:
    error = error_of(says(b"", status, f"Location: {location}"))
    assert isinstance(error, AuthenticationFailed)
    assert str(error).endswith(f"HTTP status {status[:3]}")


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b'{"error": "invalid_client"}', " (invalid_client)"),
        (b'{"error": "\\u001b[2J"}', ""),
        (b'{"error": "%s"}' % SECRET.encode(), ""),
        (b"[" * 200_000, ""),
        (b"\xff", ""),
        (b'{"error": "' + b"x" * 5_000_000 + b'"}', ""),
    ],
    ids=lambda value: repr(value)[:30],
)
def test_refusals(body: bytes, shown: str) -> None:
    error = error_of(says(body, "401 Unauthorized"))
    assert isinstance(error, AuthenticationFailed)
    assert str(error).endswith(f"HTTP status 401{shown}")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x15\x03\x03\x00\x02\x02\x28",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 999999 \x1b[2J\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"x" * 100_000,
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 1_000 + b"\r\n",
        b'HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n{"access_token": "cut o',
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nfff\r\n{",
    ],
    ids=lambda data: repr(data)[:50],
)
def test_what_is_no_whole_http_is_tried_again(data: bytes) -> None:
    assert isinstance(error_of(sends(data)), ConnectionFailed)


@pytest.mark.parametrize(
    ("begin", "more"),
    [
        (b"", b""),
        (b"HTTP/1.1 200 OK\r\n", b"X"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\n\r\n", b" "),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n", b" "),
        (b"HTTP/1.1 401 No\r\n\r\n", b" "),
    ],
    ids=["silent", "headers", "continue", "body", "sized", "refusal"],
)
def test_who_sends_a_byte_now_and_then_holds_nobody_for_ever(begin: bytes, more: bytes) -> None:
    """Each byte comes well within the time-out, and the answer never."""

    def talk(connection: socket.socket, over: threading.Event) -> None:
        connection.sendall(begin)
        while not over.wait(0.05):
            connection.sendall(more)

    error = error_of(talk, timeout_ms=400)
    assert isinstance(error, ConnectionFailed)
    assert "no whole answer within 400 ms" in str(error)


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[bytes]]:
    """What a proxy that the environment names for everything is sent; it refuses all of it."""
    seen = list[bytes]()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection, contextlib.suppress(OSError):
                    connection.settimeout(5)
                    seen.append(connection.recv(65536))
                    connection.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    for name in ("http_proxy", "https_proxy"):
        monkeypatch.setenv(name, f"http://name:pr0xy-word@127.0.0.1:{listener.getsockname()[1]}")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    yield seen
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(30)


def test_no_proxy_stands_between_this_machine_and_itself(proxy: list[bytes]) -> None:
    """The request has the client's secret in it, in the clear."""
    with serving(says(b'{"access_token": "abc", "expires_in": 60}')) as url:
        assert fetch(url) == Token("abc", 60_000)
        assert fetch(url.replace("127.0.0.1", "localhost")) == Token("abc", 60_000)
    with pytest.raises(ConnectionFailed, match="refused"):
        fetch("https://127.0.0.1:1/token")
    assert proxy == []


def test_an_endpoint_elsewhere_is_reached_through_a_proxy_that_sees_no_request(proxy: list[bytes]) -> None:
    """It gets a CONNECT; the TLS is the endpoint's own."""
    with pytest.raises(ConnectionFailed, match=r"^token endpoint https://login\.example\.com/token: .*403") as caught:
        fetch("https://login.example.com/token")
    (request,) = proxy
    assert request.startswith(b"CONNECT login.example.com:443 ")
    assert b"Basic " + base64.b64encode(f"me:{SECRET}".encode()) not in request
    assert "through the proxy 127.0.0.1:" in str(caught.value)
    assert "pr0xy-word" not in str(caught.value)
