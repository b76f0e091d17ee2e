"""Write RESULTS.md, the pictures and the claims from ``results.json``.

    PYTHONPATH=. python -m tests.benchmarks.side_by_side.publish

The benchmark calls it at its end; run it alone after a change of the texts. README.md and tests/README.md
have two marks where the claims belong, see :mod:`.written`. Rows of several commits are refused
(:class:`.figures.UnpublishableError`).
"""

from __future__ import annotations

from tests.benchmarks.side_by_side.figures import Results
from tests.benchmarks.side_by_side.picture import PICTURES, digest, draw
from tests.benchmarks.side_by_side.written import (
    CLAIMS_MD,
    README,
    RESULTS_MD,
    claims,
    read_plain,
    read_sources,
    readme_with,
    remarks,
    results_page,
    same_interval,
    summary,
)


def publish() -> None:
    """All of it."""
    results = Results.read()
    sources = read_sources()
    RESULTS_MD.write_text(results_page(results, remarks(), same_interval(), read_plain()), encoding="utf-8")
    for path, block in ((README, summary(sources, results)), (CLAIMS_MD, claims(sources, results))):
        path.write_text(readme_with(path.read_text(encoding="utf-8"), block), encoding="utf-8")
    for mode, path in PICTURES.items():
        draw(results, mode, path, digest())


if __name__ == "__main__":
    publish()
