"""A small tool server that has nothing to do with Toolsieve: its tool must never be taken away."""

from serving import Exchange, LocalServer

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


class WeatherServer(LocalServer):
    def __init__(self) -> None:
        class Handler(Exchange):
            def answer(self) -> None:
                self.body()
                self.send_json(DOCUMENT if self.command == "GET" else {"weather": "sunny"})

        super().__init__(Handler)
