"""Every panel of the dashboard shows something, and Grafana knows every field of its file."""

import enum
import json
import math
import re
import typing
from collections.abc import Iterator
from typing import Any

import pytest
import typeguard
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard

from conftest import Run
from programs import MONITORING, PERIOD

DASHBOARD = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
PANELS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
# What a run can't provoke stays at 0 here.
QUIET = {"Closed connections", "Panics"}
ROWS = 24


@pytest.fixture(scope="session")
def variables(run: Run) -> dict[str, str]:
    """The values of the dashboard's variables if all are selected, as Grafana writes them."""
    chosen = {"__rate_interval": PERIOD, "__range": "1m"}
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            values = run.prometheus.label_values(filled(variable["query"]["query"], chosen))
            assert values, variable["name"]
            chosen[variable["name"]] = "(" + "|".join(re.escape(value).replace("\\", "\\\\") for value in values) + ")"
    return chosen


def filled(text: str, variables: dict[str, str]) -> str:
    for name, value in variables.items():
        text = text.replace(f"${name}", value)
    assert "$" not in text, text
    return text


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_panel_shows_data(panel: dict[str, Any], run: Run, variables: dict[str, str]) -> None:
    shown: list[float] = []
    for target in panel["targets"]:
        expression = filled(target["expr"], variables)
        values = [value for series in run.prometheus.history(expression, run.started, run.ended) for value in series]
        numbers = [value for value in values if math.isfinite(value)]
        assert numbers, f"no data: {expression}"
        assert all(value >= 0 for value in numbers), expression
        if panel["fieldConfig"]["defaults"].get("unit") == "percentunit":
            assert all(value <= 1 for value in numbers), expression
        shown += numbers
    assert any(shown) != (panel["title"] in QUIET)


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel["title"])
def test_a_legend_names_labels_that_exist(panel: dict[str, Any], run: Run, variables: dict[str, str]) -> None:
    period = {"start": str(run.started), "end": str(run.ended), "step": "1"}
    for target in panel["targets"]:
        found = run.prometheus.get("query_range", query=filled(target["expr"], variables), **period)["result"]
        wanted = set(re.findall(r"{{(\w+)}}", target["legendFormat"]))
        assert all(wanted <= series["metric"].keys() for series in found), target
        legends = [tuple(sorted(series["metric"].items())) for series in found]
        assert wanted or len(legends) <= 1 or panel["type"] == "stat", f"several series with one legend: {target}"


def test_the_panels_lie_side_by_side() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= ROWS
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    for name in ("id", "title"):
        values = [panel[name] for panel in DASHBOARD["panels"]]
        assert len(set(values)) == len(values), name
    for panel in PANELS:
        assert panel["description"].endswith(".")
        assert {target["datasource"]["uid"] for target in panel["targets"]} == {"${datasource}"}


def test_grafana_knows_every_field() -> None:
    """Reads the file with Grafana's own library, which drops unknown fields, and compares."""
    register_default_plugins()
    read = Dashboard.from_json(json.loads(json.dumps(DASHBOARD)))
    written = json.loads(json.dumps(read, cls=JSONEncoder))
    assert list(differences(DASHBOARD, written, "")) == []
    assert list(wrong_values(read, "")) == []


def differences(ours: Any, theirs: Any, path: str) -> Iterator[str]:
    """The parts of our file that the library has not kept. It adds defaults of its own."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for name, value in ours.items():
            if name in theirs:
                yield from differences(value, theirs[name], f"{path}/{name}")
            else:
                yield f"{path}/{name} is unknown"
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (our, their) in enumerate(zip(ours, theirs, strict=True)):
            yield from differences(our, their, f"{path}/{number}")
    elif ours != theirs:
        yield f"{path} is {ours!r}, read as {theirs!r}"


def wrong_values(value: Any, path: str) -> Iterator[str]:
    """The attributes of the library's objects that don't have the declared types."""
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from wrong_values(item, f"{path}/{number}")
    elif isinstance(value, dict):
        for name, item in value.items():
            yield from wrong_values(item, f"{path}/{name}")
    elif type(value).__module__.startswith("grafana_foundation_sdk."):
        for name, hint in typing.get_type_hints(type(value)).items():
            item = getattr(value, name)
            if not fits(item, hint):
                yield f"{path}/{name} is {item!r}, not {hint}"
            yield from wrong_values(item, f"{path}/{name}")


def fits(value: Any, hint: Any) -> bool:
    """Whether a value has this type. The library keeps the values of enumerations as they are in the file."""
    for choice in typing.get_args(hint) or (hint,):
        if isinstance(choice, type) and issubclass(choice, enum.Enum):
            try:
                choice(value)
            except ValueError:
                continue
            return True
    try:
        typeguard.check_type(value, hint)
    except typeguard.TypeCheckError:
        return False
    return True


@pytest.mark.parametrize(
    ("place", "value"),
    [(("refrsh",), "30s"), (("graphTooltip",), 7), (("panels", 1, "options", "textMode"), "loud"), (("tags",), "mcp")],
)
def test_a_mistake_in_the_file_is_found(place: tuple[str | int, ...], value: object) -> None:
    register_default_plugins()
    changed = json.loads(json.dumps(DASHBOARD))
    part = changed
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    read = Dashboard.from_json(json.loads(json.dumps(changed)))
    written = json.loads(json.dumps(read, cls=JSONEncoder))
    assert list(differences(changed, written, "")) or list(wrong_values(read, ""))
