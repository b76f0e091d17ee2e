"""Replicates topics between Apache Kafka clusters, run by Spark."""

from __future__ import annotations
