"""The environment overrides the secrets folder, which overrides the file; variables are matched back to keys."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirror.config import schema
from mirror.config.key_names import Variables, is_own, variable
from mirror.config.layers import EnvironmentSource, FileSource, Layers, SecretsSource
from mirror.config.load import load
from mirror.config.models import ClusterConfig
from mirror.errors import ConfigError

from .conftest import CLUSTERS, FLOW, Load, Problems

FLOW_VARIABLE = "MIRROR_FLOWS__PARIS_BERLIN__"


def test_variables_are_read_by_the_key_s_type(read: Load) -> None:
    config = read(
        environ={
            "MIRROR_CLUSTERS__PARIS__BOOTSTRAP_SERVERS": "a:1,b:2",
            FLOW_VARIABLE + "COMMIT_INTERVAL_MS": "50",
            FLOW_VARIABLE + "REPLICATION_FACTOR": "+3",
            FLOW_VARIABLE + "START": "2026-01-31T00:00:00Z",
            FLOW_VARIABLE + "TOPICS": '["a{1,3}", "b"]',
            FLOW_VARIABLE + "PRODUCER__DELIVERY_TIMEOUT_MS": "60000",
            FLOW_VARIABLE + "PRODUCER__ENABLE_IDEMPOTENCE": "True",
            FLOW_VARIABLE + "CONSUMER__CLIENT_RACK": "7",
            FLOW_VARIABLE + "MIRRORMAKER__HEARTBEATS": "TRUE",
            FLOW_VARIABLE + "GROUPS__INCLUDE": '["a", "b"]',
            FLOW_VARIABLE + "GROUPS__INTERVAL_MS": "2000",
        }
    )
    flow = config.flows["paris-berlin"]
    assert config.clusters["paris"].options == {"bootstrap.servers": "a:1,b:2"}
    assert (flow.commit_interval_ms, flow.replication_factor, flow.topics) == (50, 3, ("a{1,3}", "b"))
    assert flow.start_timestamp_ms == 1_769_817_600_000
    assert flow.producer == {"delivery.timeout.ms": 60_000, "enable.idempotence": True}
    assert flow.consumer == {"client.rack": "7"}
    assert flow.mirrormaker.heartbeats
    assert (flow.groups.include, flow.groups.interval_ms, flow.groups.sync) == (("a", "b"), 2_000, True)


def test_precedence(read: Load) -> None:
    key, other = FLOW_VARIABLE + "COMMIT_INTERVAL_MS", FLOW_VARIABLE + "NAMING"
    toml = CLUSTERS + FLOW + 'commit-interval-ms = 100\nnaming = "prefix"\nreplication-factor = 1'
    secrets = {name.removeprefix("MIRROR_").lower(): text for name, text in ((key, "200"), (other, "identity\n"))}
    flow = read(toml, {key: "300"}, secrets).flows["paris-berlin"]
    assert (flow.commit_interval_ms, flow.naming, flow.replication_factor) == (300, "identity", 1)


def test_the_secrets_directory_may_be_named_by_the_environment(tmp_path: Path) -> None:
    (tmp_path / "mirror.toml").write_text(CLUSTERS + FLOW)
    secrets = tmp_path / "secrets"
    secrets.mkdir()
    (secrets / "flows__paris_berlin__naming").write_text("identity")
    (secrets / "..data").write_text("x")
    (secrets / "folder").mkdir()
    environ = {"MIRROR_SECRETS_DIR": str(secrets), "MIRROR_DEBUG": "1", "PATH": "/bin"}
    assert load(tmp_path / "mirror.toml", environ=environ).flows["paris-berlin"].naming == "identity"


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("COMMIT_INTERVAL_MS", "abc", 'flows.paris-berlin.commit-interval-ms = "abc": must be whole milliseconds'),
        ("COMMIT_INTERVAL_MS", "+-5", 'flows.paris-berlin.commit-interval-ms = "+-5": must be whole milliseconds'),
        ("COMMIT_INTERVAL_MS", "9" * 5000, "must be whole milliseconds"),
        ("COMMIT_INTERVAL_MS", "5", "flows.paris-berlin.commit-interval-ms = 5: must be whole milliseconds"),
        ("TOPICS", "orders", 'flows.paris-berlin.topics = "orders": must be a list'),
        ("TOPICS", "[orders", 'flows.paris-berlin.topics = "[orders": must be a list'),
        ("PRODUCER__RETRIES", "x", 'flows.paris-berlin.producer.retries = "x": must be a whole number'),
        ("TOPIC", "x", 'no such key in flows.paris-berlin; did you mean "MIRROR_FLOWS__PARIS_BERLIN__TOPICS"?'),
        ("PRODUCER__LINGER", "x", "no such key in flows.paris-berlin"),
    ],
)
def test_a_wrong_variable_is_named(problems: Problems, name: str, text: str, expected: str) -> None:
    (problem,) = problems(CLUSTERS + FLOW, {FLOW_VARIABLE + name: text})
    assert problem.startswith(f"environment variable {FLOW_VARIABLE}{name}: ")
    assert expected in problem


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("MIRROR_CLUSTERS__ROME__X", "matches none of the file's clusters; there are: paris, berlin"),
        ("MIRROR_FLOWS__ROME__X", "matches none of the file's flows; there are: paris-berlin"),
        ("MIRROR_FLOW__ROME__X", "unknown; an override begins with MIRROR_CLUSTERS__ or MIRROR_FLOWS__"),
        ("MIRROR_FLOWS_PARIS_BERLIN_TOPICS", "unknown; an override begins with MIRROR_CLUSTERS__ or MIRROR_FLOWS__"),
        ("MIRROR_CLUSTERS__PARIS__NAME", "no such key in clusters.paris"),
        ("mirror_clusters__paris__name", "no such key in clusters.paris"),
    ],
)
def test_a_variable_that_matches_no_key_is_a_problem(problems: Problems, name: str, expected: str) -> None:
    (problem,) = problems(CLUSTERS + FLOW, {name: "hunter2"})
    assert problem.startswith(f"environment variable {name}: {expected}")
    assert "hunter2" not in problem


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("MIRROR_SECRET_DIR", '; did you mean "MIRROR_SECRETS_DIR"?'),
        ("MIRROR_DEBUGG", '; did you mean "MIRROR_DEBUG"?'),
        ("MIRROR_PARIS_SASL_PASSWORD", '; did you mean "MIRROR_CLUSTERS__PARIS__SASL_PASSWORD"?'),
        ("MIRROR_XYZ", ""),
    ],
)
def test_a_variable_outside_all_sections_is_a_problem(problems: Problems, name: str, hint: str) -> None:
    (problem,) = problems(CLUSTERS + FLOW, {name: "hunter2"})
    assert problem == (
        f"environment variable {name}: unknown; an override begins with MIRROR_CLUSTERS__ or MIRROR_FLOWS__{hint}"
    )


KUBERNETES = """
MIRROR_SERVICE_HOST MIRROR_SERVICE_PORT MIRROR_SERVICE_PORT_HTTP MIRROR_PORT MIRROR_PORT_9464_TCP
MIRROR_PORT_9464_TCP_PROTO MIRROR_PORT_9464_TCP_PORT MIRROR_PORT_9464_TCP_ADDR
MIRROR_17A2B3_DRIVER_SVC_SERVICE_HOST MIRROR_17A2B3_DRIVER_SVC_SERVICE_PORT_DRIVER_RPC_PORT
MIRROR_17A2B3_DRIVER_SVC_PORT_7078_TCP_ADDR
"""


def test_service_variables_of_kubernetes_are_no_overrides(read: Load) -> None:
    assert read(environ=dict.fromkeys(KUBERNETES.split(), "x")).flows


def test_every_variable_that_this_project_reads_is_known() -> None:
    """A new one has to be added to key_names.OWN, or who sets it could copy nothing."""
    root = Path(__file__).parents[2]
    sources = [*root.glob("mirror/**/*.py"), *root.glob("tests/**/*.py"), *root.glob("jobs/*.py"), root / "Makefile"]
    read = re.compile(r"(?:environ(?:\.get\(|\[)|getenv\(|envvar=|Final = )\"(MIRROR_[A-Z0-9_]*[A-Z0-9])\"")
    found = {name for file in sources for name in read.findall(file.read_text(encoding="utf-8"))}
    assert {"MIRROR_DEBUG", "MIRROR_SECRETS_DIR", "MIRROR_JOB_STDOUT", "MIRROR_FAULTS_SECONDS"} <= found
    assert {name for name in found if not is_own(name)} == set()


def test_an_ambiguous_variable_is_a_problem(problems: Problems) -> None:
    toml = (
        CLUSTERS + FLOW + '[clusters.a-b]\n"bootstrap.servers" = "a:1"\n[clusters."a.b"]\n"bootstrap.servers" = "b:1"'
    )
    (problem,) = problems(toml, {"MIRROR_CLUSTERS__A_B__CLIENT_ID": "x"})
    assert 'ambiguous: it may mean clusters.a-b."client.id" and clusters."a.b"."client.id"' in problem


def test_a_key_that_is_overridden_twice_is_a_problem(problems: Problems) -> None:
    (problem,) = problems(CLUSTERS + FLOW, {FLOW_VARIABLE + "NAMING": "prefix", FLOW_VARIABLE.lower() + "naming": "x"})
    assert "the same key as environment variable MIRROR_FLOWS__PARIS_BERLIN__NAMING; give it once" in problem


def test_a_wrong_secret_file_is_named(problems: Problems) -> None:
    found = problems(CLUSTERS + FLOW, {}, {"clusters__rome__x": "hunter2", "flows__paris_berlin__naming": "hunter3"})
    assert found == [
        "secrets file secrets/clusters__rome__x: matches none of the file's clusters; there are: paris, berlin",
        (
            'secrets file secrets/flows__paris_berlin__naming: flows.paris-berlin.naming = "hunter3": '
            'must be "prefix" or "identity"'
        ),
    ]


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("paris_sasl_password", '; did you mean "clusters__paris__sasl_password"?'),
        ("clusters_paris_sasl_password", '; did you mean "clusters__paris__sasl_password"?'),
        ("mirror_clusters__paris__sasl_password", '; did you mean "clusters__paris__sasl_password"?'),
        ("x", ""),
    ],
)
def test_a_secrets_file_without_a_key_is_not_ignored(problems: Problems, name: str, hint: str) -> None:
    (problem,) = problems(CLUSTERS + FLOW, {}, {name: "hunter2"})
    assert problem == (
        f"secrets file secrets/{name}: does not hold a key's value: such a file is named clusters__NAME__KEY or"
        f" flows__NAME__KEY{hint}"
    )


def test_a_misspelt_secrets_file_gets_a_suggestion(problems: Problems) -> None:
    (problem,) = problems(CLUSTERS + FLOW, {}, {"clusters__paris__sasl_pasword": "hunter2"})
    assert problem.endswith('no such key in clusters.paris; did you mean "clusters__paris__sasl_password"?')


def test_certificates_and_the_configuration_may_be_among_the_secrets(tmp_path: Path) -> None:
    certificate, file = tmp_path / "ca.pem", tmp_path / "mirror.toml"
    certificate.write_text("x")
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "key.pem").write_text("x")
    (tmp_path / "key.pem").symlink_to("real/key.pem")  # as Kubernetes mounts them
    tls = f'"security.protocol" = "SSL"\n"ssl.truststore.location" = "{certificate}"\n'
    file.write_text(CLUSTERS + tls + f'"ssl.keystore.location" = "{tmp_path}/key.pem"\n' + FLOW)
    assert load(file, environ={}, secrets_dir=tmp_path).flows
    (tmp_path / "other.pem").write_text("x")
    with pytest.raises(ConfigError, match=r"^secrets file .*/other.pem: does not hold a key's value[^\n]*$"):
        load(file, environ={}, secrets_dir=tmp_path)


def test_secrets_that_cannot_be_read(tmp_path: Path) -> None:
    file = tmp_path / "mirror.toml"
    file.write_text(CLUSTERS + FLOW)
    with pytest.raises(ConfigError, match=r"secrets directory .*nothing: cannot be read: No such file or directory"):
        load(file, environ={}, secrets_dir=tmp_path / "nothing")
    secret = tmp_path / "clusters__paris__client_id"
    secret.write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="clusters__paris__client_id: not UTF-8 text"):
        load(file, environ={}, secrets_dir=tmp_path)
    secret.write_bytes(b"x" * (1024 * 1024 + 1))
    with pytest.raises(ConfigError, match="clusters__paris__client_id: larger than 1 MiB"):
        load(file, environ={}, secrets_dir=tmp_path)


def test_passwords_are_sealed_by_their_layer_and_revealed_by_the_cluster_alone(tmp_path: Path) -> None:
    (tmp_path / "mirror.toml").write_text(CLUSTERS + '"sasl.password" = "berlin-file"\n' + FLOW)
    (tmp_path / "clusters__paris__sasl_password").write_text("paris-secret\n")
    (tmp_path / "clusters__berlin__sasl_password").write_text("berlin-secret\n")
    file = FileSource(tmp_path / "mirror.toml")
    environment = EnvironmentSource({"MIRROR_CLUSTERS__BERLIN__SASL_PASSWORD": "berlin-env"}, file.toml_data)
    secrets = SecretsSource(tmp_path, file.toml_data)
    layers = Layers(sources=(environment, secrets, file))
    clusters = [ClusterConfig(name=name, options=dict(t)) for name, t in schema.tables(layers.tables(), "clusters")]
    assert [c.client_options()["sasl.password"] for c in clusters] == ["paris-secret", "berlin-env"]
    shown = repr((layers, environment, secrets, file, clusters)) + str(layers) + "".join(map(str, clusters))
    assert not [word for word in ("berlin-file", "paris-secret", "berlin-secret", "berlin-env") if word in shown]


def test_every_key_has_a_variable_of_its_own() -> None:
    data: dict[str, object] = {"clusters": {"paris": {}}, "flows": {"paris-berlin": {}}}
    paths = list(schema.overridable(data))
    variables = Variables(paths)
    assert len(paths) > 50
    assert [variables.paths(variable(path)) for path in paths] == [(path,) for path in paths]


NAMES = st.text("abAB01._-", min_size=1, max_size=5)


@given(st.lists(NAMES, min_size=1, max_size=4, unique=True), NAMES, NAMES)
def test_a_variable_is_matched_back_or_ambiguous(names: list[str], name: str, key: str) -> None:
    """Whatever the names: the path that a variable was made from is always found, never another one alone."""
    variables = Variables(("clusters", cluster, key) for cluster in names)
    for cluster in names:
        path = ("clusters", cluster, key)
        found = variables.paths(variable(path))
        assert path in found
        assert {variable(other) for other in found} == {variable(path)}
    if all(variable(("clusters", cluster, key)) != variable(("clusters", name, key)) for cluster in names):
        assert variables.paths(variable(("clusters", name, key))) == ()


def test_a_wrong_value_is_blamed_on_the_layer_that_won(problems: Problems) -> None:
    (problem,) = problems(CLUSTERS + FLOW, {FLOW_VARIABLE + "NAMING": "x"}, {"flows__paris_berlin__naming": "y"})
    assert problem.startswith(f'environment variable {FLOW_VARIABLE}NAMING: flows.paris-berlin.naming = "x"')
