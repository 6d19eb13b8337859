"""The metrics as Prometheus' own readers take them, in both forms, after some work."""

import re

import pytest
import requests
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics import parser as openmetrics
from prometheus_client.parser import text_string_to_metric_families as plain

from conftest import World

FORMS = {
    "text/plain": ("text/plain; version=0.0.4; charset=utf-8", plain),
    "application/openmetrics-text; version=1.0.0": (
        "application/openmetrics-text; version=1.0.0; charset=utf-8",
        openmetrics.text_string_to_metric_families,
    ),
}
# What promtool's linter refuses in a name.
ABBREVIATIONS = ("_s", "_ms", "_us", "_ns", "_sec", "_kb", "_mb", "_percent", "_pct", "_milliseconds", "_kilobytes")


def work(world: World) -> None:
    message = {"messages": [{"role": "user", "content": "what time is it in Lima?"}]}
    requests.post(f"{world.url}/v1/filter", json=message, timeout=30).raise_for_status()
    requests.post(f"{world.url}/v1/tools/search", json={"queries": ["send an email"]}, timeout=30).raise_for_status()
    server, tools = next((name, tools) for name, tools in world.lists.items() if tools)
    requests.post(f"{world.url}/v1/tools/call", json={"name": f"{server}__{tools[0]['name']}"}, timeout=60)
    requests.get(f"{world.url}/nothing/here", timeout=30)


@pytest.mark.parametrize("accept", FORMS)
def test_prometheus_reads_what_is_told(accept: str, world: World) -> None:
    work(world)
    response = requests.get(f"{world.url}/metrics", headers={"Accept": accept}, timeout=30)
    content_type, parse = FORMS[accept]
    assert response.status_code == 200
    assert response.headers["Content-Type"] == content_type
    families: list[Metric] = list(parse(response.text))
    names = [family.name for family in families]
    assert len(names) == len(set(names)) > 25
    found = (sample for family in families for sample in family.samples)
    samples = {(sample.name, tuple(sorted(sample.labels.items()))): sample.value for sample in found}
    assert samples[("toolsieve_catalog_servers", ())] == len(world.lists)
    assert samples[("toolsieve_selection_duration_seconds_count", ())] >= 1
    assert samples[("toolsieve_selection_duration_seconds_bucket", (("le", "+Inf"),))] >= 1
    of_filter = (("method", "POST"), ("route", "/v1/filter"), ("status", "2xx"))
    assert samples[("toolsieve_http_requests_total", of_filter)] >= 1
    assert sum(value for (name, _), value in samples.items() if name == "toolsieve_server_up") == len(world.lists)


def test_names_are_as_promtool_wants_them(world: World) -> None:
    response = requests.get(f"{world.url}/metrics", timeout=30)
    for family in plain(response.text):
        assert family.type in {"counter", "gauge", "histogram"}, family.name
        assert family.documentation.strip(), family.name
        assert re.fullmatch("[a-z][a-z0-9]*(_[a-z0-9]+)*", family.name), "snake case"
        assert not family.name.endswith(ABBREVIATIONS), f"{family.name}: base units, in full"
        assert not re.search("counter|gauge|histogram|summary", family.name), "no type in a name"
        for sample in family.samples:
            # This reader takes the end of counters off.
            assert sample.name.endswith("_total") == (family.type == "counter"), sample.name
            for label in sample.labels:
                assert re.fullmatch("[a-z]+(_[a-z]+)*", label), sample.name
