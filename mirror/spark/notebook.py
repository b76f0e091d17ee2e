"""A run for a program that has a Spark session of its own, such as a notebook.

::

    from mirror.spark.notebook import copy

    result = copy(spark, "mirror.toml", "paris-berlin")
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirror.config.load import load
from mirror.errors import FlowError
from mirror.spark.driver.batch_job import run_flows, summarized, warn_of_exposed_credentials, warn_of_versions
from mirror.spark.driver.job_options import DEFAULT_REPORT_DIR, JobOptions
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.report.report_file import ReportFile
from mirror.spark.driver.session import refuse_speculation

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

_CONNECT = "pyspark.sql.connect"


def copy(
    spark: SparkSession,
    config: str | Path,
    flow: str,
    *,
    report_dir: str | Path = DEFAULT_REPORT_DIR,
    secrets_dir: str | Path | None = None,
) -> dict[str, Any]:
    """Copy the topics of ``flow`` up to where they end now, as ``mirror run`` does, with the tasks of ``spark``.

    Waits for the end. Returns the entry of the flow in ``summary.json``: the outcome of the flow and of each of its
    partitions, which may have failed. Raises ConfigError, and FlowError if the flow could not run, if another job
    writes to ``report_dir``, or if the session is one of Spark Connect.
    """
    context = _context_of(spark)
    refuse_speculation(dict(context.getConf().getAll()))
    options = JobOptions(
        config=Path(config),
        flow=flow,
        report_dir=Path(report_dir),
        secrets_dir=None if secrets_dir is None else Path(secrets_dir),
    )
    loaded = load(options.config, secrets_dir=options.secrets_dir)
    flows = loaded.select(flow)
    consoles = Consoles()
    warn_of_versions(consoles)
    warn_of_exposed_credentials(loaded, flows, consoles)
    with summarized(options.report_dir, consoles) as summary, ReportFile(options.report_dir, consoles.warning):
        (report,) = run_flows(lambda: context, loaded, flows, options, consoles, summary)
    if report.error is not None:
        raise FlowError(report.error)
    return report.to_json()


def _context_of(spark: SparkSession) -> SparkContext:
    """Return the context of a classic session. Raises FlowError for one of Spark Connect, which has none."""
    if type(spark).__module__.startswith(_CONNECT):
        raise FlowError(
            "this session is one of Spark Connect, and a copy needs the SparkContext of a classic one:"
            " make it with SparkSession.builder.master(...), without .remote(...) and SPARK_REMOTE, or use `mirror run`"
        )
    return spark.sparkContext
