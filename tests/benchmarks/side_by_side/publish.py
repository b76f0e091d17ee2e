"""Write RESULTS.md, LATENCY.md, the pictures and the claims from the files of results.

    PYTHONPATH=. python -m tests.benchmarks.side_by_side.publish

The benchmark calls it once nothing is left; run it alone after a change of the texts. README.md and tests/README.md
have two marks where the claims belong, see :mod:`.written`. Rows of several commits in one file are refused
(:class:`.figures.UnpublishableError`). Earlier files of which nothing is published any more are deleted.
"""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.side_by_side.figures import RESULTS, Results
from tests.benchmarks.side_by_side.picture import PICTURES, digest, draw
from tests.benchmarks.side_by_side.written import pages, unused


def publish() -> None:
    """All of it."""
    for path, text in pages().items():
        path.write_text(text, encoding="utf-8")
    for path in unused():
        path.unlink()
    for mode, path in PICTURES.items():
        draw(Results.read(), mode, path, digest())


def publish_new(path: Path) -> None:
    """Have the file at ``path``, if there is one, become results.json, and publish all.

    Raises UnpublishableError if its rows cannot be published: then all stays as it is.
    """
    if path.exists():
        Results.read(path)
        path.replace(RESULTS)
    publish()


if __name__ == "__main__":
    publish()
