"""Traces, metrics, logs and a report for operators. The only package that imports OpenTelemetry.

It is above the relay, whose values it presents, and below Spark, which collects them.

::

    cores count (meters) ───────────┐                       executor
    a copy writes its CopyTimeline ─┴─► RangeResult, ──► task.py ──► spans ──► OTLP
                                        TaskSnapshot        │
                                                            └─► TaskReport: with the results, in a stream by the
                                                                │           status topic
                                                                ▼
    OTLP, files, Prometheus ◄── root spans, sums ◄────────── run.py ◄── driver
"""

from __future__ import annotations
