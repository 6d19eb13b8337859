"""A small HTTP client for asyncio, which tells apart what was sent, answered and broken off."""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

PATIENCE_SECONDS = 45.0


class BrokenError(Exception):
    """A request without a complete response. `port` is the client's port, if a connection was open."""

    def __init__(self, reason: str, port: int | None) -> None:
        super().__init__(reason)
        self.port = port


@dataclass
class Response:
    status: int
    headers: dict[str, str]
    body: bytes

    def json(self) -> Any:
        try:
            return json.loads(self.body)
        except ValueError:
            return self.body.decode(errors="replace")

    @property
    def replica(self) -> str:
        return self.headers.get("x-toolsieve-replica", "")

    @property
    def state(self) -> int:
        """The number of the last change in the replica's state; -1 if the response doesn't contain it."""
        return int(self.headers.get("x-toolsieve-state", "-1"))

    @property
    def is_fine(self) -> bool:
        return 200 <= self.status < 300


class Client:
    """One connection that stays open, as that of Open WebUI. Only one request at a time."""

    def __init__(self, port: int, key: str = "", source: str | None = None) -> None:
        self.port, self.key, self.source = port, key, source
        self._stream: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        patience: float = PATIENCE_SECONDS,
    ) -> Response:
        """Sends a request once.

        A connection that the service has closed before is replaced. The service closes its idle connections when it
        stops, and a request may cross with that. HTTP clients repeat such a request if it is safe to repeat (RFC 9110,
        9.2.2), and this one does the same.
        """
        is_safe = method == "GET" or path == "/v1/filter" or path.startswith("/v1/tools/search")
        for is_last in (not is_safe, True):
            is_reused = self._stream is not None and not self._stream[0].at_eof()
            try:
                async with asyncio.timeout(patience):
                    return await self._once(method, path, body, key, headers or {})
            except TimeoutError:
                port = self._local_port()
                self.close()
                raise BrokenError(f"no response within {patience:.0f} s", port) from None
            except (OSError, asyncio.IncompleteReadError, ValueError) as error:
                port = self._local_port()
                self.close()
                if is_last or not is_reused or not isinstance(error, asyncio.IncompleteReadError | ConnectionError):
                    raise BrokenError(f"{type(error).__name__}: {error}", port) from None
        raise AssertionError("unreachable")

    def close(self) -> None:
        if self._stream:
            with contextlib.suppress(OSError, RuntimeError):
                self._stream[1].close()
            self._stream = None

    def _local_port(self) -> int | None:
        if not self._stream:
            return None
        name = self._stream[1].get_extra_info("sockname")
        return int(name[1]) if name else None

    async def _once(self, method: str, path: str, body: Any, key: str | None, headers: Mapping[str, str]) -> Response:
        if self._stream and (self._stream[0].at_eof() or self._stream[1].is_closing()):
            self.close()
        if not self._stream:
            address = (self.source, 0) if self.source else None
            self._stream = await asyncio.open_connection("127.0.0.1", self.port, local_addr=address, limit=1 << 22)
        reader, writer = self._stream
        text = b"" if body is None else json.dumps(body).encode()
        head = [
            f"{method} {path} HTTP/1.1",
            "Host: localhost",
            "Accept: application/json, text/event-stream",
            f"Content-Length: {len(text)}",
        ]
        head += [f"{name}: {value}" for name, value in headers.items()]
        if text:
            head.append("Content-Type: application/json")
        if secret := self.key if key is None else key:
            head.append(f"Authorization: Bearer {secret}")
        writer.write("\r\n".join([*head, "", ""]).encode() + text)
        await writer.drain()
        response = await read_response(reader)
        if response.headers.get("connection", "").lower() == "close":
            self.close()
        return response


async def read_response(reader: asyncio.StreamReader) -> Response:
    line, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    status = int(line.split(" ", 2)[1])
    headers = {name.lower(): value.strip() for name, _, value in (one.partition(":") for one in lines) if name}
    if headers.get("transfer-encoding", "").lower() == "chunked":
        body = b""
        while size := int((await reader.readline()).split(b";")[0], 16):
            body += (await reader.readexactly(size + 2))[:-2]
        await reader.readline()
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Response(status, headers, body)
