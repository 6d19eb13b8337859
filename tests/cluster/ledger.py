"""What was sent and acknowledged, and what each response proves.

A response carries the name of its replica and the number N of the last change in its state. So the changes up to the
highest N that this replica has sent before a request are in force for this request. Changes that begin after its end
are not. The response must fit one of the versions between.
"""

import bisect
import time
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass
class Change:
    """A version of something that the administrator replaces as a whole."""

    value: frozenset[str]
    begun: float
    # The number of the acknowledged change. If it is -1, the response did not contain it.
    number: int | None = None


class Versions:
    """The versions of the rules, or of a toolset. Only one administrator writes them, one after the other."""

    def __init__(self, value: frozenset[str]) -> None:
        self.changes = [Change(value, 0.0, 0)]

    def begin(self, value: frozenset[str]) -> Change:
        self.changes.append(Change(value, time.monotonic()))
        return self.changes[-1]

    @property
    def latest(self) -> frozenset[str]:
        return self.changes[-1].value

    def possible(self, known: int, ended: float) -> list[frozenset[str]]:
        """The versions that a response may show: `known` is the number that its replica had sent before the request."""
        numbers = [(place, one.number) for place, one in enumerate(self.changes) if one.number is not None]
        first = max(place for place, number in numbers if 0 <= number <= known)
        return [one.value for one in self.changes[first:] if one.begun <= ended]


@dataclass
class Key:
    name: str
    id: str
    secret: str
    is_revoked: bool = False


@dataclass
class Call:
    """A call is sent once."""

    id: str
    tool: str
    is_acknowledged: bool = False
    is_refused: bool = False


@dataclass
class Failure:
    kind: str
    reason: str
    fault: str
    replica: str
    is_allowed: bool
    at: float


@dataclass
class Ledger:
    began: float = field(default_factory=time.monotonic)
    policy: Versions = field(default_factory=lambda: Versions(frozenset()))
    toolset: Versions = field(default_factory=lambda: Versions(frozenset()))
    keys: dict[str, Key] = field(default_factory=dict)
    calls: dict[str, Call] = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    answered: Counter[str] = field(default_factory=Counter)
    # Warnings in responses to messages, and tools that a chat was offered before and no longer.
    warned: Counter[str] = field(default_factory=Counter)
    forgotten: int = 0
    # By fault: the time that each kind of request took.
    latencies: dict[tuple[str, str], list[float]] = field(default_factory=lambda: defaultdict(list))
    # Seconds from the acknowledgement of a change until a replica had it, while nothing was broken.
    spread: list[float] = field(default_factory=list)
    # Changes that took too long until then.
    late: list[str] = field(default_factory=list)
    fault: str = "nothing"
    seen: dict[str, list[tuple[float, int]]] = field(default_factory=lambda: defaultdict(list))

    def note(self, replica: str, state: int) -> None:
        """A replica has sent the number of its state."""
        seen = self.seen[replica]
        if replica and (not seen or state > seen[-1][1]):
            seen.append((time.monotonic(), state))

    def known(self, replica: str, at: float) -> int:
        """The highest number that a replica had sent until then."""
        seen = self.seen[replica]
        place = bisect.bisect_right(seen, (at, 1 << 62))
        return seen[place - 1][1] if place else 0

    def violation(self, text: str) -> None:
        stamp = f"{time.monotonic() - self.began:.1f} s, {self.fault}"
        self.violations.append(f"[{stamp}] {text}")
        if len(self.violations) <= 50:
            print(f"VIOLATION [{stamp}] {text}", flush=True)

    def active_keys(self) -> list[Key]:
        return [key for key in self.keys.values() if not key.is_revoked]

    def revoked_keys(self) -> list[Key]:
        return [key for key in self.keys.values() if key.is_revoked]

    def unexplained(self) -> Iterator[Failure]:
        return (failure for failure in self.failures if not failure.is_allowed)
