"""The transform of config/README.md works as documented, and a record can be changed in the obvious ways."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from mirror.client import Record
from mirror.errors import FlowError
from mirror.relay.batches.reencode import DROPPED_BY_TRANSFORM, ReencodeSpec, reencode
from mirror.relay.batches.transforms import load_transform
from mirror.wire.decode import records_of
from tests.relay.batches.test_reencode import TIME, _Made, gappy

README = Path(__file__).parents[3] / "config" / "README.md"


def example() -> tuple[str, str, str]:
    """Return the module's name and text, and the function's name in the configuration."""
    text = README.read_text(encoding="utf-8")
    code = re.search(r"```python\n# (\w+)\.py\n(.*?)```", text, re.DOTALL)
    named = re.search(r'^transform = "(\w+:\w+)"$', text, re.MULTILINE)
    assert code is not None
    assert named is not None
    return code.group(1), code.group(2), named.group(1)


@pytest.fixture
def transform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[Record], Record | None]:
    module, text, name = example()
    (tmp_path / f"{module}.py").write_text(text, encoding="utf-8")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, module, raising=False)
    return load_transform(name)


def test_the_example_in_readme(transform: Callable[[Record], Record | None]) -> None:
    records: list[_Made] = [
        (b"test-1", b"x", [], TIME),
        (b"k", b"card 4711", [("own", None)], TIME + 1),
        (b"k", None, [], TIME + 2),
        (None, b"", [], TIME + 3),
    ]
    made = reencode([gappy(records, [1] * 4, "none", 0, 0)], ReencodeSpec(transform=transform))
    found = [one for part in made.batches for one in records_of(part.batch)]
    assert [(one.timestamp_ms, one.key, one.value, one.headers) for one in found] == [
        (TIME + 1, b"k", b"card ****", (("own", None), ("masked", b"yes"))),
        (TIME + 2, b"k", None, ()),
        (TIME + 3, None, b"", (("masked", b"yes"),)),
    ]
    assert made.dropped == {DROPPED_BY_TRANSFORM: 1}


def test_transform_replaces_fields() -> None:
    record = Record(7, TIME, b"k", b"v", (("h", b"1"),))
    assert record.replace(value=None, timestamp_ms=1) == Record(7, 1, b"k", None, (("h", b"1"),))
    assert record.replace(headers={"a": b"2", "b": None}).headers == (("a", b"2"), ("b", None))
    assert record.replace(headers=[("a", b"2")]).headers == (("a", b"2"),)
    assert record.replace() == record


@pytest.mark.parametrize("name", ["offset", "topic", "timestamp"])
def test_unknown_field_is_named(name: str) -> None:
    record = Record(7, TIME, b"k", b"v", ())
    with pytest.raises(
        TypeError, match=f"a record has no {name} to replace; there are: headers, key, timestamp_ms, va"
    ):
        record.replace(**{name: 1})
    sources = [gappy([(b"k", b"v", [], TIME)], [1], "none", 0, 0)]
    with pytest.raises(FlowError, match=f"failed at offset 0: TypeError: a record has no {name} to replace"):
        reencode(sources, ReencodeSpec(transform=lambda one: one.replace(**{name: 1})))
