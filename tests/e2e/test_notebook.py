"""The section on notebooks in jobs/README.md, run as it stands."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.broker_side import Side
from tests.e2e.site import Site, flow

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

README = Path(__file__).parents[2] / "jobs" / "README.md"
THEN = """
import json, time

until = time.monotonic() + 120
offset = None
while query.isActive and offset is None and time.monotonic() < until:
    time.sleep(0.2)
    offset = query.lastProgress and query.lastProgress["sources"][0]["endOffset"]
if offset is None:
    print(query.exception(), query.status, query.recentProgress, file=sys.stderr)
print(json.dumps(offset))
query.stop()
for wrong in ({**options, "ledgr": "x"}, {key: value for key, value in options.items() if key != "ledger"}):
    try:
        spark.read.format("mirror-ranges").options(**wrong).load().collect()
    except Exception as error:
        print(json.dumps(str(error)))
spark.stop()
"""


def test_a_stream_of_somebody_s_own(site: Site, source: Side, target: Side, unique: Callable[[str], str]) -> None:
    topic = unique("orders")
    source.create(topic)
    source.fill(topic, [b"1", b"2", b"3"])
    target.create(f"a.{topic}")
    site.write({"a": source.address, "b": target.address}, {"paris-berlin": flow("a", "b", [topic], "epoch-ms = 3000")})
    code = re.search(r"## In a notebook.*?```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    (site.folder / "notebook.py").write_text(code.group(1) + THEN, encoding="utf-8")
    # The Python that is found first is one without the mirror.
    environ = {"PATH": f"/usr/bin:{os.environ['PATH']}"}
    run = site.finish(site.launch([sys.executable, "notebook.py"], environ=environ))
    assert run.status == 0, run.err
    progress, unknown, missing = (json.loads(line) for line in run.out.splitlines())
    assert progress is not None, run.err
    offset = json.loads(progress)
    assert offset["epoch"] == 1
    assert offset["ends"] == {topic: 3}
    assert offset["lag"] == 3
    assert 'ledgr = ***: no such option; did you mean "ledger"?' in unknown
    assert "ledger = (not set): required: a folder for plans and results" in missing
    assert target.read(f"a.{topic}") == [b"1", b"2", b"3"]
