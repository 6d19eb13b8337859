"""The Helm chart in `deploy/helm`, rendered by a real Helm.

`accepted/` contains sets of values that must work, and `refused/` contains values that contradict each other or
`accepted/least.yaml`. The first line of a refused file is a part of the message.
"""

import json
import os
import subprocess
import tarfile
import tomllib
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
CHART = ROOT / "deploy/helm"
MONITORING = ROOT / "deploy/monitoring"
ACCEPTED = sorted((HERE / "accepted").glob("*.yaml"))
REFUSED = sorted((HERE / "refused").glob("*.yaml"))
LEAST = HERE / "accepted/least.yaml"
# The oldest version in Chart.yaml, and the newest that the validator knows.
KUBERNETES = ["1.25", kubernetes_validate.latest_version()]
# Kinds that operators define, so the validator doesn't know them.
FOREIGN_KINDS = {"PodMonitor", "PrometheusRule"}
# The second ConfigMap of a release.
DASHBOARD = "ConfigMap of the dashboard"

Document = dict[str, Any]


def helm(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([os.environ["HELM"], *arguments], capture_output=True, text=True, check=False)


def render(*files: Path, values: tuple[str, ...] = ()) -> dict[str, Document]:
    """The rendered documents, by their kinds; the dashboard's ConfigMap is under `DASHBOARD`."""
    options = [option for file in files for option in ("--values", file)]
    options += [option for value in values for option in ("--set", value)]
    rendered = helm("template", "here", CHART, *options)
    assert rendered.returncode == 0, rendered.stderr
    documents = [document for document in yaml.safe_load_all(rendered.stdout) if document]
    is_dashboard = [document["metadata"]["name"].endswith("-dashboard") for document in documents]
    by_kind = {
        DASHBOARD if own else document["kind"]: document for own, document in zip(is_dashboard, documents, strict=True)
    }
    assert len(by_kind) == len(documents)
    return by_kind


def pod(documents: dict[str, Document]) -> Document:
    return documents["Deployment"]["spec"]["template"]


def test_there_are_six_sets_of_values() -> None:
    assert len(ACCEPTED) >= 6
    assert len(REFUSED) >= 20


@pytest.mark.parametrize("file", ACCEPTED, ids=lambda file: file.stem)
def test_helm_finds_no_fault(file: Path) -> None:
    linted = helm("lint", "--strict", CHART, "--values", file)
    assert linted.returncode == 0, linted.stdout + linted.stderr


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("file", ACCEPTED, ids=lambda file: file.stem)
def test_kubernetes_knows_every_field(file: Path, version: str) -> None:
    documents = render(file)
    assert {"Deployment", "Service"} <= documents.keys()
    for kind, document in documents.items():
        if kind not in FOREIGN_KINDS:
            kubernetes_validate.validate(document, version, strict=True)


@pytest.mark.parametrize("file", REFUSED, ids=lambda file: file.stem)
def test_a_contradiction_is_refused_with_its_reason(file: Path) -> None:
    reason = file.read_text().splitlines()[0].removeprefix("# Refused: ")
    rendered = helm("template", "here", CHART, "--values", LEAST, "--values", file)
    assert rendered.returncode != 0
    assert reason in rendered.stderr


def test_all_problems_are_reported_together() -> None:
    rendered = helm("template", "here", CHART)
    problems = [line.partition(": ")[0] for line in rendered.stderr.splitlines() if line.startswith("  - ")]
    assert problems == ["  - image.repository", "  - servers", "  - keys"], rendered.stderr


@pytest.mark.parametrize("file", ACCEPTED, ids=lambda file: file.stem)
def test_the_pod_has_few_rights_and_all_that_it_needs(file: Path) -> None:
    documents = render(file)
    spec = pod(documents)["spec"]
    container = spec["containers"][0]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"]["readOnlyRootFilesystem"] is True
    assert container["securityContext"]["allowPrivilegeEscalation"] is False
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}
    assert spec["automountServiceAccountToken"] is False
    # Otherwise Kubernetes sets TOOLSIEVE_PORT=tcp://…, and the service doesn't start.
    assert spec["enableServiceLinks"] is False
    assert container["resources"]["limits"]["memory"]

    volumes = {volume["name"] for volume in spec["volumes"]}
    mounts = {mount["mountPath"]: mount["name"] for mount in container["volumeMounts"]}
    assert volumes == set(mounts.values())
    variables = {variable["name"]: variable.get("value") for variable in container["env"]}
    written = {variables["HOME"], variables["TOOLSIEVE_DATA_DIR"], "/tmp"}  # noqa: S108
    assert written <= mounts.keys(), "a folder is not writable"
    assert ("CREDENTIALS_DIRECTORY" in variables) != ("TOOLSIEVE_HTTP__INSECURE" in variables)

    labels = pod(documents)["metadata"]["labels"].items()
    for selector in (
        documents["Deployment"]["spec"]["selector"]["matchLabels"],
        documents["Service"]["spec"]["selector"],
    ):
        assert selector.items() <= labels
    assert documents["Service"]["spec"]["ports"][0]["targetPort"] == container["ports"][0]["name"]


