"""What a test may do to a request on its way through a fake broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from mirror.cluster.types import TopicPartition
from mirror.wire.api import Api
from mirror.wire.messages.base import Message
from tests.fakes.sessions import Resolved


@dataclass(slots=True, eq=False)
class ServerCall:
    """One request as a broker got it, at ``received_ms``.

    ``wait_until_ms`` and ``session`` are a Fetch's: until when it polls long, and what it reads. ``produced`` are a
    Produce's appends, whose replication it waits for, also until ``wait_until_ms``.
    """

    node: int
    connection: int
    api: Api
    version: int
    correlation_id: int
    body: Any
    received_ms: int
    wait_until_ms: int | None = None
    session: Resolved | None = None
    produced: list[Any] | None = None
    action: Action = field(init=False)


@dataclass(slots=True, eq=False)
class Action:
    """What becomes of a request. Times in ms.

    ``stall_ms`` passes before it is handled, ``delay_ms`` between that and the answer. ``hold`` keeps it until the
    test says ``release()``: "before" it is handled, or "after", when only the answer is kept back. ``silent``: it is
    handled, but no answer comes, nor any to the requests behind it. ``close``: the connection breaks "before" it is
    handled, or "after". ``half``: only the answer's first half is sent, then silence, or the connection breaks.

    ``errors`` answers partitions (or topics, groups, coordinator keys) with codes, without doing anything for them;
    with ``handled`` it is done all the same, and only the answer is wrong.
    ``messages`` are the texts that go with these errors, where an API has any.
    ``rewrite`` changes the answer's body, ``mangle`` its frame (with its size).
    """

    stall_ms: int = 0
    delay_ms: int = 0
    hold: Literal["", "before", "after"] = ""
    silent: bool = False
    close: Literal["", "before", "after"] = ""
    half: Literal["", "silent", "close"] = ""
    errors: Mapping[TopicPartition | str, int] = field(default_factory=dict)
    messages: Mapping[str, str] = field(default_factory=dict)
    handled: bool = False
    rewrite: Callable[[Any], Message] | None = None
    mangle: Callable[[bytes], bytes] | None = None

    def release(self) -> None:
        self.hold = ""

    def code(self, key: TopicPartition | str) -> int:
        """The code to answer ``key`` with, 0 for none."""
        return self.errors.get(key, 0)

    def message(self, key: str) -> str:
        """The text that goes with the error of ``key``."""
        return self.messages.get(key, "refused")


Rule = Callable[[ServerCall], Action | None]
"""Decides about a request: an Action, or None if it does not apply."""


class Control:
    """Rules in the order they were made; the first that has an action for a request wins."""

    def __init__(self) -> None:
        self._rules: list[Rule] = []

    def add(self, rule: Rule) -> None:
        """For every request from now on."""
        self._rules.append(rule)

    def on(self, api: Api, action: Action, *, times: int | None = 1, node: int | None = None) -> Action:
        """The next ``times`` requests (None: all) of ``api`` (to ``node``) get ``action``."""
        left = times

        def rule(call: ServerCall) -> Action | None:
            nonlocal left
            if call.api is not api or (node is not None and call.node != node) or left == 0:
                return None
            left = None if left is None else left - 1
            return action

        self.add(rule)
        return action

    def clear(self) -> None:
        self._rules.clear()

    def decide(self, call: ServerCall) -> Action:
        for rule in self._rules:
            action = rule(call)
            if action is not None:
                return action
        return Action()
