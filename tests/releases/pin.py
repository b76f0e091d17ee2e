"""Makes the list of a release's jars and their SHA-256 again, from a download that Ivy verified.

python -m tests.releases.pin VERSION...
"""

from __future__ import annotations

import hashlib
import sys
import tempfile
from pathlib import Path

from mirror.sandbox.fetch import retrieve
from mirror.sandbox.java import find_java
from tests.releases.releases import OTHERS, Release


def pin(release: Release) -> None:
    with tempfile.TemporaryDirectory(prefix="mirror-pin-") as folder:
        work = Path(folder)
        jars = work / "jars"
        retrieve(jars, release.write_ivy(work), java=find_java(), work=work, what=release.name)
        lines = [f"{hashlib.sha256(jar.read_bytes()).hexdigest()}  {jar.name}\n" for jar in sorted(jars.iterdir())]
    release.pins.write_text("".join(lines), encoding="ascii")


if __name__ == "__main__":
    for version in sys.argv[1:] or OTHERS:
        pin(OTHERS[version])
