"""Are the manifests what Kubernetes knows, do they hang together, and is the autoscaler's query right and cheap?"""

from __future__ import annotations

import json
import re
from dataclasses import fields
from typing import Any

import kubernetes_validate
import pytest
import yaml

from pulse.engine.engine import Engine
from pulse.model.jobs import Outcome
from pulse.server import CALLS_GRACE, STREAMS_GRACE
from pulse.settings import Settings
from pulse.store.statements import load_statements
from pulse.timing.duration import parse_duration
from tests.deploy.programs import DEPLOY, needs, run_program
from tests.deploy.test_docker import Image
from tests.factories import a_new_job, a_report, claim_one
from tests.waiting import connected

MANIFESTS = DEPLOY / "kubernetes"
VERSIONS = ("1.28", kubernetes_validate.latest_version())  # the oldest that clouds still offer, and the newest
PODS = ("Job/pulse-migrate", "Deployment/pulse-server", "Deployment/shop-worker")


def documents(*names: str) -> dict[str, Any]:
    texts = [(MANIFESTS / name).read_text() for name in names]
    found = [document for text in texts for document in yaml.safe_load_all(text)]
    return {f"{document['kind']}/{document['metadata']['name']}": document for document in found}


OURS = documents("namespace.yaml", "migrate.yaml", "server.yaml", "worker.yaml", "network.yaml", "secret.example.yaml")


def pod(name: str) -> dict[str, Any]:
    found: dict[str, Any] = OURS[name]["spec"]["template"]["spec"]
    return found


def container(name: str) -> dict[str, Any]:
    [found] = pod(name)["containers"]
    assert isinstance(found, dict)
    return found


# --- what tools say of them


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("name", list(OURS))
def test_kubernetes_knows_every_field(name: str, version: str) -> None:
    kubernetes_validate.validate(OURS[name], version, strict=True)


def test_a_field_it_does_not_know_would_be_found() -> None:
    wrong = json.loads(json.dumps(OURS["Deployment/pulse-server"]).replace("readinessProbe", "readynessProbe"))

    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(wrong, VERSIONS[-1], strict=True)


@needs("kubectl", "kubectl")
def test_kustomize_puts_them_together() -> None:
    built = list(yaml.safe_load_all(run_program("kubectl", "kustomize", MANIFESTS)))

    made = {f"{document['kind']}/{document['metadata']['name']}" for document in built}
    assert made == OURS.keys() - {"Secret/pulse"}
    images = {
        re.findall(r'"image": "([^"]+)"', json.dumps(document))[0] for document in built if "template" in str(document)
    }
    assert images == {"registry.example.com/pulse:0.1.0", "registry.example.com/shop:1.2.3"}


# --- what they promise


@pytest.mark.parametrize("name", PODS)
def test_a_pod_is_nobody_and_may_do_nothing_more(name: str) -> None:
    """The `restricted` profile, which the namespace enforces; and files that cannot be changed."""
    rights, user = container(name)["securityContext"], pod(name)["securityContext"]

    assert user["runAsNonRoot"]
    assert f"{user['runAsUser']}:{user['runAsGroup']}" == Image()["USER"]
    assert user["seccompProfile"] == {"type": "RuntimeDefault"}
    assert rights == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert not pod(name)["automountServiceAccountToken"]
    assert not pod(name)["enableServiceLinks"]
    assert container(name)["resources"].keys() == {"requests", "limits"}


def test_pods_get_longer_than_the_grace() -> None:
    [grace] = [each["value"] for each in container("Deployment/shop-worker")["env"] if each["name"] == "PULSE_GRACE"]
    before = float(container("Deployment/pulse-server")["lifecycle"]["preStop"]["exec"]["command"][1])
    server = pod("Deployment/pulse-server")["terminationGracePeriodSeconds"]

    assert server >= before + STREAMS_GRACE + CALLS_GRACE + 10
    assert pod("Deployment/shop-worker")["terminationGracePeriodSeconds"] >= parse_duration(grace).total_seconds() + 10


@pytest.mark.parametrize("name", PODS[1:])
def test_probes_ask_the_health_port_of_the_image(name: str) -> None:
    kind = container(name)["args"][0].upper()
    ports = {port["name"]: port["containerPort"] for port in container(name)["ports"]}

    assert str(ports["health"]) == Image().env[f"PULSE_{kind}_HEALTH_PORT"]
    assert container(name)["livenessProbe"]["httpGet"] == {"path": "/livez", "port": "health"}
    assert container(name)["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": "health"}


