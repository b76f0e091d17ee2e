"""Exporters: OTLP, JSON lines, Prometheus."""
