"""Which Java and which Python a release of Spark runs with.

Java as jobs have run with it, since Spark's own lists leave out releases that work (21 for Spark 3.5). Before 4.2 Spark
ends at its start where Java has no security manager any more (``getSubject is not supported``, JEP 486). Python as
PySpark's packages state.
"""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, version
from typing import Final, NamedTuple

from mirror.errors import FlowError


class Limits(NamedTuple):
    """The feature releases of Java, and the minor version of Python 3; ``None``: no newer one is known to fail."""

    oldest_java: int
    newest_java: int | None
    newest_python: int


LIMITS: Final[dict[tuple[int, ...], Limits]] = {
    (3, 5): Limits(8, 23, 11),
    (4, 0): Limits(17, 23, 13),
    (4, 1): Limits(17, 23, 14),
    (4, 2): Limits(17, None, 14),
    (4, 3): Limits(17, None, 14),
}
"""By the release of Spark: all releases with which jobs are tested."""
OLDEST_JAVA: Final = min(limits.oldest_java for limits in LIMITS.values())
_OLDEST, _NEWEST = (".".join(map(str, choose(LIMITS))) for choose in (min, max))
_OF_DRIVER: Final = sys.version_info.minor


def installed_spark() -> str:
    """Return the version of the installed PySpark, without importing it; "" if no package tells it."""
    try:
        return version("pyspark")
    except PackageNotFoundError:  # it is in a distribution of Spark
        return ""


def check_java(spark: str, java: int, where: object) -> None:
    """Raise FlowError if this version of Spark does not start with the release ``java``, which is at ``where``."""
    limits = LIMITS.get(_release(spark))
    if limits is None:
        return
    oldest, newest = limits.oldest_java, limits.newest_java
    if java < oldest:
        raise FlowError(
            f"Spark {spark} needs Java {oldest} or later, and {where} is Java {java}: set JAVA_HOME to a JDK 17"
        )
    if newest is not None and java > newest:
        raise FlowError(
            f"Spark {spark} does not start with a Java later than {newest}, and {where} is Java {java}:"
            " set JAVA_HOME to a JDK 17"
        )


def version_warning(spark: str, python: int = _OF_DRIVER) -> str:
    """Return a line if this version of Spark is none of the tested ones, or does not support Python 3.``python``."""
    limits = LIMITS.get(_release(spark))
    if limits is None:
        return f"Spark {spark} is not tested: use one of Spark {_OLDEST} to {_NEWEST}"
    if python > limits.newest_python:
        return (
            f"Spark {spark} supports Python up to 3.{limits.newest_python}, and {sys.executable} is Python 3.{python}:"
            f" use Python 3.{limits.newest_python}, or a later Spark"
        )
    return ""


def _release(spark: str) -> tuple[int, ...]:
    """Return the first two numbers of a version; vendors append their own."""
    return tuple(int(part) for part in spark.split(".")[:2] if part.isdecimal())
