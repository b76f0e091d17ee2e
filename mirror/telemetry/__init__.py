"""What a run shows of itself: traces, metrics, logs, a report. The one place that knows OpenTelemetry."""
