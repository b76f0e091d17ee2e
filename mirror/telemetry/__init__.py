"""What the operator looks at. Above the relay, whose values it shows, and below Spark, which brings them."""

from __future__ import annotations
