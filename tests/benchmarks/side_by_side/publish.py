"""Write RESULTS.md, the pictures and README's claims anew from ``results.json``.

    PYTHONPATH=. python -m tests.benchmarks.side_by_side.publish

The benchmark calls it at its end; alone, it is for who has changed what is said. README has two marks where the claims
belong, see :mod:`.written`.
"""

from __future__ import annotations

from tests.benchmarks.side_by_side.figures import Results
from tests.benchmarks.side_by_side.picture import PICTURES, digest, draw
from tests.benchmarks.side_by_side.written import README, RESULTS_MD, claims, readme_with, remarks, results_page


def publish() -> None:
    """All of it."""
    results = Results.read()
    RESULTS_MD.write_text(results_page(results, remarks()), encoding="utf-8")
    README.write_text(readme_with(README.read_text(encoding="utf-8"), claims(results)), encoding="utf-8")
    for mode, path in PICTURES.items():
        draw(results, mode, path, digest())


if __name__ == "__main__":
    publish()
