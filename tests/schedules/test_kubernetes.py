"""The objects of config/kubernetes, compared with what they name. test_tools.py has Kubernetes' own checks."""

from __future__ import annotations

import functools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import typer
import yaml

from mirror.cli.app import app
from mirror.config.flow_settings import FlowSettings
from mirror.config.load import load
from mirror.exit_status import ATTENTION, FAILED, HELD
from mirror.spark.driver.job_options import CONFIG_VARIABLE, JobOptions
from mirror.spark.driver.launch.submission import GRACE_S
from tests.schedules import rules
from tests.schedules.tools import ROOT, SCHEDULES

KUBERNETES: Final = ROOT / "config" / "kubernetes"
AIRFLOW: Final = SCHEDULES / "airflow" / "mirror_pod.yaml"
OBJECTS: Final = [*sorted(one for one in KUBERNETES.rglob("*.yaml") if one.name != "kustomization.yaml"), AIRFLOW]
FOLDERS: Final = sorted(path.parent for path in KUBERNETES.rglob("kustomization.yaml"))
ENTRYPOINT: Final = KUBERNETES / "entrypoint.sh"
MOUNTS: Final = {"config": "/etc/mirror", "secrets": "/etc/mirror-secrets", "tmp": "/tmp"}  # noqa: S108
REPORTS: Final = {"reports": "/var/mirror"}
VARIABLES: Final = {CONFIG_VARIABLE: "/etc/mirror/mirror.toml", "MIRROR_SECRETS_DIR": "/etc/mirror-secrets"}


@functools.cache
def objects() -> list[dict[str, Any]]:
    return [one for path in OBJECTS for one in yaml.safe_load_all(path.read_text("utf-8"))]


def applications() -> dict[str, dict[str, Any]]:
    """The Spark operator's applications, by the script that they run."""
    found = [one for one in objects() if one["kind"].endswith("SparkApplication")]
    specs = [one["spec"].get("template", one["spec"]) for one in found]
    return {Path(spec["mainApplicationFile"]).name: spec for spec in specs}


def pods() -> dict[str, dict[str, Any]]:
    """Each pod's specification, by what it is."""
    found: dict[str, dict[str, Any]] = {}
    for one in objects():
        kind, spec, name = one["kind"], one.get("spec", {}), one["metadata"].get("name", "")
        if kind == "Deployment":
            found[name] = spec["template"]["spec"]
        elif kind == "CronJob":
            found[name] = spec["jobTemplate"]["spec"]["template"]["spec"]
        elif kind == "Pod":
            found[spec["containers"][0]["name"]] = spec
    for script, spec in applications().items():
        found |= {f"{role} of {script}": spec[role]["template"]["spec"] for role in ("driver", "executor")}
    return found


PODS: Final = pods()
OWN: Final = [name for name in PODS if name.startswith("mirror-")]
"""Those in which `mirror` runs, with Spark in it or without."""


def container(name: str) -> dict[str, Any]:
    (only,) = PODS[name]["containers"]
    return dict(only)


def values(name: str) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in container(name).get("env", [])}


def test_there_are_the_pods_that_the_other_tests_are_about() -> None:
    assert OWN == ["mirror-rehearse", "mirror-verify", "mirror-exporter", "mirror-run", "mirror-stream"]
    assert len(PODS) == len(OWN) + 7, "Airflow's; a driver and an executor without an operator, of a stream, of runs"


