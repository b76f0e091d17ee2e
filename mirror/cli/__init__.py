"""The ``mirror`` command."""

from __future__ import annotations