@pytest.mark.parametrize("file", ACCEPTED, ids=lambda file: file.stem)
def test_the_service_accepts_what_the_pod_gets(file: Path, tmp_path: Path) -> None:
    """Runs `toolsieve check` with the pod's variables and files, at other paths."""
    documents = render(file)
    container = pod(documents)["spec"]["containers"][0]
    files = documents.get("ConfigMap", {}).get("data", {})
    (tmp_path / "mcp.json").write_text('{"mcpServers": {"time": {"command": "uvx"}}}')
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    key = tmp_path / "toolsieve.api_key"
    key.write_text("4f2a9c1be07d5836b1d0a7c45e98f263")
    key.chmod(0o600)

    environment = {variable["name"]: variable.get("value", "a-text") for variable in container["env"]}
    if "DATABASE_URL" in environment:
        environment["DATABASE_URL"] = "postgres://toolsieve:password@db:5432/toolsieve"
    environment |= {"TOOLSIEVE_DATA_DIR": str(tmp_path / "data"), "CREDENTIALS_DIRECTORY": str(tmp_path)}
    command, *arguments = [argument.replace("/etc/toolsieve", str(tmp_path)) for argument in container["args"]]
    assert command == "serve"
    if "TOOLSIEVE_HTTP__INSECURE" in environment:
        del environment["CREDENTIALS_DIRECTORY"]
    checked = subprocess.run(
        [os.environ["TOOLSIEVE_BIN"], "check", *arguments], env=environment, capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr
    warnings = [line for line in checked.stderr.splitlines() if line.startswith("warning:")]
    expected = ["http.insecure"] if "TOOLSIEVE_HTTP__INSECURE" in environment else []
    assert [warning for warning in warnings if not any(part in warning for part in expected)] == []


def test_a_change_of_the_configuration_restarts_the_pod() -> None:
    def checksum(*values: str) -> str:
        return pod(render(LEAST, values=values))["metadata"]["annotations"]["checksum/configuration"]

    assert checksum() == checksum("podLabels.team=tools")
    assert checksum() != checksum("servers.inline.notes.timeout=20")


def test_the_configuration_is_what_was_written() -> None:
    files = render(HERE / "accepted/own_nodes.yaml")["ConfigMap"]["data"]
    servers = json.loads(files["mcp.json"])["mcpServers"]
    assert servers["issues"]["headers"] == {"Authorization": "Bearer ${ISSUES_TOKEN}"}
    assert tomllib.loads(files["toolsieve.toml"])["calls"] == {"timeout_seconds": 90}


def test_several_pods_share_a_database_and_are_replaced_one_after_the_other() -> None:
    least, several = render(LEAST), render(HERE / "accepted/three_replicas.yaml")
    assert least["Deployment"]["spec"]["strategy"] == {"type": "Recreate"}
    assert not {"PodDisruptionBudget", "HorizontalPodAutoscaler"} & least.keys()
    spec = several["Deployment"]["spec"]
    assert (spec["replicas"], spec["strategy"]["rollingUpdate"]["maxUnavailable"]) == (3, 0)
    assert "PersistentVolumeClaim" not in several
    labels = spec["selector"]["matchLabels"]
    assert several["PodDisruptionBudget"]["spec"] == {"maxUnavailable": 1, "selector": {"matchLabels": labels}}
    spread = spec["template"]["spec"]["topologySpreadConstraints"]
    assert [constraint["labelSelector"]["matchLabels"] for constraint in spread] == [labels]
    variables = {variable["name"]: variable for variable in spec["template"]["spec"]["containers"][0]["env"]}
    secret = {"secretKeyRef": {"name": "toolsieve-database", "key": "address"}}
    assert variables["DATABASE_URL"]["valueFrom"] == secret
    assert variables["TOOLSIEVE_HTTP__SHUTDOWN_DELAY_SECONDS"]["value"] == "5"

    scaled = render(HERE / "accepted/scaled_by_load.yaml")
    assert "replicas" not in scaled["Deployment"]["spec"], "a new release would undo what the autoscaler decided"
    autoscaler = scaled["HorizontalPodAutoscaler"]["spec"]
    assert (autoscaler["minReplicas"], autoscaler["maxReplicas"]) == (3, 12)
    assert autoscaler["scaleTargetRef"]["name"] == scaled["Deployment"]["metadata"]["name"]


def test_the_claim_stays_after_the_release() -> None:
    kept = render(LEAST)["PersistentVolumeClaim"]["metadata"]
    assert kept["annotations"] == {"helm.sh/resource-policy": "keep"}
    assert "PersistentVolumeClaim" not in render(HERE / "accepted/existing_objects.yaml")


def test_prometheus_gets_in_with_a_key() -> None:
    documents = render(HERE / "accepted/monitoring.yaml")
    endpoint = documents["PodMonitor"]["spec"]["podMetricsEndpoints"][0]
    assert endpoint["authorization"]["credentials"] == {"name": "toolsieve-metrics", "key": "key"}
    assert endpoint["port"] == pod(documents)["spec"]["containers"][0]["ports"][0]["name"]
    policy = documents["NetworkPolicy"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    assert len(policy["ingress"][0]["from"]) == 2
    assert [port["port"] for port in policy["egress"][0]["ports"]] == [53, 53]

    default = render(LEAST, values=("podMonitor.enabled=true",))["PodMonitor"]["spec"]["podMetricsEndpoints"][0]
    assert default["authorization"]["credentials"] == {"name": "toolsieve-keys", "key": "toolsieve.api_key"}


def test_the_alerts_and_the_dashboard_are_those_of_the_files() -> None:
    documents = render(HERE / "accepted/monitoring.yaml")
    rule, dashboard = documents["PrometheusRule"], documents[DASHBOARD]
    assert rule["spec"] == yaml.safe_load((MONITORING / "alerts.yaml").read_text())
    assert rule["metadata"]["labels"]["release"] == "prometheus"
    assert dashboard["data"] == {"toolsieve.json": (MONITORING / "dashboard.json").read_text()}
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert dashboard["metadata"]["annotations"] == {"grafana_folder": "Tools"}
    assert not {"PrometheusRule", DASHBOARD} & render(LEAST).keys()


def test_a_packed_chart_contains_the_linked_files(tmp_path: Path) -> None:
    packed = helm("package", CHART, "--destination", tmp_path)
    assert packed.returncode == 0, packed.stderr
    (archive,) = tmp_path.glob("*.tgz")
    with tarfile.open(archive) as files:
        for name in ("alerts.yaml", "dashboard.json"):
            file = files.extractfile(f"toolsieve/monitoring/{name}")
            assert file is not None
            assert file.read() == (MONITORING / name).read_bytes()


def test_the_chart_has_the_version_of_the_program() -> None:
    version = tomllib.loads((ROOT / "Cargo.toml").read_text())["package"]["version"]
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (version, version)


def test_the_schema_has_every_value() -> None:
    def compare(values: Document, schema: Document, path: str) -> None:
        if schema.get("additionalProperties") is not False:
            return
        known = schema["properties"].keys() - {"global"}
        assert values.keys() == known, path
        for name, value in values.items():
            if isinstance(value, dict):
                compare(value, schema["properties"][name], f"{path}/{name}")

    values = yaml.safe_load((CHART / "values.yaml").read_text())
    compare(values, json.loads((CHART / "values.schema.json").read_text()), "")
