"""The events of OpenLineage about a run, made of its client's own models. Pure: the time is an argument.

Datasets are named as OpenLineage names Kafka's topics: ``kafka://HOST:PORT`` of the first bootstrap server, and the
topic. Statistics are sums of the run, so that a later event replaces an earlier one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from openlineage.client.event_v2 import InputDataset, Job, OutputDataset, Run, RunEvent, RunState
from openlineage.client.facet_v2 import (
    data_quality_assertions_dataset,
    error_message_run,
    input_statistics_input_dataset,
    job_type_job,
    output_statistics_output_dataset,
)

from mirror.telemetry.lineage.facts import JobKind, TopicCounts

if TYPE_CHECKING:
    from mirror.telemetry.lineage.facts import LineageJob, TopicVerdict

PRODUCER: Final = "urn:kafka-spark-mirror"
"""A URI that identifies what has made the events."""
MAX_TOPICS: Final = 500
"""Topics in one event: receivers bound the size of a request. More topics go into several events, which add up."""
_MAX_LINES: Final = 10


def run_events(
    job: LineageJob,
    namespace: str,
    state: RunState,
    now_ms: int,
    topics: Sequence[TopicCounts | TopicVerdict] = (),
    error: str = "",
) -> Iterator[RunEvent]:
    """Yield the events that say what a run of ``job`` has read, and written or compared.

    The last one has the ``state``, and the ``error`` if there is one; the others are ``RUNNING``. ``namespace`` is that
    of the job; ``now_ms`` is ms since 1970.
    """
    source, target = _address(job.source), _address(job.target)
    for first in range(0, max(len(topics), 1), MAX_TOPICS):
        is_last = first + MAX_TOPICS >= len(topics)
        inputs: list[InputDataset] = []
        outputs: list[OutputDataset] = []
        for one in topics[first : first + MAX_TOPICS]:
            if isinstance(one, TopicCounts):
                inputs.append(InputDataset(source, one.topic, inputFacets=_read(one)))
                outputs.append(OutputDataset(target, one.target_topic, outputFacets=_written(one)))
            else:
                inputs.append(InputDataset(source, one.topic))
                inputs.append(InputDataset(target, one.target_topic, inputFacets=_assertions(one)))
        yield RunEvent(
            eventTime=datetime.fromtimestamp(now_ms / 1000, UTC).isoformat(timespec="milliseconds"),
            producer=PRODUCER,
            run=Run(job.run_id, _failure(error) if is_last and error else {}),
            job=Job(namespace, job.name, _kind(job)),
            eventType=state if is_last else RunState.RUNNING,
            inputs=inputs,
            outputs=outputs,
        )


def _address(servers: str) -> str:
    return f"kafka://{servers.split(',', maxsplit=1)[0].strip()}"


def _kind(job: LineageJob) -> dict[str, Any]:
    facet = job_type_job.JobTypeJobFacet(
        processingType="STREAMING" if job.kind is JobKind.STREAM else "BATCH",
        integration="KAFKA_SPARK_MIRROR",
        jobType=job.kind.value,
        producer=PRODUCER,
    )
    return {"jobType": facet}


def _failure(error: str) -> dict[str, Any]:
    return {"errorMessage": error_message_run.ErrorMessageRunFacet(error, "PYTHON", producer=PRODUCER)}


def _read(one: TopicCounts) -> dict[str, Any]:
    if one.records is None:
        return {}
    facet = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(
        rowCount=one.records, size=one.bytes, producer=PRODUCER
    )
    return {"inputStatistics": facet}


def _written(one: TopicCounts) -> dict[str, Any]:
    if one.records is None:
        return {}
    facet = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=one.records, size=one.bytes, producer=PRODUCER
    )
    return {"outputStatistics": facet}


def _assertions(one: TopicVerdict) -> dict[str, Any]:
    description = "; ".join(one.lines[:_MAX_LINES]) or None
    of = data_quality_assertions_dataset
    assertions = [
        of.Assertion("equal_to_source", one.equal, actual=f"{one.records} records compared", description=description),
        of.Assertion("complete", one.complete, description=description, severity="warn"),
    ]
    return {"dataQualityAssertions": of.DataQualityAssertionsDatasetFacet(assertions, producer=PRODUCER)}
