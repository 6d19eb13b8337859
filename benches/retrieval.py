#!/usr/bin/env python3
"""Prints the tables of RETRIEVAL.md that come from `toolsieve bench`, in Markdown.

    python3 benches/retrieval.py --toolsieve target/release/toolsieve --bench DIR --multi multi.jsonl --toollists DIR [TABLE ...]

DIR has one folder for each public set. A table whose data are not given is left out with a line on standard error. `--settings FILE` measures
with other settings, for example another embedder. The tables are `ranking`, `users`, `selected`, `languages`, `typos` and `ablation`.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MACRO = ["livemcpbench", "azure_mcp", "mcpzero", "mcptoolbenchpp"]
FURTHER = ["metatool", "multi", "sealtools", "pool"]
NAMES = {"multi": "tasks that need several tools"}
LANGUAGES = {
    "en": "English", "de": "German", "es": "Spanish", "fr": "French", "it": "Italian", "pt": "Portuguese", "nl": "Dutch", "pl": "Polish",
    "tr": "Turkish", "ru": "Russian", "uk": "Ukrainian", "ar": "Arabic", "hi": "Hindi", "zh": "Chinese", "ja": "Japanese", "ko": "Korean",
    "sv": "Swedish", "cs": "Czech", "fi": "Finnish", "el": "Greek", "he": "Hebrew", "th": "Thai",
}  # fmt: skip
ROBUST_SERVERS = ["everything", "filesystem", "git", "memory", "time"]


def share(value: float) -> str:
    """A share without the zero before the point."""
    text = f"{value:.3f}"
    return "1.0" if float(text) == 1 else text.removeprefix("0")


def interval(metric: dict[str, float]) -> str:
    """A mean with half of its 95 % interval."""
    half = (metric["high"] - metric["low"]) / 2
    return share(metric["mean"]) if half == 0 else f"{share(metric['mean'])} ±{share(half)}"


def change(metric: dict[str, float]) -> str:
    """A difference with its sign and half of its 95 % interval."""
    mean = round(metric["mean"], 3)
    sign = "" if mean == 0 else "+" if mean > 0 else "−"
    return f"{sign}{share(abs(mean))} ±{share((metric['high'] - metric['low']) / 2)}"


def table(titles: list[str], rows: list[list[str]]) -> str:
    """A Markdown table."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


class Bench:
    """Runs `toolsieve bench`, each set once."""

    def __init__(self, options: argparse.Namespace, folder: str) -> None:
        self.options = options
        self.folder = folder
        self.known: dict[str, dict] = {}

    def run(self, *arguments: str | Path) -> dict:
        """The report on these arguments."""
        key = " ".join(map(str, arguments))
        if key not in self.known:
            report = Path(self.folder, f"{len(self.known)}.json")
            settings = ["--settings", self.options.settings] if self.options.settings else []
            command = [self.options.toolsieve, "bench", *settings, "--data-dir", self.folder, *arguments, "--json", report]
            subprocess.run(list(map(str, command)), check=True, stdout=subprocess.DEVNULL)
            self.known[key] = json.loads(report.read_text())
        return self.known[key]

    def set(self, name: str) -> dict | None:
        """The figures of a set; `None` without its data."""
        if name == "multi":
            if not (self.options.multi and self.options.toollists):
                return left_out(name)
            return self.run("--data", self.options.multi, "--toollists", self.options.toollists)["sets"][0]
        if not (self.options.bench and (self.options.bench / name).is_dir()):
            return left_out(name)
        return self.run("--data", self.options.bench / name)["sets"][0]


def left_out(what: str) -> None:
    """Says that data are missing."""
    print(f"{what} is left out: its data are not given", file=sys.stderr)


def ranking(bench: Bench) -> str:
    """The quality of the ranking, set by set."""
    measures = ["recall@1", "recall@5", "recall@10", "ndcg@5", "complete@10"]
    rows, macro = [], {measure: [] for measure in measures}
    for name in MACRO + FURTHER:
        if figures := bench.set(name):
            values = [interval(figures["metrics"][measure]) for measure in measures]
            rows.append([NAMES.get(name, name), f"{figures['queries']:,}, {figures['tools']:,}", *values])
            for measure in measures if name in MACRO else []:
                macro[measure].append(figures["metrics"][measure]["mean"])
        if name == MACRO[-1] and len(rows) == len(MACRO):
            rows.append(["average of these four (macro)", "", *(share(sum(values) / len(values)) for values in macro.values())])
    return table(["set", "messages, tools", "R@1", "R@5", "R@10", "nDCG@5", "complete@10"], rows)


