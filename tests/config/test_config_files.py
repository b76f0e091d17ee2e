"""Files that are no configuration, or cannot be read."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirror.config.load import load
from mirror.errors import ConfigError
from tests.config.test_load import NOBODY

from .conftest import CLUSTERS, FLOW, Load, Problems


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            b"[clusters\n",
            "mirror.toml: not TOML: Expected ']' at the end of a table declaration (at line 1, column 10)",
        ),
        (b"a = 1\na = 2", "mirror.toml: not TOML: line 2: the key a appears twice, first in line 1; remove one"),
        (b"a = 1" + b"0" * 5000, "mirror.toml: not TOML: Exceeds the limit"),
        (b"a = " + b"[" * 100_000, "mirror.toml: not a configuration: nested too deeply"),
        (b"a = 1 # \xff", "mirror.toml: not UTF-8 text, from byte 8 on"),
        ("a = 1".encode("utf-16"), "mirror.toml: not UTF-8 text but UTF-16; save it as UTF-8"),
        (b"", "mirror.toml: clusters: there is none; add a table [clusters.NAME]"),
    ],
)
def test_a_file_that_is_no_configuration(tmp_path: Path, content: bytes, expected: str) -> None:
    file = tmp_path / "mirror.toml"
    file.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load(file, environ={})
    assert expected in str(caught.value)


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    file = tmp_path / "mirror.toml"
    file.write_text(CLUSTERS + FLOW, encoding="utf-8-sig")
    assert load(file, environ={}).flows


def test_a_file_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match="no such file; give the configuration's path"):
        load(tmp_path / "nothing.toml", environ={})
    with pytest.raises(ConfigError, match="not a file; give the path of a TOML file"):
        load(tmp_path, environ={})
    with pytest.raises(ConfigError, match="cannot be read: File name too long"):
        load(tmp_path / ("x" * 5000), environ={})
    (tmp_path / "~").mkdir()
    (tmp_path / "~" / "mirror.toml").write_text(CLUSTERS + FLOW)
    monkeypatch.chdir(tmp_path)
    assert load(Path("~/mirror.toml"), environ={}).flows  # the shell's ~ is the shell's business


def test_a_file_without_permission() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)
        file = Path(folder) / "mirror.toml"
        file.touch(mode=0o000)
        with not_as_root(), pytest.raises(ConfigError, match="cannot be read: Permission denied"):
            load(file, environ={})


@contextlib.contextmanager
def not_as_root() -> Iterator[None]:
    """Root may read everything: be somebody else for a moment."""
    me = os.geteuid()
    if me == 0:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(me)


def test_names_of_python_attributes_are_unknown_keys(problems: Problems) -> None:
    toml = "self = 1\nmodel_config = 2\nsources = 3\n_env_file = 4\n" + CLUSTERS + FLOW
    assert len(problems(toml)) == 4


def test_a_misspelt_section_is_one_error(read: Load) -> None:
    with pytest.raises(ConfigError) as caught:
        read(CLUSTERS + FLOW.replace("[flows.", "[flow."))
    assert len(str(caught.value).splitlines()) == 1
