"""The network of the bed: a TCP load balancer in front of the replicas, and TCP proxies behind them."""

import asyncio
import contextlib
import itertools
from collections.abc import Callable, Coroutine, Sequence
from typing import Protocol

from wire import BrokenError, Client

CHUNK = 65_536
# How often the load balancer asks each replica whether it is ready, and how long it waits.
LOOK_SECONDS, LOOK_PATIENCE = 0.1, 2.0

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def abort(writer: asyncio.StreamWriter) -> None:
    """Ends a connection with a reset."""
    with contextlib.suppress(OSError, RuntimeError):
        writer.transport.abort()


def flowing() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


class Listener:
    """Serves each connection in a task of its own."""

    def __init__(
        self, serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[None, None, None]]
    ) -> None:
        self._serve = serve
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None

    async def start(self) -> int:
        """Listens on a free port, and returns it."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=1 << 20)
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Proxy:
    """Forwards connections to a server. It can stall them, delay them and cut them."""

    def __init__(self, target: int) -> None:
        self.target, self.port = target, 0
        self.delay = 0.0
        # Set while connections can be opened.
        self._opens = flowing()
        # The connections of one time. When they are silenced, later connections get another one.
        self._flows = flowing()
        self._writers: set[asyncio.StreamWriter] = set()
        self._listener = Listener(self._serve)

    async def start(self) -> None:
        self.port = await self._listener.start()

    def stall(self) -> None:
        """Lets nothing through any more, without a reset: what a partition looks like from both ends."""
        self._opens.clear()
        self._flows.clear()

    def silence(self) -> None:
        """Lets nothing through on the present connections, for ever. New ones work: the server was replaced."""
        self._flows.clear()
        self._flows = flowing()

    def heal(self, *, cut: bool) -> None:
        """Ends the partition. With `cut`, the old connections are lost. Otherwise, they go on."""
        if cut:
            self.cut()
        self._flows.set()
        self._opens.set()

    def cut(self) -> None:
        for writer in list(self._writers):
            abort(writer)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        back = None
        try:
            await self._opens.wait()
            flows = self._flows
            try:
                back = await asyncio.open_connection("127.0.0.1", self.target)
            except OSError:
                abort(writer)
                return
            self._writers.add(back[1])
            async with asyncio.TaskGroup() as group:
                group.create_task(self._pump(reader, back[1], flows, is_delayed=False))
                group.create_task(self._pump(back[0], writer, flows, is_delayed=True))
        finally:
            for one in (writer, back[1] if back else None):
                if one:
                    self._writers.discard(one)
                    abort(one)

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, flows: asyncio.Event, *, is_delayed: bool
    ) -> None:
        """Each part arrives `delay` after it was sent. Parts that follow each other are not delayed twice."""
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def read() -> None:
            with contextlib.suppress(OSError):
                while part := await reader.read(CHUNK):
                    queue.put_nowait((loop.time() + (self.delay if is_delayed else 0.0), part))
            queue.put_nowait((0.0, b""))

        reading = asyncio.create_task(read())
        try:
            while True:
                due, part = await queue.get()
                await asyncio.sleep(max(0.0, due - loop.time()))
                await flows.wait()
                if not part:
                    if not writer.is_closing():
                        writer.write_eof()
                    return
                writer.write(part)
                await writer.drain()
        except OSError:
            abort(writer)
        finally:
            reading.cancel()


class Target(Protocol):
    """What the load balancer knows of a replica."""

    name: str
    port: int


class Balancer:
    """Forwards each connection to the next replica that is ready. It knows TCP only, so it can't repeat anything."""

    def __init__(self, targets: Sequence[Target], note: Callable[[str, int], None]) -> None:
        self.targets, self.port = targets, 0
        self.ready: set[str] = set()
        # The replica of each client's port.
        self.served: dict[int, str] = {}
        self._note = note
        self._turn = itertools.count()
        self._listener = Listener(self._serve)
        self._looks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        self.port = await self._listener.start()
        self._looks = [asyncio.create_task(self._look(target)) for target in self.targets]

    async def _look(self, target: Target) -> None:
        client = Client(target.port)
        while True:
            try:
                response = await client.ask("GET", "/readyz", patience=LOOK_PATIENCE)
                self._note(response.replica, response.state)
                is_ready = response.status == 200
            except BrokenError:
                is_ready = False
            (self.ready.add if is_ready else self.ready.discard)(target.name)
            await asyncio.sleep(LOOK_SECONDS)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        port = writer.get_extra_info("peername")[1]
        turn = next(self._turn)
        count = len(self.targets)
        ordered = [self.targets[(turn + step) % count] for step in range(count)]
        for target in ordered:
            if target.name not in self.ready:
                continue
            try:
                back = await asyncio.open_connection("127.0.0.1", target.port)
            except OSError:
                # Nothing was sent yet.
                self.ready.discard(target.name)
                continue
            self.served[port] = target.name
            await asyncio.gather(self._pump(reader, back[1]), self._pump(back[0], writer))
            break
        for one in [writer] + ([back[1]] if port in self.served else []):
            with contextlib.suppress(OSError, RuntimeError):
                one.close()

    @staticmethod
    async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while part := await reader.read(CHUNK):
                writer.write(part)
                await writer.drain()
        except OSError:
            abort(writer)
        finally:
            # Either end closes both.
            with contextlib.suppress(OSError, RuntimeError):
                writer.close()
