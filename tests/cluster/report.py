"""What a run prints at its end."""

import statistics
from collections import Counter

from ledger import Ledger
from workload import SPREAD_SECONDS

# The share of changes that may take longer than 100 ms while nothing is broken. Here, a dozen programs share a few
# processors, and perhaps others with them.
LATE_SHARE = 0.03


def table(heads: list[str], rows: list[list[str]]) -> str:
    widths = [max(len(row[place]) for row in [heads, *rows]) for place in range(len(heads))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in [heads, *rows]]
    return "\n".join([lines[0], "  ".join("-" * width for width in widths), *lines[1:]])


def percentile(values: list[float], part: float) -> float:
    return sorted(values)[min(int(len(values) * part), len(values) - 1)] if values else 0.0


def report(ledger: Ledger, rows: list[list[str]], left_out: list[str]) -> None:
    heads = [
        "#",
        "fault",
        "s",
        "answered",
        "failed in flight",
        "chat p50 / max ms",
        "violations",
        "prompt again s",
        "measured",
    ]
    print("\n" + table(heads, rows))
    figures = " / ".join(f"{percentile(ledger.spread, part) * 1e3:.0f}" for part in (0.5, 0.9, 0.99, 1.0))
    print("\nfrom an acknowledged change to each replica, nothing broken:")
    print(f"{len(ledger.spread)} times, p50 / p90 / p99 / max {figures} ms")
    limit = f"{SPREAD_SECONDS * 1e3:.0f} ms"
    if len(ledger.late) > LATE_SHARE * len(ledger.spread) + 1:
        late = f"{len(ledger.late)} of {len(ledger.spread)} changes took more than {limit}: {ledger.late[:5]}"
        ledger.violations.append(late)
    elif ledger.late:
        print(f"later than {limit}: {ledger.late}")
    failures = Counter((failure.fault, failure.kind, failure.reason[:90]) for failure in ledger.failures)
    if failures:
        cells = [[str(count), *what] for what, count in sorted(failures.items())]
        print("\n" + table(["times", "fault", "request", "failure"], cells))
    chats = [one for (_, kind), all_ in ledger.latencies.items() if kind == "chat" for one in all_]
    print(f"\nanswered: {dict(sorted(ledger.answered.items()))}; chats p50 {statistics.median(chats) * 1e3:.0f} ms")
    print(f"chats that lost a tool without a warning: {ledger.forgotten} of {ledger.answered['chat']} turns")
    print(f"warnings: {dict(ledger.warned)}")
    active, revoked = len(ledger.active_keys()), len(ledger.revoked_keys())
    print(f"keys: {active} active, {revoked} revoked; calls sent: {len(ledger.calls)}")
    for one in left_out:
        print(f"left out: {one}")
    for violation in ledger.violations:
        print(f"violation: {violation}")
