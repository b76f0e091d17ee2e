"""The search for a Java, and the errors if there is no suitable one."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.errors import SandboxError
from mirror.sandbox.java import find_java, parse_version


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ('openjdk version "17.0.15" 2025-04-15\nOpenJDK Runtime Environment', 17),
        ('java version "1.8.0_402"', 8),
        ('openjdk version "21-ea" 2023-09-19', 21),
        ('openjdk version "25" 2025-09-16', 25),
        ('Picked up JAVA_TOOL_OPTIONS: -Dx=1\nopenjdk version "11.0.2" 2019-01-15', 11),
        ("command not found", None),
        ("", None),
    ],
)
def test_version_is_the_feature_release(text: str, version: int | None) -> None:
    assert parse_version(text) == version


def fake_java(folder: Path, script: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    java = folder / "java"
    java.write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    java.chmod(0o755)
    return java


def says(version: str) -> str:
    return f"""echo 'openjdk version "{version}"' >&2"""


def test_java_home_has_priority_over_path(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk" / "bin", says("21.0.1"))
    fake_java(tmp_path / "path", says("17.0.1"))
    found = find_java({"JAVA_HOME": str(tmp_path / "jdk"), "PATH": str(tmp_path / "path")})
    assert (found.path, found.version) == (home, 21)


def test_path_is_searched_without_java_home(tmp_path: Path) -> None:
    java = fake_java(tmp_path, says("17.0.1"))
    assert find_java({"PATH": str(tmp_path)}).path == java


def test_missing_java_says_what_to_install(tmp_path: Path) -> None:
    with pytest.raises(SandboxError, match=r"no Java found.*install a JDK of version 17 or later") as caught:
        find_java({"PATH": str(tmp_path)})
    assert "\n" not in str(caught.value)


def test_old_java_is_named_with_its_version(tmp_path: Path) -> None:
    java = fake_java(tmp_path, says("11.0.22"))
    with pytest.raises(SandboxError, match=rf"{java} is Java 11, which is too old: install a JDK"):
        find_java({"PATH": str(tmp_path)})


def test_java_home_without_java_is_an_error(tmp_path: Path) -> None:
    fake_java(tmp_path / "path", says("17.0.1"))
    with pytest.raises(SandboxError, match=r"JAVA_HOME is .*nowhere, but there is no .*nowhere/bin/java"):
        find_java({"JAVA_HOME": str(tmp_path / "nowhere"), "PATH": str(tmp_path / "path")})


@pytest.mark.parametrize("script", ["echo 'Unable to locate a Java Runtime.' >&2; exit 1", "exit 0"])
def test_java_without_a_version_is_an_error(tmp_path: Path, script: str) -> None:
    fake_java(tmp_path, script)
    with pytest.raises(SandboxError, match="no working Java"):
        find_java({"PATH": str(tmp_path)})
