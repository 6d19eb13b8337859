"""Programs that the tests start: each in its own process group, on a free port, with a log, and stopped by its pid."""

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import requests

POLL = 0.1


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def until(condition: Callable[[], bool], seconds: float, what: str) -> None:
    """Waits for a condition; fails with `what` when it does not come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}, even after {seconds} s"
        time.sleep(POLL)


def answers(url: str) -> bool:
    try:
        return requests.get(url, timeout=5).status_code == 200
    except requests.RequestException:
        return False


class Program:
    """A running program."""

    def __init__(
        self, command: Sequence[str | Path], *, log: Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
    ) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [str(part) for part in command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(env or {})},
                cwd=cwd,
                start_new_session=True,
            )

    def wait_until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        def ready() -> bool:
            assert self._process.poll() is None, f"{what}: it ended with {self._process.returncode}\n{self.log_end()}"
            return condition()

        try:
            until(ready, seconds, what)
        except AssertionError:
            print(self.log_end())
            raise

    def wait_for_end(self, seconds: float) -> int:
        """Waits until the program ends by itself, and returns its exit code."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {seconds} s\n{self.log_end()}") from None

    def log_end(self, lines: int = 40) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-lines:])

    def stop(self) -> None:
        """Asks the whole group to end, and ends it after ten seconds."""
        if self._process.poll() is not None:
            return
        for sign, patience in ((signal.SIGTERM, 10), (signal.SIGKILL, 10)):
            os.killpg(self._process.pid, sign)
            try:
                self._process.wait(patience)
            except subprocess.TimeoutExpired:
                continue
            return
