"""What the exporter's endpoint answers."""

from __future__ import annotations

from contextlib import closing
from http.client import HTTPConnection
from typing import Final


class Served:
    """An endpoint on this host."""

    def __init__(self, port: int) -> None:
        self._port: Final = port

    def get(self, path: str, method: str = "GET") -> tuple[int, str]:
        with closing(HTTPConnection("127.0.0.1", self._port, timeout=10)) as connection:
            connection.request(method, path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def has(self, line: str) -> bool:
        """Whether a series has a value."""
        return line in self.get("/metrics")[1].splitlines()
