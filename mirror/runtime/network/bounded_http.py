"""An HTTP request with a timeout for all of it, and without redirections.

The timeout of a socket restarts with every byte: a server that sends one now and then would block a thread for ever.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import urllib.request
from functools import partial
from http.client import HTTPConnection, HTTPResponse, HTTPSConnection
from typing import IO, Any, Final, Self

_LONGEST_S: Final = 86_400.0
"""A day: settings allow more than sockets and timers do."""


class Limit:
    """Closes the connection of the request within its block after ``timeout_ms``; ``over`` is True then."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_s: Final = min(timeout_ms / 1000, _LONGEST_S)
        self.over = False
        self._lock: Final = threading.Lock()
        self._ends: Final = list[socket.socket]()
        self._timer: Final = threading.Timer(self.timeout_s, self._break)
        self._timer.name = "mirror-http-limit"
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
        with self._lock:
            while self._ends:
                self._ends.pop().close()

    def watch(self, sock: socket.socket) -> None:
        """Watch ``sock``, before TLS takes over its file descriptor."""
        with self._lock:
            self._ends.append(sock.dup())
        if self.over:
            self._break()

    def _break(self) -> None:
        with self._lock:
            self.over = True
            for end in self._ends:
                with contextlib.suppress(OSError):
                    end.shutdown(socket.SHUT_RDWR)


def opener(context: ssl.SSLContext, limit: Limit, proxy: str = "") -> urllib.request.OpenerDirector:
    """Return an opener of requests within ``limit``; a redirection is an HTTPError.

    https uses ``proxy`` (a URL), if it is set, as a tunnel (CONNECT): TLS ends at the server. http never does, as the
    proxy could read the request. The caller evaluates the proxy variables of the environment.
    """
    proxies = urllib.request.ProxyHandler({"https": proxy} if proxy else {})
    return urllib.request.build_opener(proxies, _Http(limit), _Https(context, limit), _NoRedirect())


class _Watched(HTTPConnection):
    def __init__(self, host: str, *, limit: Limit, **options: Any) -> None:
        self._limit: Final = limit
        super().__init__(host, **options)

    def __setattr__(self, name: str, value: Any) -> None:
        # This is called between the connect and the TLS handshake.
        if name == "sock" and isinstance(value, socket.socket) and not isinstance(value, ssl.SSLSocket):
            self._limit.watch(value)
        super().__setattr__(name, value)


class _WatchedTls(_Watched, HTTPSConnection):
    pass


class _Http(urllib.request.HTTPHandler):
    def __init__(self, limit: Limit) -> None:
        super().__init__()
        self._limit = limit

    def http_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_Watched, limit=self._limit), req)


class _Https(urllib.request.HTTPSHandler):
    def __init__(self, context: ssl.SSLContext, limit: Limit) -> None:
        super().__init__(context=context)
        self._given, self._limit = context, limit

    def https_open(self, req: urllib.request.Request) -> HTTPResponse:
        return self.do_open(partial(_WatchedTls, limit=self._limit), req, context=self._given)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Following a redirection would send the client's secret to another server."""

    def http_error_302(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str, headers: Any
    ) -> HTTPResponse | None:
        """Return None: a redirection becomes an HTTPError."""
        del req, fp, code, msg, headers
        return None

    http_error_301 = http_error_303 = http_error_307 = http_error_308 = http_error_302
