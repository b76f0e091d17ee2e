"""The download of the jars: only pinned files, never half of them, and only once.

A fake `java` replaces Ivy and does what the test says. `mirror sandbox fetch` makes the real download before any test
on real brokers.
"""

from __future__ import annotations

import hashlib
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mirror.errors import SandboxError
from mirror.sandbox import fetch as fetching
from mirror.sandbox.fetch import KAFKA_VERSION, fetch, jar_problems, kafka_home, pinned_jars

CONTENT = {"one-1.0.jar": b"the first", "two-2.0.jar": b"the second"}
PINS = {name: hashlib.sha256(data).hexdigest() for name, data in CONTENT.items()}


@pytest.fixture
def ivy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Puts a `java` first on PATH: it counts its runs in `runs`, and copies the folder `offered` as Ivy would."""
    tools = tmp_path / "tools"
    (tools / "offered").mkdir(parents=True)
    for name, data in CONTENT.items():
        (tools / "offered" / name).write_bytes(data)
    script = f"""#!/bin/sh
if [ "$1" = -version ]; then echo 'openjdk version "17.0.1"' >&2; exit 0; fi
echo run >> {tools}/runs
if [ -e {tools}/broken ]; then echo ':: problems summary ::'; echo '  module not found: org.apache.kafka'; exit 1; fi
for last; do :; done
mkdir -p "$(dirname "$last")"
cp {tools}/offered/* "$(dirname "$last")"
"""
    (tools / "java").write_text(script, encoding="utf-8")
    (tools / "java").chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setattr(fetching, "pinned_jars", lambda: PINS)
    return tools


def runs(ivy: Path) -> int:
    return len((ivy / "runs").read_text().splitlines()) if (ivy / "runs").exists() else 0


def test_fetch_downloads_once(ivy: Path, tmp_path: Path) -> None:
    progress: list[str] = []
    first = fetch(tmp_path / "home", on_progress=progress.append)
    assert first == fetch(tmp_path / "home", on_progress=progress.append)
    assert [jar.read_bytes() for jar in first] == list(CONTENT.values())
    assert runs(ivy) == len(progress) == 1


def test_fetch_leaves_only_the_jars(ivy: Path, tmp_path: Path) -> None:
    fetch(tmp_path / "home")
    assert runs(ivy) == 1
    assert sorted(path.name for path in (tmp_path / "home").iterdir()) == [".lock", "jars"]


def test_concurrent_fetches_download_once(ivy: Path, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: fetch(tmp_path / "home"), range(4)))
    assert all(jar.exists() for jars in results for jar in jars)
    assert runs(ivy) == 1


@pytest.mark.parametrize("harm", ["changed", "deleted"])
def test_fetch_repairs_an_incomplete_folder(ivy: Path, tmp_path: Path, harm: str) -> None:
    jar = fetch(tmp_path / "home")[0]
    if harm == "changed":
        jar.write_bytes(b"something else")
    else:
        jar.unlink()
    assert fetch(tmp_path / "home")[0].read_bytes() == CONTENT[jar.name]
    assert runs(ivy) == 2


def test_fetch_refuses_a_wrong_checksum(ivy: Path, tmp_path: Path) -> None:
    (ivy / "offered" / "two-2.0.jar").write_bytes(b"not the second")
    with pytest.raises(SandboxError, match=r"not Apache Kafka .* as pinned: two-2.0.jar has the SHA-256"):
        fetch(tmp_path / "home")
    assert not (tmp_path / "home" / "jars").exists()


def test_failed_download_says_why_and_what_to_do(ivy: Path, tmp_path: Path) -> None:
    (ivy / "broken").touch()
    with pytest.raises(SandboxError, match=r"could not be downloaded.*MIRROR_KAFKA_HOME.*module not found") as caught:
        fetch(tmp_path / "home")
    assert "\n" not in str(caught.value)


def test_unwritable_folder_is_named(ivy: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SandboxError, match=rf"cannot write to {tmp_path}/file/home: Not a directory"):
        fetch(tmp_path / "file" / "home")
    assert runs(ivy) == 0


def test_jar_problems_lists_each_file(tmp_path: Path) -> None:
    (tmp_path / "one-1.0.jar").write_bytes(CONTENT["one-1.0.jar"] + b"!")
    changed, missing = jar_problems(tmp_path, PINS)
    assert changed.startswith("one-1.0.jar has the SHA-256 ")
    assert missing == "two-2.0.jar is missing"


def test_home_is_in_the_cache_unless_configured() -> None:
    assert kafka_home({"XDG_CACHE_HOME": "/c"}) == Path(f"/c/kafka-spark-mirror/kafka-{KAFKA_VERSION}")
    assert kafka_home({"XDG_CACHE_HOME": "relative"}) == kafka_home({})
    assert kafka_home({"MIRROR_KAFKA_HOME": "/k", "XDG_CACHE_HOME": "/c"}) == Path("/k")


def test_pins_contain_the_brokers_of_the_version() -> None:
    pins = pinned_jars()
    assert {f"kafka_2.13-{KAFKA_VERSION}.jar", f"kafka-tools-{KAFKA_VERSION}.jar"} <= pins.keys()
    assert all(re.fullmatch(r"[0-9a-f]{64}", digest) for digest in pins.values())
    ivy_xml = Path(fetching.__file__).with_name("ivy.xml").read_text(encoding="utf-8")
    assert f'name="kafka_2.13" rev="{KAFKA_VERSION}"' in ivy_xml
