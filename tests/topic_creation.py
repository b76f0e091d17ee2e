"""Topics that a test creates, and that it uses only once each broker lists them."""

from __future__ import annotations

import uuid
from collections.abc import Iterable

from mirror.client import Admin, NewTopic
from tests.polling import eventually


def create_topics(admin: Admin, topics: Iterable[NewTopic]) -> dict[str, uuid.UUID | None]:
    """Create ``topics``, return their ids, and wait until each live broker lists them.

    The controller answers before the brokers have applied its records. A command that lists topics in between finds
    nothing to copy.
    """
    ids = dict(admin.create_topics(topics))
    await_topics(admin, ids)
    return ids


def await_topics(admin: Admin, names: Iterable[str]) -> None:
    """Wait until each live broker lists the topics ``names``."""
    wanted = set(names)
    eventually(
        lambda: all(wanted <= known.keys() for known in admin.describe_topics_by_broker(wanted).values()),
        what=f"brokers that list {sorted(wanted)}",
    )
