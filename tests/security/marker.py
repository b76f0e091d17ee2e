"""Where a secret could have got to: what is said, the files that are left, and every process while it runs."""

from __future__ import annotations

import base64
import gzip
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import psutil

from tests.e2e.site import Site

SHORTEST: Final = 8
"""Characters: what is shorter may be there by chance."""


def shapes(secret: str) -> Iterator[bytes]:
    """The secret as it may be written: as it is, and in base64, at each of its three places in what surrounds it."""
    yield secret.encode()
    for shift in range(3):
        whole = base64.b64encode(b"\0" * shift + secret.encode())
        # Its first and last characters depend on what stands before and behind.
        middle = whole[4 if shift else 0 : len(whole) - 4]
        if len(middle) >= SHORTEST:
            yield middle


class Search:
    """Looks for ``secrets`` (name -> text), each of which has to be long enough."""

    def __init__(self, secrets: Mapping[str, str]) -> None:
        assert all(len(secret) >= SHORTEST for secret in secrets.values())
        self._shapes: Final = [(name, shape) for name, secret in secrets.items() for shape in shapes(secret)]

    def found(self, place: str, data: bytes) -> list[str]:
        """What is shown in ``data``: "secret in place"."""
        return sorted({f"{name} in {place}" for name, shape in self._shapes if shape in data})

    def found_in_files(self, folder: Path, leave_out: Sequence[Path]) -> tuple[list[str], list[Path]]:
        """What the files below ``folder`` show, compressed ones unpacked; and which files those were."""
        found, seen = list[str](), list[Path]()
        for path in sorted(folder.rglob("*")):
            if not path.is_file() or any(path.is_relative_to(each) for each in leave_out):
                continue
            seen.append(path)
            data = path.read_bytes()
            if path.suffix == ".gz":
                data += gzip.decompress(data)
            found += self.found(str(path.relative_to(folder)), str(path).encode() + b"\0" + data)
        return found, seen


class Watch:
    """Command lines and environments of all that a site starts, while the block runs."""

    def __init__(self, site: Site) -> None:
        self.seen: Final = dict[tuple[int, float], tuple[bytes, bytes]]()
        self._site: Final = site
        self._over: Final = threading.Event()
        self._thread: Final = threading.Thread(target=self._watch, name="watch", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._over.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _watch(self) -> None:
        while not self._over.wait(0.4):
            for process in self._site.processes():
                try:
                    line, environ = (
                        Path(f"/proc/{process.pid}/{name}").read_bytes() for name in ("cmdline", "environ")
                    )
                    # Again each time: between fork and exec it is still another program.
                    self.seen[process.pid, process.create_time() + len(line)] = line, environ
                except (OSError, psutil.Error):
                    continue
