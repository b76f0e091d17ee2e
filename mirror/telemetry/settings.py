"""Reads and checks those of OpenTelemetry's standard environment variables that this application supports.

The SDK's own start-up reads them, too, but only in a process that uses the SDK's tracers, and it exports to localhost
if no exporter is named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mirror.errors import ConfigError, Problem
from mirror.extras import OTLP_GRPC, missing

SERVICE: Final = "kafka-spark-mirror"
PREFIX: Final = "OTEL_"
SLOW: Final = "MIRROR_TRACE_SLOW_MS"
"""How late a record has to be copied so that its trace shows it; OpenTelemetry has no such variable."""
EXPORT_INTERVAL_MS: Final = 5_000
"""How often a backend receives metrics, if ``OTEL_METRIC_EXPORT_INTERVAL`` does not say it.

OpenTelemetry's default, 60 s, is the largest part of the time until a failure is seen.
"""
FILE_INTERVAL_MS: Final = 60_000
"""The same for the file that replaces a backend: it is read after a run, and its size is bounded."""
_PROTOCOLS: Final = ("http/protobuf", "grpc")
_SAMPLERS: Final = frozenset(
    {
        "always_on",
        "always_off",
        "traceidratio",
        "parentbased_always_on",
        "parentbased_always_off",
        "parentbased_traceidratio",
    }
)
_TRACES: Final = frozenset({"otlp", "none"})
_METRICS: Final = frozenset({"otlp", "prometheus", "none"})


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetrySettings:
    """Where telemetry goes. Times are ms."""

    disabled: bool = False
    """No telemetry is produced, and no files are written."""
    traces: str = ""
    """OTLP's protocol ("http/protobuf", "grpc"), or "" for no backend."""
    metrics: str = ""
    """The same for metrics."""
    prometheus: tuple[str, int] | None = None
    """Host and port of the endpoint that Prometheus can scrape in a stream's driver."""
    slow_ms: int | None = None
    """How late a record has to be copied so that its trace shows it; None: never."""
    ratio: float = 1.0
    """The share of periods that are sampled."""
    queue_size: int = 2_048
    batch_size: int = 512
    delay_ms: int = 5_000
    metrics_every_ms: int = FILE_INTERVAL_MS
    warnings: tuple[str, ...] = ()
    """One line for each requested setting that is ignored."""

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> TelemetrySettings:
        """Read the settings from the environment. Raises ConfigError that names every invalid variable."""
        return _EnvironmentReader(environment).settings()


class _EnvironmentReader:
    def __init__(self, environment: Mapping[str, str]) -> None:
        # The specification says that an empty variable counts as unset.
        self._env: Final = {
            name: value.strip()
            for name, value in environment.items()
            if (name.startswith(PREFIX) or name == SLOW) and value.strip()
        }
        self._problems: list[Problem] = []
        self._warnings: list[str] = []

    def settings(self) -> TelemetrySettings:
        disabled = self._env.get("OTEL_SDK_DISABLED", "").lower() == "true"
        metrics = self._exporters("METRICS", _METRICS)
        traces = self._exporters("TRACES", _TRACES)
        if SLOW in self._env and "otlp" not in traces:
            self._warnings.append(f"{SLOW}: no backend receives traces (OTEL_EXPORTER_OTLP_ENDPOINT), so it is ignored")
        interval_ms = EXPORT_INTERVAL_MS if "otlp" in metrics else FILE_INTERVAL_MS
        settings = TelemetrySettings(
            disabled=disabled,
            traces=self._protocol("TRACES") if "otlp" in traces else "",
            metrics=self._protocol("METRICS") if "otlp" in metrics else "",
            prometheus=self._prometheus() if "prometheus" in metrics else None,
            slow_ms=self._number(SLOW, 0, minimum=1) if SLOW in self._env else None,
            ratio=self._ratio(),
            queue_size=self._number("OTEL_BSP_MAX_QUEUE_SIZE", 2_048),
            batch_size=self._number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
            delay_ms=self._number("OTEL_BSP_SCHEDULE_DELAY", 5_000),
            metrics_every_ms=self._number("OTEL_METRIC_EXPORT_INTERVAL", interval_ms),
            warnings=tuple(self._warnings),
        )
        if self._problems and not disabled:
            raise ConfigError(self._problems)
        return TelemetrySettings(disabled=True) if disabled else settings

    def _exporters(self, signal: str, supported: frozenset[str]) -> set[str]:
        name = f"OTEL_{signal}_EXPORTER"
        requested = {part.strip() for part in self._env.get(name, "").split(",") if part.strip()}
        for exporter in sorted(requested - supported):
            # OpenTelemetry's specification asks for a warning only: the variable may be set for other programs.
            self._warnings.append(
                f'{name}: the exporter "{exporter}" is not supported and ignored;'
                f" supported are {', '.join(sorted(supported))}"
            )
        if not requested and self._get(signal, "ENDPOINT"):
            return {"otlp"}
        return requested - {"none"}

    def _get(self, signal: str, setting: str) -> str:
        specific = self._env.get(f"OTEL_EXPORTER_OTLP_{signal}_{setting}")
        return specific or self._env.get(f"OTEL_EXPORTER_OTLP_{setting}", "")

    def _protocol(self, signal: str) -> str:
        protocol = self._get(signal, "PROTOCOL") or _PROTOCOLS[0]
        name = f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL"
        if protocol not in _PROTOCOLS:
            self._add_problem(name, protocol, f"must be one of {', '.join(_PROTOCOLS)}")
        elif protocol == "grpc" and (lacking := missing(OTLP_GRPC)):
            self._add_problem(name, protocol, f"{lacking}, on every host")
        return protocol

    def _prometheus(self) -> tuple[str, int]:
        port = self._number("OTEL_EXPORTER_PROMETHEUS_PORT", 9464, minimum=0)
        return self._env.get("OTEL_EXPORTER_PROMETHEUS_HOST", "localhost"), port

    def _ratio(self) -> float:
        sampler = self._env.get("OTEL_TRACES_SAMPLER", "parentbased_always_on")
        if sampler not in _SAMPLERS:
            self._add_problem("OTEL_TRACES_SAMPLER", sampler, f"must be one of {', '.join(sorted(_SAMPLERS))}")
        if not sampler.endswith("traceidratio"):
            return 0.0 if sampler.endswith("always_off") else 1.0
        text = self._env.get("OTEL_TRACES_SAMPLER_ARG", "1.0")
        try:
            ratio = float(text)
        except ValueError:
            ratio = -1.0
        if not 0 <= ratio <= 1:
            self._add_problem("OTEL_TRACES_SAMPLER_ARG", text, "must be a number from 0 to 1")
        return ratio

    def _number(self, name: str, default: int, minimum: int = 1) -> int:
        text = self._env.get(name, str(default))
        if not text.isdecimal() or int(text) < minimum:
            self._add_problem(name, text, f"must be a whole number of {minimum} or more")
            return default
        return int(text)

    def _add_problem(self, name: str, value: str, allowed: str) -> None:
        self._problems.append(Problem("environment", name, value, allowed))


def is_sampled(trace: int, ratio: float) -> bool:
    """Return whether a period with this trace id is sampled, by the rule of OpenTelemetry's TraceIdRatioBased.

    Every process decides the same for the same id. A period with an expiry is exported in any case.
    """
    bound = round(ratio * 2**64)
    return trace & (2**64 - 1) < bound
