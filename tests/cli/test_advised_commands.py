"""Every command, option and setting that a text of this program names exists."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer
from pydantic import ValidationError
from typer.main import get_command

import mirror
from mirror.cli.app import app
from mirror.config.models import FlowConfig

_ROOT: Final = Path(mirror.__file__).parent
_COMMAND: Final = re.compile(
    r"\bmirror ((?:[a-z]+-)*[a-z]+)((?:[ =]+(?:--[a-z-]+|[A-Z]{2,}|\{\}|[\w.]+\.(?:toml|json)))*)"
)
_SETTING: Final = re.compile(r'(?<![\w.-])([a-z]+(?:-[a-z]+)*) = ("[a-z-]*"|true|false|[0-9]+)(?![\w.])')


def _texts(node: ast.AST) -> Iterator[str]:
    """Yield the strings of a module; what is inserted into them is ``{}``."""
    if isinstance(node, ast.JoinedStr):
        yield "".join(str(one.value) if isinstance(one, ast.Constant) else "{}" for one in node.values)
        return
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value
    for child in ast.iter_child_nodes(node):
        yield from _texts(child)


# Not while the tests are collected: each worker of the suite collects all tests.
@functools.cache
def _all_texts() -> list[tuple[str, str]]:
    return [
        (str(path.relative_to(_ROOT)), text)
        for path in sorted(_ROOT.rglob("*.py"))
        for text in _texts(ast.parse(path.read_text(encoding="utf-8")))
    ]


def _options_of(name: str) -> set[str]:
    _, command, _ = _GROUP.resolve_command(typer.Context(_GROUP), [name])
    return {one for parameter in command.params for one in (*parameter.opts, *parameter.secondary_opts)}


_GROUP: Final[Any] = get_command(app)
_NAMES: Final = set(_GROUP.commands)


def test_commands_and_options_that_texts_name_exist() -> None:
    found = set[str]()
    for path, text in _all_texts():
        for name, rest in _COMMAND.findall(text):
            options = set(re.findall(r"--[a-z-]+", rest))
            if name not in _NAMES:
                assert not options, f"{path}: there is no command mirror {name}: {text}"
                continue
            found.add(name)
            there = _options_of(name) if options else options
            assert options <= there, f"{path}: mirror {name} has no {options - there}: {text}"
    assert {"rehearse", "groups", "plan", "apply", "takeover", "offsets", "drift"} <= found


def test_values_of_settings_that_texts_name_are_allowed() -> None:
    keys = {name.replace("_", "-"): name for name in FlowConfig.model_fields}
    found = set[str]()
    for path, text in _all_texts():
        for key, value in _SETTING.findall(text):
            if key not in keys or key in {"source", "target", "name"}:
                continue
            found.add(key)
            given = {"true": True, "false": False}.get(value, value.strip('"'))
            try:
                FlowConfig(name="f", source="a", target="b", topics=("t",), **{keys[key]: given})
            except ValidationError as error:
                wrong = [one for one in error.errors() if one["loc"] and one["loc"][0] in {key, keys[key]}]
                assert not wrong, f"{path}: {key} = {value}: {wrong[0]['msg']}"
    assert {"on-target-recreated", "start-over", "on-gap", "origin"} <= found


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("mirror groups --flow {} --resume GROUP", [("groups", ["--flow", "--resume"])]),
        ("see mirror takeover --config FILE --flow NAME, or", [("takeover", ["--config", "--flow"])]),
    ],
)
def test_options_of_a_command_are_recognized(text: str, found: list[tuple[str, list[str]]]) -> None:
    assert [(name, re.findall(r"--[a-z-]+", rest)) for name, rest in _COMMAND.findall(text)] == found
