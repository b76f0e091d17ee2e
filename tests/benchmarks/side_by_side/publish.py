"""Write RESULTS.md, the pictures and README's claims from ``results.json`` and, where it has no rows, the old ones.

    PYTHONPATH=. python -m tests.benchmarks.side_by_side.publish

The benchmark calls it at its end; run it alone after a change of the texts. README has two marks where the claims
belong, see :mod:`.written`. Rows of several commits are refused (:class:`.figures.UnpublishableError`).
"""

from __future__ import annotations

from tests.benchmarks.side_by_side.figures import measured
from tests.benchmarks.side_by_side.picture import PICTURES, digest, draw
from tests.benchmarks.side_by_side.written import README, RESULTS_MD, claims, readme_with, remarks, results_page


def publish() -> None:
    """All of it."""
    results, old = measured()
    RESULTS_MD.write_text(results_page(results, old, remarks()), encoding="utf-8")
    README.write_text(readme_with(README.read_text(encoding="utf-8"), claims(results, old)), encoding="utf-8")
    for mode, path in PICTURES.items():
        draw(results or old, mode, path, digest())


if __name__ == "__main__":
    publish()
