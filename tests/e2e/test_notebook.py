"""The section on notebooks in jobs/README.md, run as it stands with each release of Spark; and one's own stream."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.e2e.broker_side import Side
from tests.e2e.site import Site, flow
from tests.e2e.spark_releases import CONNECT, RELEASES, SUITE, python_with

pytestmark = [pytest.mark.cluster, pytest.mark.brokers, pytest.mark.spark, pytest.mark.timeout(900)]

README = Path(__file__).parents[2] / "jobs" / "README.md"
RESULT = """
import json
from mirror.errors import ConfigError

print(json.dumps(result))
print(json.dumps(copy(spark, "mirror.toml", "paris-berlin")))
try:
    copy(spark, "mirror.toml", "paris-rome")
except ConfigError as error:
    print(json.dumps(str(error)))
print(json.dumps(spark.range(3).count()))
spark.stop()
"""
OTHER_PYTHON = """
import os, sys
os.environ["PYSPARK_PYTHON"] = f"{sys.base_prefix}/bin/python3"
from pyspark.sql import SparkSession
from mirror.spark.notebook import copy

spark = SparkSession.builder.master("local[1]").getOrCreate()
print(copy(spark, "mirror.toml", "paris-berlin")["outcome"])
"""
REFUSED = """
import os, sys
from pyspark.sql import SparkSession
from mirror.errors import FlowError
from mirror.spark.notebook import copy

spark = SparkSession.builder.remote("local[1]").getOrCreate()
try:
    copy(spark, "mirror.toml", "paris-berlin")
except FlowError as error:
    print(error)
"""


@pytest.mark.parametrize("release", RELEASES)
def test_a_run_in_a_session_of_somebody_s_own(
    release: str, site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    topic = unique("orders")
    source.create(topic, 2)
    for partition in range(2):
        source.fill(topic, [b"1", b"2", b"3"], partition)
    site.write({"a": source.address, "b": target.address}, {"paris-berlin": flow("a", "b", [topic])})
    code = re.search(r"## In a notebook.*?```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert code is not None
    (site.folder / "notebook.py").write_text(code.group(1) + RESULT, encoding="utf-8")
    run = site.finish(site.launch([python_with(release), "notebook.py"]))
    assert run.status == 0, run.err
    first, second, unknown, rows = [json.loads(line) for line in run.out.splitlines() if line[:1] in '{"3']
    assert (first["outcome"], [each["records"] for each in first["partitions"]]) == ("complete", [3, 3])
    assert (second["outcome"], [each["records"] for each in second["partitions"]]) == ("complete", [0, 0])
    assert 'did you mean "paris-berlin"' in unknown
    assert rows == 3, "the session is still its owner's"
    for partition in range(2):
        assert target.read(f"a.{topic}", partition) == [b"1", b"2", b"3"]
    assert json.loads((site.folder / "mirror-report/summary.json").read_text())["flows"] == [second]


@pytest.mark.parametrize("release", [RELEASES[0], SUITE])
def test_workers_without_the_package_are_named_with_what_they_lack(
    release: str, site: Site, source: Side, target: Side, unique: Callable[[str], str]
) -> None:
    topic = unique("orders")
    source.create(topic)
    source.fill(topic, [b"1"])
    site.write({"a": source.address, "b": target.address}, {"paris-berlin": flow("a", "b", [topic])})
    (site.folder / "notebook.py").write_text(OTHER_PYTHON, encoding="utf-8")
    run = site.finish(site.launch([python_with(release), "notebook.py"]))
    assert run.status == 0, run.err
    assert run.out.splitlines()[-1] == "unfinished"
    lacking = "Spark: a Python worker failed: ModuleNotFoundError: No module named 'mirror'"
    assert f"mirror: flow paris-berlin: {lacking}" in run.err.splitlines()


def test_a_session_of_spark_connect_is_refused_in_one_line(site: Site) -> None:
    (site.folder / "notebook.py").write_text(REFUSED, encoding="utf-8")
    run = site.finish(site.launch([python_with(CONNECT), "notebook.py"]))
    (line,) = run.out.splitlines()
    assert line.startswith("this session is one of Spark Connect, and a copy needs the SparkContext of a classic one: ")
    site.kill()  # it leaves its server
