"""The line about a Java or a Python with which Spark does not run, before or instead of Spark's own failure."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from mirror.errors import FlowError
from mirror.spark.driver.launch.spark_versions import LIMITS, check_java, installed_spark, version_warning

JAVA = Path("/opt/jdk/bin/java")
CHECKOUT = Path(__file__).parents[3]
IN_3_5 = {
    "pyspark": {"InheritableThread", "SparkConf", "SparkContext", "SparkFiles", "TaskContext", "daemon"},
    "pyspark.accumulators": {"AccumulatorParam"},
    "pyspark.errors": {"PySparkRuntimeError"},
}
"""What Spark's oldest release has of what is imported wherever it runs."""


@pytest.mark.parametrize(
    ("spark", "java"),
    [("3.5.0", 8), ("3.5.9", 11), ("3.5.1-amzn-0", 21), ("4.0.5", 17), ("4.1.4", 21), ("4.2.1", 25), ("4.3.0", 26)],
)
def test_a_java_with_which_spark_starts(spark: str, java: int) -> None:
    check_java(spark, java, JAVA)


@pytest.mark.parametrize(("spark", "java"), [("4.0.0", 11), ("4.3.0", 16)])
def test_a_java_that_is_too_old_for_spark(spark: str, java: int) -> None:
    wanted = f"Spark {spark} needs Java 17 or later, and /opt/jdk/bin/java is Java {java}: set JAVA_HOME"
    with pytest.raises(FlowError, match=re.escape(wanted)):
        check_java(spark, java, JAVA)


@pytest.mark.parametrize(("spark", "java"), [("3.5.9", 24), ("4.0.5", 25), ("4.1.4", 25)])
def test_a_java_without_a_security_manager_is_too_new_before_spark_4_2(spark: str, java: int) -> None:
    wanted = f"Spark {spark} does not start with a Java later than 23, and /opt/jdk/bin/java is Java {java}: set JAVA_"
    with pytest.raises(FlowError, match=re.escape(wanted)):
        check_java(spark, java, JAVA)


@pytest.mark.parametrize("spark", ["3.4.4", "4.4.0", "5.0.0.dev1", "unknown"])
def test_a_spark_that_is_not_tested_is_named_and_not_refused(spark: str) -> None:
    check_java(spark, 1, JAVA)
    assert version_warning(spark, 11) == f"Spark {spark} is not tested: use one of Spark 3.5 to 4.3"


@pytest.mark.parametrize(("spark", "python"), [("3.5.9", 11), ("4.0.5", 13), ("4.3.0", 14)])
def test_a_python_that_spark_supports(spark: str, python: int) -> None:
    assert version_warning(spark, python) == ""


@pytest.mark.parametrize(("spark", "python", "newest"), [("3.5.9", 12, 11), ("4.0.5", 14, 13), ("4.3.0", 15, 14)])
def test_a_python_that_spark_does_not_support_is_named(spark: str, python: int, newest: int) -> None:
    assert re.fullmatch(
        rf"Spark {spark} supports Python up to 3\.{newest}, and \S+ is Python 3\.{python}: use Python 3\.{newest},"
        " or a later Spark",
        version_warning(spark, python),
    )


def test_the_tested_releases_are_those_that_can_be_installed() -> None:
    project = tomllib.loads((CHECKOUT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    oldest, newest = min(LIMITS), max(LIMITS)
    (wanted,) = (one for one in project["optional-dependencies"]["spark"] if one.startswith("pyspark"))
    assert wanted == f"pyspark>={oldest[0]}.{oldest[1]},<{newest[0]}.{newest[1] + 1}"
    assert installed_spark().startswith(f"{newest[0]}.{newest[1]}.")


def test_modules_import_of_pyspark_what_its_oldest_release_has() -> None:
    newer = list[tuple[str, ...]]()
    for path in (CHECKOUT / "mirror").rglob("*.py"):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            match node:
                case ast.ImportFrom(module=str(module), names=names) if module.split(".")[0] == "pyspark":
                    newer += [
                        (path.name, module, name.name) for name in names if name.name not in IN_3_5.get(module, ())
                    ]
                case ast.Import(names=names):
                    newer += [(path.name, name.name) for name in names if name.name.startswith("pyspark.")]
    assert not newer
