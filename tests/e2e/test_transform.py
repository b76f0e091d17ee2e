"""The transform of config/README.md, in the folder where a run is started: Spark's workers find it there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.broker_side import Side
from tests.e2e.site import Site, flow
from tests.relay.batches.test_readme_transform import example

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]


def test_a_run_applies_it_and_imports_nothing_else_from_there(
    site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    topic = unique("cards")
    source.create(topic)
    source.fill(topic, [b"card 4711", b"no card"])
    module, text, name = example()
    (site.folder / f"{module}.py").write_text(text, encoding="utf-8")
    for other in ("mirror", "pyspark", "random"):
        (site.folder / f"{other}.py").write_text(
            "raise ImportError('a file of the current folder')\n", encoding="utf-8"
        )
    lines = flow("a", "b", [topic], f'transform = "{name}"')
    site.write({"a": source.address, "b": target.address}, {"f": lines})
    run = site.run()
    assert (run.status, run.errors) == (0, []), run.err
    assert target.read(f"a.{topic}") == [b"card ****", b"no card"]
