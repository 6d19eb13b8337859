"""Every alert fires when it should, and only then: with recorded series (`cases.yaml`), and in the run if possible."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from conftest import PROVOKED, WRONG_KEYS, Run
from programs import ALERTS, promtool, rules

RULES = {rule["alert"]: rule for rule in rules()}
CASES = yaml.safe_load((Path(__file__).parent / "cases.yaml").read_text(encoding="utf-8"))
# What each scrape adds to a series.
TARGET = {"job": "toolsieve", "instance": "here:8000"}


def test_promtool_finds_no_fault(run: Run) -> None:
    for arguments in (("rules", "--lint-fatal", ALERTS), ("config", run.prometheus.config)):
        checked = promtool("check", *arguments)
        assert checked.returncode == 0, checked.stdout
        assert "WARNING" not in checked.stdout, checked.stdout


def test_promtool_finds_no_fault_in_the_metrics(run: Run) -> None:
    checked = promtool("check", "metrics", text=run.metrics)
    assert (checked.returncode, checked.stdout) == (0, "")


def test_every_alert_says_how_bad_it_is_and_what_to_do() -> None:
    for name, rule in RULES.items():
        assert rule["labels"].keys() == {"severity"}, name
        assert rule["labels"]["severity"] in {"critical", "warning"}, name
        summary, description = rule["annotations"]["summary"], rule["annotations"]["description"]
        assert "Toolsieve" in summary or "MCP server" in summary, name
        assert "{{" not in description, name
        assert len(description) > 40, name
        assert description.endswith("."), name


def test_every_alert_has_cases_and_its_place_in_the_documentation() -> None:
    assert list(CASES) == list(RULES)
    for name, cases in CASES.items():
        assert any("summary" in case for case in cases), f"{name} never fires"
        assert any("summary" not in case for case in cases), f"{name} is never quiet"
    page = (ALERTS.parents[2] / "docs/src/how-to/operations.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `(Toolsieve\w+)`", page, flags=re.MULTILINE) == list(RULES)
    for name, rule in RULES.items():
        (line,) = [line for line in page.splitlines() if line.startswith(f"| `{name}`")]
        assert f"| {rule['labels']['severity']} |" in line, name


@pytest.mark.parametrize("alert", CASES)
def test_an_alert_fires_in_its_cases_and_only_there(alert: str, tmp_path: Path) -> None:
    file = tmp_path / "test.yaml"
    tests = [recorded(alert, case) for case in CASES[alert]]
    file.write_text(
        yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": tests}), encoding="utf-8"
    )
    tried = promtool("test", "rules", file)
    assert tried.returncode == 0, tried.stdout


def recorded(alert: str, case: dict[str, Any]) -> dict[str, Any]:
    """A case in the format of promtool."""
    target = ",".join(f'{name}="{value}"' for name, value in TARGET.items())
    series = []
    for name, values in case["series"].items():
        metric, brace, labels = name.partition("{")
        series.append(
            {"series": f"{metric}{{{target},{labels}" if brace else f"{metric}{{{target}}}", "values": values}
        )
    expected = []
    if "summary" in case:
        labels = RULES[alert]["labels"] | case.get("labels", {}) | ({} if case.get("without_target") else TARGET)
        annotations = RULES[alert]["annotations"] | {"summary": case["summary"]}
        expected = [{"exp_labels": labels, "exp_annotations": annotations}]
    tried = {"eval_time": case["at"], "alertname": alert, "exp_alerts": expected}
    return {"interval": "1m", "input_series": series, "alert_rule_test": [tried]}


@pytest.mark.parametrize("alert", RULES)
def test_prometheus_evaluates_an_expression(alert: str, run: Run) -> None:
    run.prometheus.query(RULES[alert]["expr"])
    (rule,) = [
        rule for group in run.prometheus.get("rules")["groups"] for rule in group["rules"] if rule["name"] == alert
    ]
    assert (rule["health"], rule.get("lastError")) == ("ok", None)


def test_a_healthy_service_raises_no_alert(run: Run) -> None:
    assert run.calm == []


@pytest.mark.parametrize("alert", sorted(PROVOKED))
def test_what_goes_wrong_raises_its_alert(alert: str, run: Run) -> None:
    fired = run.fired[alert]
    for text in fired["annotations"].values():
        assert "error" not in text.partition("expanding template")[0] or "expanding template" not in text, text
        assert "<no value>" not in text
        assert "{{" not in text


def test_nothing_else_raises_an_alert(run: Run) -> None:
    assert run.fired.keys() == PROVOKED


def test_the_alerts_name_their_service(run: Run) -> None:
    of_whole = {"ToolsieveServerDown", "ToolsieveCallsFail", "ToolsieveWrongKeys"}
    for name, alert in run.fired.items():
        if name != "ToolsieveNotScraped":
            service = run.whole if name in of_whole else run.broken
            assert alert["labels"]["instance"] == service.instance, name
    assert run.fired["ToolsieveServerDown"]["labels"]["server"] == "web"
    assert run.fired["ToolsieveStoreFails"]["labels"]["operation"] == "write"
    assert float(run.fired["ToolsieveWrongKeys"]["value"]) <= 2 * WRONG_KEYS
