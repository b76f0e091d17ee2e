"""Real Kafka brokers of its own: fetched once, started on free ports, stopped for sure."""

from __future__ import annotations
