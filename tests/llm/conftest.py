"""
A real language model chooses tools for the built service, and a proxy between them records what passes.

    TOOLSIEVE_BIN=target/release/toolsieve tests/llm/run

The model is weak: whether it chooses well is no matter here. What it writes is read from the wire, and the service must
make of it what the documentation says. The first run installs the model.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

# Starting and stopping programs is the same for all our tests in Python.
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "e2e"))

from programs import Model, Service
from wire import Wire


@pytest.fixture(scope="session")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """One that all tests share. It answers at most so much that nobody waits long."""
    model = Model(tmp_path_factory.mktemp("model"))
    model.start()
    yield model
    model.stop()


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def record(stack: ExitStack) -> Callable[[Model], Wire]:
    """Puts a proxy in front of a model."""

    def record(model: Model) -> Wire:
        wire = Wire(model.url)
        stack.callback(wire.stop)
        return wire

    return record


@pytest.fixture
def wire(record: Callable[[Model], Wire], model: Model) -> Wire:
    return record(model)


@pytest.fixture
def start(stack: ExitStack, tmp_path: Path) -> Callable[..., Service]:
    """Starts a service whose model is at an address, with more settings of `[llm]`."""

    def start(model_url: str, **settings: object) -> Service:
        service = Service(tmp_path / "service", model_url, settings)
        stack.callback(service.stop)
        service.wait()
        return service

    return start


@pytest.fixture
def service(start: Callable[..., Service], wire: Wire) -> Service:
    """A service of its own for each test, so that counts and the circuit breaker begin anew."""
    return start(wire.url)


@pytest.fixture
def start_model(stack: ExitStack, tmp_path: Path) -> Callable[..., Model]:
    """Starts a model's server with other arguments."""

    def start(*arguments: str) -> Model:
        model = Model(tmp_path, *arguments)
        stack.callback(model.stop)
        model.start()
        return model

    return start
