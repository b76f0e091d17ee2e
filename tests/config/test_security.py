"""TLS and SASL in a cluster's table, from the file, the environment and the secrets folder."""

from __future__ import annotations

from .conftest import CLUSTERS, FLOW, Load, Problems

SCRAM = '"security.protocol" = "SASL_SSL"\n"sasl.mechanism" = "SCRAM-SHA-512"\n"sasl.username" = "mirror"\n'


def test_a_secured_cluster(read: Load) -> None:
    secrets = {"clusters__berlin__sasl_password": "hunter2\n"}
    config = read(CLUSTERS + SCRAM + FLOW, {}, secrets)
    assert config.clusters["berlin"].client_options() == {
        "bootstrap.servers": "berlin-1:9092",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "mirror",
        "sasl.password": "hunter2",
    }
    assert "hunter2" not in repr(config) + str(config.described())


def test_a_missing_security_key_is_named_in_the_cluster_s_table(problems: Problems) -> None:
    (problem,) = problems(CLUSTERS + SCRAM + FLOW)
    assert problem.endswith('clusters.berlin."sasl.password" = (not set): required with SCRAM-SHA-512')


def test_security_belongs_to_the_cluster(problems: Problems) -> None:
    (problem,) = problems(CLUSTERS + FLOW + 'consumer."ssl.truststore.location" = "ca.pem"')
    assert problem.endswith('consumer."ssl.truststore.location" = "ca.pem": belongs to the cluster\'s table')


def test_a_file_cannot_name_a_function(problems: Problems) -> None:
    found = problems(CLUSTERS + SCRAM + '"sasl.oauthbearer.token.callback" = "f"\n' + FLOW)
    assert any('"sasl.oauthbearer.token.callback" = ***: unknown key' in problem for problem in found)
