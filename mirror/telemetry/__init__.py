"""Traces, metrics, logs and a report for operators. The only package that imports OpenTelemetry.

It is above the relay, whose values it presents, and below Spark, which collects them.
"""

from __future__ import annotations
