"""Runs real Kafka brokers on this machine: downloaded once, started on free ports, and always stopped."""

from __future__ import annotations
