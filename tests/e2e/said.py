"""What a process that a test started says while it runs."""

from __future__ import annotations

import re
import subprocess
import threading
from typing import Final

from tests.polling import eventually

PROMETHEUS: Final = r"mirror: info: measurements for Prometheus at http://(127\.0\.0\.1:\d+)/metrics"
"""Finds the address that a stream can be scraped at."""
EXPORTER: Final = r"mirror: measurements for Prometheus at http://(127\.0\.0\.1:\d+)/metrics"
"""The same of the exporter."""
_WITHIN_S: Final = 120.0


class Said:
    """What a process says on stderr, as it comes."""

    def __init__(self, child: subprocess.Popen[str]) -> None:
        self.text = ""
        self._child = child
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._child.stderr is not None
        for line in self._child.stderr:
            self.text += line

    def find(self, pattern: str) -> str:
        found = list[str]()

        def there() -> bool:
            assert self._child.poll() is None, self.text
            found.extend(re.findall(pattern, self.text))
            return bool(found)

        eventually(there, within_s=_WITHIN_S, what=pattern)
        return found[0]

    def all(self) -> str:
        self._thread.join(_WITHIN_S)
        return self.text
