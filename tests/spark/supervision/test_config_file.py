"""The configuration file of a running stream: which edits are noticed, and when."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirror.config.load import load
from mirror.spark.supervision.config_file import ConfigFile, Edit, LoadedFlow, merged
from tests.spark.supervision.stand_in import CLUSTERS, flow


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "mirror.toml"
    path.write_text(CLUSTERS + flow("f"))
    return path


def polled(file: ConfigFile) -> Edit | None:
    """What the file says after it has been left alone."""
    assert file.poll() is None
    return file.poll()


def test_a_file_that_is_being_written_is_not_read(path: Path) -> None:
    file = ConfigFile(path, None)
    assert polled(file) is None
    text = path.read_text() + flow("g")
    for size in range(len(text) - 10, len(text) + 1):
        path.write_text(text[:size])
        assert file.poll() is None
    edit = file.poll()
    assert edit is not None
    assert edit.config is not None
    assert (set(edit.config.flows), edit.wrong) == ({"f", "g"}, {})
    assert polled(file) is None


def test_an_edit_between_the_first_loading_and_the_watch_is_noticed(path: Path) -> None:
    file = ConfigFile(path, None)
    secret_files = load(path).secret_files
    path.write_text(path.read_text() + flow("g"))
    file.watch(secret_files)
    assert file.poll() is not None


def test_a_secret_that_is_replaced_is_an_edit(path: Path, tmp_path: Path) -> None:
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    password = secrets / "clusters__a__sasl_password"
    password.write_text("first")
    sasl = '"sasl.mechanism" = "PLAIN"\n"security.protocol" = "SASL_PLAINTEXT"\n"sasl.username" = "u"\n'
    path.write_text(path.read_text().replace('"a:1"\n', f'"a:1"\n{sasl}'))
    file = ConfigFile(path, secrets)
    before = load(path, secrets_dir=secrets)
    file.watch(before.secret_files)
    assert polled(file) is None
    password.write_text("second, and longer")
    edit = polled(file)
    assert edit is not None
    assert edit.config is not None
    settings = [LoadedFlow(config, config.flows["f"]) for config in (before, edit.config)]
    assert settings[0].changed_keys(settings[1]) == ['clusters.a."sasl.password"']


def test_a_flow_is_the_same_although_another_one_now_leads_back_to_its_source(path: Path) -> None:
    before = load(path)
    path.write_text(path.read_text() + flow("g").replace('source = "a"\ntarget = "b"', 'source = "b"\ntarget = "a"'))
    after = load(path)
    assert after.flows["f"].may_wait_for_topics
    assert LoadedFlow(before, before.flows["f"]).changed_keys(LoadedFlow(after, after.flows["f"])) == []


def test_a_flow_whose_clusters_are_gone_is_not_merged(path: Path) -> None:
    before = load(path)
    path.write_text((CLUSTERS + flow("g")).replace("clusters.b", "clusters.c").replace('target = "b"', 'target = "c"'))
    after = load(path)
    assert set(merged(after, [LoadedFlow(before, before.flows["f"])]).flows) == {"g"}
    assert set(merged(before, [LoadedFlow(before, before.flows["f"])]).flows) == {"f"}