@pytest.mark.parametrize("name", PODS)
def test_a_pod_may_do_nothing_that_restricted_forbids_and_runs_as_any_user(name: str) -> None:
    assert PODS[name]["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert container(name)["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    is_driver = "driver" in name
    assert PODS[name].get("automountServiceAccountToken", True) is is_driver, "only a driver asks Kubernetes for pods"
    assert PODS[name]["enableServiceLinks"] is False


@pytest.mark.parametrize("name", PODS)
def test_a_pod_mounts_what_it_reads_and_may_write(name: str) -> None:
    mounts = {one["name"]: one["mountPath"] for one in container(name)["volumeMounts"]}
    is_executor = "executor" in name
    assert mounts == (MOUNTS if is_executor or name == "mirror-exporter" else MOUNTS | REPORTS)
    assert {one["name"] for one in PODS[name]["volumes"]} == mounts.keys()
    volumes = {one["name"]: one for one in PODS[name]["volumes"]}
    assert volumes["config"]["configMap"] == {"name": "mirror"}
    assert volumes["secrets"]["secret"] == {"secretName": "mirror", "defaultMode": 0o440}
    wanted = {"MIRROR_SECRETS_DIR": MOUNTS["secrets"]} if is_executor else VARIABLES
    assert wanted.items() <= values(name).items()


@pytest.mark.parametrize("name", OWN)
def test_the_arguments_are_those_of_a_command_which_has_a_slot_for_each_core(name: str) -> None:
    command, *arguments = container(name)["args"]
    group: Any = typer.main.get_command(app)
    _, found, _ = group.resolve_command(group.make_context("mirror", [command]), [command])
    cores = container(name)["resources"]["limits"]["cpu"]
    given = [argument.replace("$(CORES)", cores) for argument in arguments]
    options = found.make_context(command, [*given, "--config", VARIABLES[CONFIG_VARIABLE]]).params
    if "master" in options:
        assert options["master"] == f"local[{cores},4]"
        assert str(options["report_dir"]) == REPORTS["reports"]
        (variable,) = (one for one in container(name)["env"] if one["name"] == "CORES")
        assert variable["valueFrom"] == {"resourceFieldRef": {"containerName": "mirror", "resource": "limits.cpu"}}


@pytest.mark.parametrize("name", OWN)
def test_the_limits_are_what_the_pod_is_sure_of(name: str) -> None:
    limits, requests = (container(name)["resources"][kind] for kind in ("limits", "requests"))
    assert [limits[one] for one in ("cpu", "memory")] == [requests[one] for one in ("cpu", "memory")]
    assert limits["cpu"].isdigit(), "a part of a core would be a slot of Spark's"
    sizes = [one["emptyDir"]["sizeLimit"] for one in PODS[name]["volumes"] if "emptyDir" in one]
    bound = int(limits["ephemeral-storage"].removesuffix("Gi"))
    assert 0 < sum(int(size.removesuffix("Gi")) for size in sizes) <= bound


@pytest.mark.parametrize("name", [name for name in PODS if "executor" not in name and name != "mirror-exporter"])
def test_a_pod_has_the_time_to_end_in_order(name: str) -> None:
    timeout_s = FlowSettings.model_fields["shutdown_timeout_ms"].default / 1000
    assert PODS[name]["terminationGracePeriodSeconds"] > timeout_s + GRACE_S
    assert "lifecycle" not in container(name), "SIGTERM suffices; mirror stop would end what another pod has taken over"


@pytest.mark.parametrize("name", ["mirror-exporter", "mirror-stream", "spark-kubernetes-driver", "driver of stream.py"])
def test_probes_and_prometheus_ask_the_port_that_the_process_opens(name: str) -> None:
    (port,) = container(name)["ports"]
    if name == "mirror-exporter":
        assert container(name)["args"][-1].endswith(f":{port['containerPort']}")
    else:
        assert values(name)["OTEL_METRICS_EXPORTER"] == "prometheus"
        assert values(name)["OTEL_EXPORTER_PROMETHEUS_PORT"] == str(port["containerPort"])
    probes = {key: value["httpGet"] for key, value in container(name).items() if key.endswith("Probe")}
    assert {"startupProbe", "livenessProbe"} <= probes.keys()
    for kind, asked in probes.items():
        is_ready = name == "mirror-exporter" and kind == "readinessProbe"
        assert asked == {"path": "/readyz" if is_ready else "/healthz", "port": port["name"]}
    (monitor,) = (one for one in objects() if one["kind"] == "PodMonitor")
    assert monitor["spec"]["podMetricsEndpoints"][0]["port"] == port["name"]
    policy = yaml.safe_load((KUBERNETES / "base" / "networkpolicy.yaml").read_text("utf-8"))
    assert policy["spec"]["ingress"][0]["ports"] == [{"protocol": "TCP", "port": port["name"]}]


def test_what_selects_pods_selects_them_by_their_labels() -> None:
    streams = {"app.kubernetes.io/name": "mirror", "app.kubernetes.io/component": "stream"}
    deployments = {one["metadata"]["name"]: one["spec"] for one in objects() if one["kind"] == "Deployment"}
    assert deployments.keys() == {"mirror-stream", "mirror-exporter"}
    for spec in deployments.values():
        assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"]
    assert deployments["mirror-stream"]["template"]["metadata"]["labels"] == streams
    selectors = {one["kind"]: one["spec"]["selector"] for one in objects() if "selector" in one.get("spec", {})}
    assert selectors["PodDisruptionBudget"]["matchLabels"] == streams
    (expression,) = selectors["PodMonitor"]["matchExpressions"]
    assert selectors["PodMonitor"]["matchLabels"].items() <= streams.items()
    labels = [spec["template"]["metadata"]["labels"] for spec in deployments.values()]
    assert sorted(expression["values"]) == sorted(one[expression["key"]] for one in labels)
    for script, component in (("stream.py", "stream"), ("replicate.py", "run")):
        found = applications()[script]["driver"]["template"]["metadata"]["labels"]
        assert found == streams | {"app.kubernetes.io/component": component}


def test_one_pod_of_a_flow_runs_at_a_time() -> None:
    for one in objects():
        if one["metadata"].get("name") == "mirror-stream" and one["kind"] == "Deployment":
            assert (one["spec"]["replicas"], one["spec"]["strategy"]) == (1, {"type": "Recreate"})
        if one["kind"] in {"CronJob", "ScheduledSparkApplication"}:
            assert one["spec"]["concurrencyPolicy"] == "Forbid"


@pytest.mark.parametrize(
    ("name", "final"),
    [
        ("mirror-run", [FAILED, 2, HELD]),
        ("mirror-verify", [2, ATTENTION]),
        ("mirror-rehearse", [2, ATTENTION]),
    ],
)
def test_statuses_that_no_repetition_changes_fail_at_once(name: str, final: list[int]) -> None:
    jobs = (one for one in objects() if one["kind"] == "CronJob")
    (job,) = (one["spec"]["jobTemplate"]["spec"] for one in jobs if one["metadata"]["name"] == name)
    first, evicted, *_ = job["podFailurePolicy"]["rules"]
    assert (first["action"], first["onExitCodes"]["values"]) == ("FailJob", final)
    assert first["onExitCodes"]["containerName"] == job["template"]["spec"]["containers"][0]["name"]
    assert evicted["action"] == "Ignore"


def test_the_alerts_are_those_of_prometheus() -> None:
    text = rules.RULES.read_text("utf-8")
    written = rules.OBJECT.read_text("utf-8")
    assert written == rules.as_object(text), "run python -m tests.schedules.rules"
    (found,) = (one["spec"] for one in objects() if one["kind"] == "PrometheusRule")
    assert found.keys() == {"groups"}


def _without_metrics(pod: dict[str, Any]) -> dict[str, Any]:
    """The pod of a run, which ends before Prometheus asks it."""
    (only,) = pod["containers"]
    kept = {key: value for key, value in only.items() if key != "ports" and not key.endswith("Probe")}
    kept["env"] = [one for one in only["env"] if not one["name"].startswith("OTEL_")]
    return {**pod, "containers": [kept]}


def test_the_operator_has_the_pods_and_the_settings_of_spark_without_it() -> None:
    lines = (KUBERNETES / "spark" / "spark-defaults.conf").read_text("utf-8").splitlines()
    ours = dict(line.split(None, 1) for line in lines if line.startswith("spark."))
    limits = {role: ours[f"spark.kubernetes.{role}.limit.cores"] for role in ("driver", "executor")}
    template = {role: yaml.safe_load((KUBERNETES / "spark" / f"{role}.yaml").read_text("utf-8")) for role in limits}
    drivers = {script: spec["driver"]["template"]["spec"] for script, spec in applications().items()}
    assert drivers["stream.py"] == template["driver"]["spec"]
    assert drivers["replicate.py"] == _without_metrics(template["driver"]["spec"])
    for script, spec in applications().items():
        given = spec["sparkConf"]
        assert given == {name: value for name, value in ours.items() if name in given}
        elsewhere = ("spark.submit.", "spark.app.", "spark.kubernetes.", "spark.executor.", "spark.driver.")
        fails = "spark.executor.failuresValidityInterval"
        assert {name for name in ours if not name.startswith(elsewhere)} | {fails} == set(given)
        assert spec["executor"]["template"]["spec"] == template["executor"]["spec"]
        for role, cores in limits.items():
            assert (str(spec[role]["cores"]), spec[role]["coreLimit"]) == (cores, cores)
            assert spec[role]["memory"] == ours[f"spark.{role}.memory"]
            assert ours[f"spark.{role}.cores"] == cores
        executor = spec["executor"]
        assert int(given["spark.default.parallelism"]) == executor["instances"] * executor["cores"]
        is_stream = script == "stream.py"
        JobOptions.parse([*spec["arguments"], "--config", "f"], script=script, description="", stream=is_stream)
        assert spec["driver"]["serviceAccount"] == ours["spark.kubernetes.authenticate.driver.serviceAccountName"]


def test_the_image_has_what_the_objects_name() -> None:
    dockerfile = (KUBERNETES / "Dockerfile").read_text("utf-8")
    text = "".join(path.read_text("utf-8") for path in OBJECTS)
    for name in set(re.findall(r"/opt/mirror/((?:jobs|config)/[\w./-]+)", text)):
        assert (ROOT / name).is_file()
        folder = name.split("/", 1)[0]
        assert f"COPY {name} /opt/mirror/{name}" in dockerfile or f"COPY {folder} /opt/mirror/{folder}" in dockerfile


def test_the_example_is_a_valid_configuration() -> None:
    assert load(KUBERNETES / "base" / "mirror.toml").flows.keys() == {"paris-berlin"}


def test_each_file_is_a_resource_of_its_folder_and_the_document_names_each_folder() -> None:
    document = (KUBERNETES / "README.md").read_text("utf-8")
    for folder in FOLDERS:
        kustomization = yaml.safe_load((folder / "kustomization.yaml").read_text("utf-8"))
        named = {name for name in kustomization["resources"] if name.endswith(".yaml")}
        assert named <= {path.name for path in OBJECTS if path.parent == folder}
        assert f"`{folder.name}`" in document
        templates = {"driver.yaml", "executor.yaml"} if folder.name == "spark" else set[str]()
        assert {path.name for path in OBJECTS if path.parent == folder} - named == templates


def test_no_object_has_a_secret() -> None:
    for path in OBJECTS:
        assert not re.search(r"(?i)\b(password|jaas|sasl|token)[\w.]*\s*[:=]\s*\S", without_comments(path)), path


def without_comments(path: Path) -> str:
    lines = (line for line in path.read_text("utf-8").splitlines() if "automountServiceAccountToken" not in line)
    return "\n".join(line.split("#")[0] for line in lines if path != rules.OBJECT)


def test_a_driver_of_spark_on_kubernetes_starts_the_script_with_the_options_for_its_jvm(tmp_path: Path) -> None:
    """The arguments are those that Spark's submission gives its driver's pod."""
    script = tmp_path / "stream.py"
    script.write_text("import os, sys; print(sys.argv[1:], os.environ['PYSPARK_SUBMIT_ARGS'])")
    (tmp_path / "python").symlink_to(sys.executable)
    options = ["--properties-file", "/opt/spark/conf/spark.properties"]
    given = [*options, "--class", "org.apache.spark.deploy.PythonRunner", f"local://{script}", "--report-dir", "a b"]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SPARK_DRIVER_BIND_ADDRESS": "10.0.0.7", "HOME": str(tmp_path)}
    ran = subprocess.run(
        ["sh", ENTRYPOINT, "driver", *given], env=environment, capture_output=True, text=True, check=True
    )
    bind = "--conf spark.driver.bindAddress=10.0.0.7 --conf spark.executorEnv.SPARK_DRIVER_POD_IP=10.0.0.7"
    assert ran.stdout == f"['--report-dir', 'a b'] --deploy-mode client {bind} {' '.join(options)} pyspark-shell\n"
