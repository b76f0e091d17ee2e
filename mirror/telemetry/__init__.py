"""What the operator looks at: traces, measurements, logs, a report. The one place that knows OpenTelemetry.

Above the relay, whose values it shows, and below Spark, which brings them.
"""

from __future__ import annotations
