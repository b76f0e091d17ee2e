"""The installed entry points, which `mirror run` and `mirror stream` start without a checkout."""

from __future__ import annotations
