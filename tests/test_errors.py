"""The exception tree: as documented, catchable as users expect, and picklable."""

from __future__ import annotations

import inspect
import pickle
import re

import pytest

from mirror import errors
from mirror.errors import BrokerError, ConfigError, DeliveryTimeout, KafkaTimeout, MirrorError, Problem

_CLASSES = [c for _, c in inspect.getmembers(errors, inspect.isclass) if issubclass(c, MirrorError)]


def _instance(kind: type[MirrorError]) -> MirrorError:
    if issubclass(kind, ConfigError):
        return kind([Problem("file.toml", "a.key", "'x'", "must be y")])
    return kind("what happened", 7) if issubclass(kind, BrokerError) else kind("what happened")


@pytest.mark.parametrize("kind", _CLASSES)
def test_every_error_is_documented_below_its_parent(kind: type[MirrorError]) -> None:
    drawing = (errors.__doc__ or "").splitlines()
    depth = {
        found.group(2): len(found.group(1))
        for line in drawing
        if (found := re.match(r"    ([│├└─ ]*)(\w+)( |$)", line)) is not None
    }
    order = list(depth)
    assert kind.__name__ in depth, "draw it in the docstring"
    if kind is not MirrorError:
        above = [name for name in order[: order.index(kind.__name__)] if depth[name] < depth[kind.__name__]]
        assert above[-1] == kind.__bases__[0].__name__


@pytest.mark.parametrize("kind", _CLASSES)
def test_errors_can_be_pickled(kind: type[MirrorError]) -> None:
    error = _instance(kind)
    there = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(there) is kind
    assert str(there) == str(error)
    assert {k: v for k, v in vars(there).items() if not k.startswith("__")} == vars(error)


def test_pickled_delivery_timeout_keeps_may_have_been_written() -> None:
    error = DeliveryTimeout("late", may_have_been_written=True)
    assert pickle.loads(pickle.dumps(error)).may_have_been_written  # noqa: S301 - our own bytes


@pytest.mark.parametrize("kind", [KafkaTimeout, DeliveryTimeout])
def test_every_timeout_is_a_timeout_error(kind: type[Exception]) -> None:
    assert issubclass(kind, TimeoutError)


def test_config_error_has_one_line_per_problem() -> None:
    problems = [Problem("file.toml", "a", "1", "must be 2"), Problem("", "b", "***", "unknown key")]
    error = ConfigError(problems)
    assert str(error) == "file.toml: a = 1: must be 2\nb = ***: unknown key"
    assert error.problems == tuple(problems)