def test_everything_finds_what_it_names() -> None:
    keys = OURS["Secret/pulse"]["stringData"].keys()
    settings = {f"PULSE_{field.name.upper()}" for field in fields(Settings)}
    for name in PODS:
        for variable in container(name)["env"]:
            assert variable["name"] in settings
            assert variable.get("valueFrom", {}).get("secretKeyRef", {}).get("key", "owner-url") in keys
    for name in PODS[1:]:
        labels = OURS[name]["spec"]["template"]["metadata"]["labels"].items()
        budget = OURS[name.replace("Deployment", "PodDisruptionBudget")]["spec"]["selector"]["matchLabels"]
        assert OURS[name]["spec"]["selector"]["matchLabels"].items() <= labels
        assert budget.items() <= labels
    service = OURS["Service/pulse-server"]["spec"]
    ports = {port["name"] for port in container("Deployment/pulse-server")["ports"]}
    assert service["selector"].items() <= OURS[PODS[1]]["spec"]["template"]["metadata"]["labels"].items()
    assert {port["targetPort"] for port in service["ports"]} <= ports


@pytest.mark.parametrize("name", PODS[1:])
def test_only_those_who_need_them_reach_the_ports_of_a_pod(name: str) -> None:
    policy = OURS[name.replace("Deployment", "NetworkPolicy")]["spec"]
    ports = {port["name"] for port in container(name)["ports"]}
    allowed = {port["port"]: rule["from"] for rule in policy["ingress"] for port in rule["ports"]}

    assert policy["podSelector"]["matchLabels"] == OURS[name]["spec"]["selector"]["matchLabels"]
    assert "Ingress" in policy["policyTypes"]
    assert allowed.keys() == ports, "every port has somebody who may come"
    assert all(allowed.values()), "and none is open to all"


def test_workers_may_reach_the_servers() -> None:
    ingress = OURS["NetworkPolicy/pulse-server"]["spec"]["ingress"]
    [rule] = [rule for rule in ingress if {"protocol": "TCP", "port": "grpc"} in rule["ports"]]
    [client] = rule["from"]

    labels = OURS["Deployment/shop-worker"]["spec"]["template"]["metadata"]["labels"]
    assert client["podSelector"]["matchLabels"].items() <= labels.items()


def test_the_monitor_finds_what_it_names() -> None:
    spec = documents("monitor.yaml")["PodMonitor/pulse-server"]["spec"]
    [endpoint] = spec["podMetricsEndpoints"]

    labels = OURS[PODS[1]]["spec"]["template"]["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    assert endpoint["port"] in {port["name"] for port in container(PODS[1])["ports"]}
    assert endpoint["authorization"]["credentials"]["key"] in OURS["Secret/pulse"]["stringData"]


# --- the autoscaler


KEDA = documents("keda.yaml")
SCALED = KEDA["ScaledObject/shop-worker"]["spec"]
TRIGGER = SCALED["triggers"][0]
QUERY = TRIGGER["metadata"]["query"]


def test_the_autoscaler_finds_what_it_names() -> None:
    [secret] = KEDA["TriggerAuthentication/pulse-scaler"]["spec"]["secretTargetRef"]

    assert f"Deployment/{SCALED['scaleTargetRef']['name']}" in OURS
    assert TRIGGER["authenticationRef"]["name"] == "pulse-scaler"
    assert secret["parameter"] == "connection"
    assert secret["key"] in OURS["Secret/pulse"]["stringData"]


def test_its_query_is_the_engines_own() -> None:
    def moves(sql: str) -> str:
        return re.sub(r"\s+", " ", sql[sql.index("from (") : sql.index(") as moves")]).replace('"', "")

    assert moves(QUERY) == moves(load_statements("pulse")["count_jobs"].sql)


async def test_it_counts_what_waits_and_runs_in_its_topics(engine: Engine, settings: Settings) -> None:
    async with connected(settings.database_url) as asking:
        assert await asking.fetchval(QUERY) == 0
        await engine.jobs.submit([a_new_job(topic=topic) for topic in ("mail", "mail", "mail", "images", "other")])
        assert await asking.fetchval(QUERY) == 4

        claims = [await claim_one(engine), await claim_one(engine)]
        assert await asking.fetchval(QUERY) == 4
        await engine.claims.report([a_report(claims[0]), a_report(claims[1], Outcome.DISCARD)])
        assert await asking.fetchval(QUERY) == 2
        await engine.duties.tally()
        assert await asking.fetchval(QUERY) == 2


async def test_it_never_reads_the_jobs(settings: Settings) -> None:
    async with connected(settings.database_url) as asking:
        plan = "\n".join(row[0] for row in await asking.fetch(f"explain {QUERY}"))

    assert set(re.findall(r"Scan.*? on (\w+)", plan)) == {"counts", "tallies"}
