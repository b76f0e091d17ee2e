"""Fixtures of the importer's tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mirrormaker.kafkas_classes import KafkasClasses, kafkas_classes


@pytest.fixture(scope="session")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkasClasses]:
    """MirrorMaker 2's settings and those of Kafka's clients, in a JVM of each process of tests."""
    source = Path(__file__).parent / "java" / "MirrorMakerSettings.java"
    with kafkas_classes(tmp_path_factory.mktemp("java"), source) as running:
        yield running