def users(bench: Bench) -> str | None:
    """The quickstart's servers, by kind of user."""
    if not bench.options.quickstart:
        return left_out("users")
    report = bench.run("--data", ROOT / "tests/data/quickstart", "--config", bench.options.quickstart)
    rows = []
    for kind, group in report["sets"][0]["kinds"].items():
        metrics = group["metrics"]
        values = [interval(metrics[measure]) for measure in ["recall@1", "recall@5", "server@1", "server@5"]]
        rows.append([kind, *values, f"{100 * (1 - metrics['gate.kept']['mean']):.0f} %"])
    return table(["user", "R@1", "R@5", "right server first", "right server among the first five", "stopped by the gate"], rows)


def selected(bench: Bench) -> str:
    """What the model gets to see."""
    rows = []
    for name in ["livemcpbench", "multi", "azure_mcp", "mcpzero", "pool", "mcptoolbenchpp"]:
        if figures := bench.set(name):
            metrics = {measure: metric["mean"] for measure, metric in figures["metrics"].items()}
            recall = f"{share(metrics['cut.recall'])} ({share(metrics['recall@10'])})"
            tokens = f"{figures['tokens_before']:,}, {metrics['cut.tokens']:,.0f}"
            rows.append([NAMES.get(name, name), recall, f"{metrics['cut.tools']:.1f}", tokens, f"{100 * metrics['cut.reduction']:.1f} %"])
    return table(["set", "recall of the selected tools (of the first ten)", "selected tools", "tokens before, after", "reduction"], rows)


def languages(bench: Bench) -> str:
    """Messages of one meaning in 22 languages."""
    folder = ROOT / "tests/cases/languages"
    figures = bench.run("--data", folder, "--toollists", folder / "servers.jsonl")["sets"][0]
    measures = ["recall@1", "recall@5", "cut.recall", "gate.kept", "gate.left_alone"]

    def row(name: str, metrics: dict) -> list[str]:
        values = [f"{metrics[measure]['mean']:.2f}" for measure in measures]
        return [name, *(value.removeprefix("0") for value in values)]

    rows = [row(name, figures["languages"][code]["metrics"]) for code, name in LANGUAGES.items()]
    rows.append(row("average", figures["languages_average"]))
    needing = "messages that need a tool and get some"
    return table(["language", "R@1", "R@5", "recall of the selected tools", needing, "messages that need no tool and get none"], rows)


def typos(bench: Bench) -> str | None:
    """Misspelt messages, and such with a paste."""
    if not bench.options.toollists:
        return left_out("typos")
    servers = [word for server in ROBUST_SERVERS for word in ("--server", server)]
    report = bench.run("--data", ROOT / "tests/data/robust", "--toollists", bench.options.toollists, *servers)
    rows = []
    for kind, group in report["sets"][0]["kinds"].items():
        metrics = group["metrics"]
        values = [interval(metrics[measure]) for measure in ["recall@1", "recall@5", "cut.recall"]]
        rows.append([kind, *values, f"{metrics['cut.tools']['mean']:.1f}", share(metrics["gate.kept"]["mean"])])
    return table(["messages", "R@1", "R@5", "recall of the selected tools", "selected tools", "get some tools"], rows)


def ablation(bench: Bench) -> str | None:
    """The paired change of the average over five sets without each part."""
    options = bench.options
    if not (options.bench and options.multi and options.toollists):
        return left_out("ablation")
    data = [word for name in MACRO for word in ("--data", options.bench / name)]
    report = bench.run(*data, "--data", options.multi, "--toollists", options.toollists, "--limit-queries", "300", "--ablation")
    measures = ["recall@1", "recall@5", "recall@10", "ndcg@5", "complete@10"]
    rows = []
    for part in report["ablation"]:
        changes = [part["difference"][measure] for measure in measures]
        rows.append([f"{part['without']} ({part['leaves']})" if part["leaves"] else part["without"], *map(change, changes)])
    return table(["without", "R@1", "R@5", "R@10", "nDCG@5", "complete@10"], rows)


TABLES = {table.__name__: table for table in (ranking, users, selected, languages, typos, ablation)}


def main() -> None:
    """Prints the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", metavar="TABLE", help="without one: all")
    parser.add_argument("--toolsieve", required=True, type=Path)
    parser.add_argument("--settings", type=Path)
    parser.add_argument("--bench", type=Path, metavar="DIR")
    parser.add_argument("--multi", type=Path, metavar="FILE")
    parser.add_argument("--toollists", type=Path, metavar="DIR")
    parser.add_argument("--quickstart", type=Path, metavar="FILE", help="the quickstart's configuration of its servers")
    options = parser.parse_args()
    if unknown := set(options.tables) - set(TABLES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(TABLES)}")
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(options, folder)
        for name in options.tables or TABLES:
            if text := TABLES[name](bench):
                print(f"{name}\n\n{text}\n", flush=True)


if __name__ == "__main__":
    main()
