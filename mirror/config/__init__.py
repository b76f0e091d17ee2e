"""The configuration file: read, overridden, checked whole, and handed on as frozen models."""

from __future__ import annotations
