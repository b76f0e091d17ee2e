"""OpenTelemetry's standard environment variables."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.sdk.trace.sampling import Decision, TraceIdRatioBased

from mirror.errors import ConfigError
from mirror.spark.driver.output.console import Consoles
from mirror.spark.driver.telemetry_bridge import run_telemetry
from mirror.telemetry.settings import SLOW, TelemetrySettings, is_sampled
from mirror.telemetry.traces.ids import period_id


def test_settings_without_variables_have_no_backend() -> None:
    settings = TelemetrySettings.of({"PATH": "/bin", "OTEL_TRACES_EXPORTER": ""})
    assert settings == TelemetrySettings()
    assert (settings.traces, settings.metrics) == ("", "")


@pytest.mark.parametrize(
    ("environment", "traces", "metrics"),
    [
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}, "http/protobuf", "http/protobuf"),
        ({"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://c:4318"}, "http/protobuf", ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_METRICS_EXPORTER": "none"}, "http/protobuf", ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "grpc", "grpc"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c", "OTEL_EXPORTER_OTLP_METRICS_PROTOCOL": "grpc"},
            "http/protobuf",
            "grpc",
        ),
        ({"OTEL_TRACES_EXPORTER": "otlp"}, "http/protobuf", ""),
        ({"OTEL_SDK_DISABLED": "true", "OTEL_TRACES_EXPORTER": "otlp"}, "", ""),
    ],
)
def test_backends_are_read_from_the_environment(environment: dict[str, str], traces: str, metrics: str) -> None:
    settings = TelemetrySettings.of(environment)
    assert (settings.traces, settings.metrics) == (traces, metrics)


def test_prometheus_and_a_backend_can_be_combined() -> None:
    settings = TelemetrySettings.of({"OTEL_METRICS_EXPORTER": "otlp,prometheus", "OTEL_EXPORTER_PROMETHEUS_PORT": "0"})
    assert settings.prometheus == ("localhost", 0)
    assert settings.metrics == "http/protobuf"


@pytest.mark.parametrize(
    ("asked", "traces", "ignored"),
    [("console", "", ["console"]), ("zipkin,otlp", "http/protobuf", ["zipkin"]), ("a,b", "", ["a", "b"])],
)
def test_unsupported_exporter_is_ignored_with_a_warning(asked: str, traces: str, ignored: list[str]) -> None:
    environment = {"OTEL_TRACES_EXPORTER": asked, "OTEL_METRICS_EXPORTER": "none"}
    settings = TelemetrySettings.of(environment)
    assert settings.traces == traces
    assert settings.warnings == tuple(
        f'OTEL_TRACES_EXPORTER: the exporter "{exporter}" is not supported and ignored; supported are none, otlp'
        for exporter in ignored
    )


def test_unsupported_exporter_is_printed_as_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "console")
    with run_telemetry(tmp_path, Consoles()) as telemetry:
        assert telemetry.enabled
    assert capsys.readouterr().err.startswith('mirror: warning: OTEL_TRACES_EXPORTER: the exporter "console"')


def test_all_invalid_variables_are_reported_together() -> None:
    with pytest.raises(ConfigError) as refused:
        TelemetrySettings.of(
            {
                "OTEL_TRACES_SAMPLER": "traceidratio",
                "OTEL_TRACES_SAMPLER_ARG": "2",
                "OTEL_BSP_MAX_QUEUE_SIZE": "many",
            }
        )
    assert str(refused.value).splitlines() == [
        "environment: OTEL_TRACES_SAMPLER_ARG = 2: must be a number from 0 to 1",
        "environment: OTEL_BSP_MAX_QUEUE_SIZE = many: must be a whole number of 1 or more",
    ]


@pytest.mark.parametrize(
    ("sampler", "ratio"),
    [("always_on", 1.0), ("parentbased_always_off", 0.0), ("parentbased_traceidratio", 0.25)],
)
def test_sampler_sets_the_ratio(sampler: str, ratio: float) -> None:
    settings = TelemetrySettings.of({"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": "0.25"})
    assert settings.ratio == ratio


@pytest.mark.parametrize("ratio", [0.0, 0.1, 0.5, 1.0])
def test_sampling_decides_as_the_sdk_does(ratio: float) -> None:
    theirs = TraceIdRatioBased(ratio)
    ours = 0
    for period in range(500):
        trace = period_id("f", "r", period).trace
        decision = theirs.should_sample(None, trace, "mirror.period").decision
        assert is_sampled(trace, ratio) is (decision is Decision.RECORD_AND_SAMPLE)
        ours += is_sampled(trace, ratio)
    assert abs(ours - 500 * ratio) < 60


def test_slow_records_are_traced_only_if_that_is_asked_for_and_there_is_a_backend() -> None:
    backend = {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318"}
    assert TelemetrySettings.of(backend).slow_ms is None
    assert TelemetrySettings.of(backend | {SLOW: "500"}).slow_ms == 500
    (line,) = TelemetrySettings.of({SLOW: "500"}).warnings
    assert line.startswith(f"{SLOW}: no backend receives traces")
    for wrong in ("0", "soon"):
        with pytest.raises(ConfigError, match=f"{SLOW}.*must be a whole number of 1 or more"):
            TelemetrySettings.of(backend | {SLOW: wrong})
