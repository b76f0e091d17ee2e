"""OpenTelemetry's standard environment variables, as far as they concern us, read and checked at once. Pure.

The SDK's own start-up reads them too, but only for a process that traces by the SDK's tracers; and it takes an
exporter's absence for a wish to export to localhost.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from mirror.errors import ConfigError, Problem

SERVICE: Final = "kafka-spark-mirror"
PREFIX: Final = "OTEL_"
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
    """Where telemetry goes. Times are ms.

    ``traces`` and ``metrics`` are OTLP's protocol ("http/protobuf", "grpc"), or "" for no backend. ``prometheus`` is
    where a stream's driver can be scraped (host, port), or None. ``ratio`` of the epochs are sampled. ``disabled``:
    nothing is made at all, no files either.
    """

    disabled: bool = False
    traces: str = ""
    metrics: str = ""
    prometheus: tuple[str, int] | None = None
    ratio: float = 1.0
    queue_size: int = 2_048
    batch_size: int = 512
    delay_ms: int = 5_000
    metrics_every_ms: int = 60_000
    warnings: tuple[str, ...] = ()
    """What the environment asks for and does not get, a line each."""

    @property
    def backend(self) -> bool:
        """Whether anything goes to a backend."""
        return bool(self.traces or self.metrics)

    @classmethod
    def of(cls, environment: Mapping[str, str]) -> TelemetrySettings:
        """Raises ConfigError with every variable that is not understood."""
        return _Reading(environment).settings()


class _Reading:
    def __init__(self, environment: Mapping[str, str]) -> None:
        # As the specification has it: empty is as if not set.
        self._env: Final = {
            name: value.strip() for name, value in environment.items() if name.startswith(PREFIX) and value.strip()
        }
        self._problems: list[Problem] = []
        self._warnings: list[str] = []

    def settings(self) -> TelemetrySettings:
        disabled = self._env.get("OTEL_SDK_DISABLED", "").lower() == "true"
        metrics = self._exporters("METRICS", _METRICS)
        traces = self._exporters("TRACES", _TRACES)
        found = TelemetrySettings(
            disabled=disabled,
            traces=self._protocol("TRACES") if "otlp" in traces else "",
            metrics=self._protocol("METRICS") if "otlp" in metrics else "",
            prometheus=self._prometheus() if "prometheus" in metrics else None,
            ratio=self._ratio(),
            queue_size=self._number("OTEL_BSP_MAX_QUEUE_SIZE", 2_048),
            batch_size=self._number("OTEL_BSP_MAX_EXPORT_BATCH_SIZE", 512),
            delay_ms=self._number("OTEL_BSP_SCHEDULE_DELAY", 5_000),
            metrics_every_ms=self._number("OTEL_METRIC_EXPORT_INTERVAL", 60_000),
            warnings=tuple(self._warnings),
        )
        if self._problems and not disabled:
            raise ConfigError(self._problems)
        return TelemetrySettings(disabled=True) if disabled else found

    def _exporters(self, signal: str, known: frozenset[str]) -> set[str]:
        name = f"OTEL_{signal}_EXPORTER"
        asked = {part.strip() for part in self._env.get(name, "").split(",") if part.strip()}
        for one in sorted(asked - known):
            # OpenTelemetry's specification has it so; the variable may be there for other programs.
            known_ones = ", ".join(sorted(known))
            self._warnings.append(f'{name}: there is no exporter "{one}" here, only {known_ones}; it is ignored')
        if not asked and self._get(signal, "ENDPOINT"):
            return {"otlp"}
        return asked - {"none"}

    def _get(self, signal: str, what: str) -> str:
        return self._env.get(f"OTEL_EXPORTER_OTLP_{signal}_{what}") or self._env.get(f"OTEL_EXPORTER_OTLP_{what}", "")

    def _protocol(self, signal: str) -> str:
        protocol = self._get(signal, "PROTOCOL") or _PROTOCOLS[0]
        if protocol not in _PROTOCOLS:
            name = f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL"
            self._complain(name, protocol, f"must be one of {', '.join(_PROTOCOLS)}")
        return protocol

    def _prometheus(self) -> tuple[str, int]:
        port = self._number("OTEL_EXPORTER_PROMETHEUS_PORT", 9464, least=0)
        return self._env.get("OTEL_EXPORTER_PROMETHEUS_HOST", "localhost"), port

    def _ratio(self) -> float:
        sampler = self._env.get("OTEL_TRACES_SAMPLER", "parentbased_always_on")
        if sampler not in _SAMPLERS:
            self._complain("OTEL_TRACES_SAMPLER", sampler, f"must be one of {', '.join(sorted(_SAMPLERS))}")
        if not sampler.endswith("traceidratio"):
            return 0.0 if sampler.endswith("always_off") else 1.0
        text = self._env.get("OTEL_TRACES_SAMPLER_ARG", "1.0")
        try:
            ratio = float(text)
        except ValueError:
            ratio = -1.0
        if not 0 <= ratio <= 1:
            self._complain("OTEL_TRACES_SAMPLER_ARG", text, "must be a number from 0 to 1")
        return ratio

    def _number(self, name: str, default: int, least: int = 1) -> int:
        text = self._env.get(name, str(default))
        if not text.isdecimal() or int(text) < least:
            self._complain(name, text, f"must be a whole number of {least} or more")
            return default
        return int(text)

    def _complain(self, name: str, value: str, allowed: str) -> None:
        self._problems.append(Problem("environment", name, value, allowed))


def sampled(trace: int, ratio: float) -> bool:
    """Whether an epoch with this trace id is sampled: as OpenTelemetry's TraceIdRatioBased decides it.

    Every process comes to the same answer. An epoch with an expiry is kept in any case.
    """
    bound = round(ratio * 2**64)
    return trace & (2**64 - 1) < bound
