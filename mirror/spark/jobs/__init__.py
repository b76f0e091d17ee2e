"""The entry points as they are installed: `mirror run` and `mirror stream` find them without a checkout."""

from __future__ import annotations
