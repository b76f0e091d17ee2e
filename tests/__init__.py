"""Tests, in the folders of what they test; ``brokers`` and ``spark`` need the real thing."""

from __future__ import annotations
