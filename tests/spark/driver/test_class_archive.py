"""The archive of the classes of Spark's JVM: when it is made, used and left alone. tests/e2e has it with a real JVM."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mirror.sandbox.folders import cache_folder
from mirror.spark.driver.launch import class_archive
from mirror.spark.driver.launch.class_archive import ClassArchive
from mirror.spark.driver.launch.submission import WRITES_ARCHIVE, Submission


@pytest.fixture
def java(tmp_path: Path) -> Path:
    path = tmp_path / "java"
    path.write_bytes(b"17")
    return path


@pytest.fixture
def archive(java: Path, tmp_path: Path) -> ClassArchive:
    """After a first run."""
    found = ClassArchive.of(java, lambda: tmp_path / "cache")
    assert found is not None
    assert found.options({}, write=True) == ()
    found.keep(whole=True)
    return found


def archives(archive: ClassArchive) -> set[str]:
    return {path.name for path in archive.path.parent.iterdir() if path.suffix != ".seen"}


def written_to(options: tuple[str, ...]) -> Path:
    """What a JVM with these options would write."""
    (option,) = (each for each in options if each.startswith("-XX:ArchiveClassesAtExit="))
    return Path(option.split("=", 1)[1])


def test_the_second_run_writes_what_the_next_one_uses(archive: ClassArchive) -> None:
    part = written_to(archive.options({}, write=True))
    assert part != archive.path
    part.write_bytes(b"classes")
    archive.keep(whole=True)
    assert archive.path.read_bytes() == b"classes"
    assert archive.path.stat().st_mode & 0o777 == 0o600
    assert not part.exists()
    for write in (True, False):
        assert archive.options({}, write=write)[:2] == (f"-XX:SharedArchiveFile={archive.path}", "-Xshare:auto")


@pytest.mark.parametrize("content", [b"half of the classes", b""])
def test_a_jvm_that_was_ended_or_wrote_nothing_leaves_no_archive(archive: ClassArchive, content: bytes) -> None:
    part = written_to(archive.options({}, write=True))
    part.write_bytes(content)
    archive.keep(whole=not content)
    assert archives(archive) == set()


def test_a_job_that_ends_with_its_jvm_killed_writes_none(archive: ClassArchive) -> None:
    assert archive.options({}, write=False) == ()


@pytest.mark.parametrize("mode", [0o620, 0o602])
def test_an_archive_that_others_may_write_to_is_replaced(archive: ClassArchive, mode: int) -> None:
    archive.path.write_bytes(b"code of somebody else")
    archive.path.chmod(mode)
    written_to(archive.options({}, write=True)).write_bytes(b"ours")
    archive.keep(whole=True)
    assert archive.path.read_bytes() == b"ours"


def test_a_link_in_the_place_of_the_archive_is_not_followed(archive: ClassArchive, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_bytes(b"classes")
    archive.path.symlink_to(tmp_path / "elsewhere")
    assert written_to(archive.options({}, write=True)) != archive.path


def test_there_is_none_in_a_folder_that_others_may_write_to_or_that_cannot_be_made(java: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    assert ClassArchive.of(java, lambda: shared) is None
    (tmp_path / "file").touch()
    assert ClassArchive.of(java, lambda: tmp_path / "file" / "cache") is None
    assert ClassArchive.of(tmp_path / "no java", lambda: tmp_path / "cache") is None


def test_a_user_without_a_home_has_none(java: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_home() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", no_home)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert ClassArchive.of(java, cache_folder) is None


@pytest.mark.parametrize("variable", ["SPARK_SUBMIT_OPTS", "JDK_JAVA_OPTIONS", "JAVA_TOOL_OPTIONS"])
@pytest.mark.parametrize("option", ["-Xshare:off", "-XX:SharedArchiveFile=/a.jsa", "-XX:ArchiveClassesAtExit=/a.jsa"])
def test_a_user_s_own_options_of_archives_stand_alone(archive: ClassArchive, variable: str, option: str) -> None:
    assert archive.options({variable: f"-Dmine=1 {option}"}, write=True) == ()
    assert archive.options({variable: "-Dmine=1"}, write=True) != ()


def test_another_java_at_the_same_path_has_another_archive(java: Path, archive: ClassArchive) -> None:
    java.write_bytes(b"21")
    os.utime(java, ns=(1, 1))
    other = ClassArchive.of(java, lambda: archive.path.parent)
    assert other is not None
    assert other.path != archive.path


def test_the_newest_archives_are_kept(archive: ClassArchive) -> None:
    for number in range(5):
        old = archive.path.with_name(f"spark-{number}.jsa")
        old.touch()
        os.utime(old, (number, number))
    written_to(archive.options({}, write=True)).write_bytes(b"new")
    archive.keep(whole=True)
    assert archives(archive) == {"spark-4.jsa", archive.path.name}


def test_a_local_run_has_its_jvm_write_an_archive_and_a_stream_or_a_cluster_s_does_not(
    archive: ClassArchive, tmp_path: Path
) -> None:
    def options(master: str, grace_s: float | None = None) -> str:
        job = Submission(
            [], master, tmp_path, archive=archive, stream_grace_s=None if grace_s is None else lambda: grace_s
        )
        made = job.environment({}, {})
        assert (WRITES_ARCHIVE in made) == ("ArchiveClassesAtExit" in made["SPARK_SUBMIT_OPTS"])
        return made["SPARK_SUBMIT_OPTS"]

    assert f'"-XX:ArchiveClassesAtExit={archive.path.parent}' in options("local[2,4]")
    assert "Archive" not in options("local[2,4]", 20.0)
    assert "Archive" not in options("yarn")
    archive.path.write_bytes(b"classes")
    for each in (options("local[2,4]"), options("local[2,4]", 20.0), options("yarn")):
        assert f'"-XX:SharedArchiveFile={archive.path}"' in each


def test_spark_is_not_imported_to_find_its_jars() -> None:
    assert "import pyspark" not in Path(class_archive.__file__).read_text(encoding="utf-8")
