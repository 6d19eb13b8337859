"""A small tool server that has nothing to do with Toolsieve: its tool must never be taken away."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOOL = "tell_the_weather"
DOCUMENT = {
    "openapi": "3.1.0",
    "info": {"title": "Weather", "version": "1"},
    "paths": {
        "/weather": {
            "post": {
                "operationId": TOOL,
                "description": "Tells the weather in a city",
                "requestBody": {
                    "content": {
                        "application/json": {"schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
                    }
                },
                "responses": {"200": {"description": "The weather"}},
            }
        }
    },
}


class WeatherServer:
    def __init__(self) -> None:
        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._send(DOCUMENT)

            def do_POST(self) -> None:
                self.rfile.read(int(self.headers.get("Content-Length") or 0))
                self._send({"weather": "sunny"})

            def _send(self, value: object) -> None:
                raw = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(raw)))
                self.end_headers()
                self.wfile.write(raw)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()
