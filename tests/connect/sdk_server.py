"""
An MCP server with sign-ins of the official Python SDK, and an authorization server with the routes of the same SDK. The
authorization server has a port of its own, so it is another program to a client. Prints the addresses of both.

What the SDK leaves to its users is here: a sign-in form, and tokens in memory that last an hour. Refresh tokens are
used once. Below `/control/` of the issuer: `expire` ends all access tokens, `counts` says how often clients were
registered and tokens were refreshed and revoked, and `issued` lists every token, code and secret.
"""

import asyncio
import json
import secrets
import socket
import time
from collections import Counter
from typing import Any
from urllib.parse import urlencode

import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import (
    AccessToken,
    AuthorizationCode,
    AuthorizationParams,
    OAuthAuthorizationServerProvider,
    RefreshToken,
    TokenError,
    construct_redirect_uri,
)
from mcp.server.auth.routes import create_auth_routes
from mcp.server.auth.settings import AuthSettings, ClientRegistrationOptions, RevocationOptions
from mcp.server.mcpserver import MCPServer
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from pydantic import AnyHttpUrl
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

SCOPE = "read"
SECONDS = 3600
FORM = """<!doctype html><title>Sign in</title><form method="post" action="/login">
<input type="hidden" name="request" value="{request}"><input name="login"><input name="password" type="password">
<button>Sign in</button></form>"""


class Provider(OAuthAuthorizationServerProvider[AuthorizationCode, RefreshToken, AccessToken]):
    """Clients, requests, codes and tokens, all in memory."""

    def __init__(self, issuer: str) -> None:
        self.issuer = issuer
        self.clients: dict[str, OAuthClientInformationFull] = {}
        self.requests: dict[str, tuple[str, AuthorizationParams]] = {}
        self.codes: dict[str, AuthorizationCode] = {}
        self.access: dict[str, AccessToken] = {}
        self.refresh: dict[str, RefreshToken] = {}
        self.issued: list[str] = []
        self.counts: Counter[str] = Counter(registered=0, refreshed=0, revoked=0)

    def new(self) -> str:
        text = secrets.token_urlsafe(32)
        self.issued.append(text)
        return text

    async def get_client(self, client_id: str) -> OAuthClientInformationFull | None:
        return self.clients.get(client_id)

    async def register_client(self, client_info: OAuthClientInformationFull) -> None:
        assert client_info.client_id
        self.clients[client_info.client_id] = client_info
        self.counts["registered"] += 1
        if client_info.client_secret:
            self.issued.append(client_info.client_secret)

    async def authorize(self, client: OAuthClientInformationFull, params: AuthorizationParams) -> str:
        request = secrets.token_urlsafe(16)
        self.requests[request] = (client.client_id or "", params)
        return f"{self.issuer}/login?{urlencode({'request': request})}"

    def sign_in(self, request: str, subject: str) -> str:
        """Where the person goes who has signed in."""
        client_id, params = self.requests.pop(request)
        code = AuthorizationCode(
            code=self.new(),
            scopes=params.scopes or [SCOPE],
            expires_at=time.time() + 60,
            client_id=client_id,
            code_challenge=params.code_challenge,
            redirect_uri=params.redirect_uri,
            redirect_uri_provided_explicitly=params.redirect_uri_provided_explicitly,
            resource=params.resource,
            subject=subject,
        )
        self.codes[code.code] = code
        return construct_redirect_uri(str(params.redirect_uri), code=code.code, state=params.state)

    async def load_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: str
    ) -> AuthorizationCode | None:
        return self.codes.get(authorization_code)

    async def exchange_authorization_code(
        self, client: OAuthClientInformationFull, authorization_code: AuthorizationCode
    ) -> OAuthToken:
        del self.codes[authorization_code.code]
        return self._tokens(authorization_code, authorization_code.scopes)

    async def load_refresh_token(self, client: OAuthClientInformationFull, refresh_token: str) -> RefreshToken | None:
        return self.refresh.get(refresh_token)

    async def exchange_refresh_token(
        self, client: OAuthClientInformationFull, refresh_token: RefreshToken, scopes: list[str]
    ) -> OAuthToken:
        if self.refresh.pop(refresh_token.token, None) is None:
            raise TokenError("invalid_grant")
        self.counts["refreshed"] += 1
        return self._tokens(refresh_token, scopes)

    async def load_access_token(self, token: str) -> AccessToken | None:
        return self.access.get(token)

    async def verify_token(self, token: str) -> AccessToken | None:
        """As the MCP server asks."""
        return self.access.get(token)

    async def revoke_token(self, token: AccessToken | RefreshToken) -> None:
        self.counts["revoked"] += 1
        for kept in (self.access, self.refresh):
            for text in [text for text, other in kept.items() if other.subject == token.subject]:
                del kept[text]

    def _tokens(self, of: AuthorizationCode | RefreshToken, scopes: list[str]) -> OAuthToken:
        owner: dict[str, Any] = {"client_id": of.client_id, "resource": of.resource, "subject": of.subject}
        expires_at = int(time.time()) + SECONDS
        access = AccessToken(token=self.new(), scopes=scopes, expires_at=expires_at, **owner)
        refresh = RefreshToken(token=self.new(), scopes=scopes, **owner)
        self.access[access.token], self.refresh[refresh.token] = access, refresh
        scope = " ".join(scopes)
        return OAuthToken(access_token=access.token, refresh_token=refresh.token, expires_in=SECONDS, scope=scope)

    async def login(self, request: Request) -> Response:
        if request.method == "GET":
            return HTMLResponse(FORM.format(request=request.query_params["request"]))
        form = await request.form()
        return RedirectResponse(self.sign_in(str(form["request"]), str(form["login"])), status_code=302)

    async def control(self, request: Request) -> Response:
        match request.path_params["action"]:
            case "expire":
                self.access.clear()
                return JSONResponse({})
            case "counts":
                return JSONResponse(dict(self.counts))
            case _:
                return JSONResponse(self.issued)


def whoami() -> dict[str, Any]:
    """Tells in whose name the call comes."""
    token = get_access_token()
    assert token
    return {"sub": token.subject, "scope": " ".join(token.scopes)}


def listener() -> tuple[socket.socket, str]:
    opened = socket.create_server(("127.0.0.1", 0))
    return opened, f"http://127.0.0.1:{opened.getsockname()[1]}"


async def main() -> None:
    mcp_socket, mcp_url = listener()
    issuer_socket, issuer = listener()
    provider = Provider(issuer)
    resource = f"{mcp_url}/mcp"
    settings = AuthSettings(
        issuer_url=AnyHttpUrl(issuer),
        resource_server_url=AnyHttpUrl(resource),
        required_scopes=[SCOPE],
        validate_token_resource=True,
    )
    server = MCPServer("tickets", auth=settings, token_verifier=provider)
    server.tool()(whoami)
    authorization_server = Starlette(
        routes=[
            *create_auth_routes(
                provider,
                AnyHttpUrl(issuer),
                client_registration_options=ClientRegistrationOptions(enabled=True, valid_scopes=[SCOPE]),
                revocation_options=RevocationOptions(enabled=True),
            ),
            Route("/login", provider.login, methods=["GET", "POST"]),
            Route("/control/{action}", provider.control, methods=["GET", "POST"]),
        ]
    )
    print(json.dumps({"resource": resource, "issuer": issuer}), flush=True)
    programs = ((server.streamable_http_app(), mcp_socket), (authorization_server, issuer_socket))
    servers = (uvicorn.Server(uvicorn.Config(app, log_level="warning")).serve([opened]) for app, opened in programs)
    await asyncio.gather(*servers)


if __name__ == "__main__":
    asyncio.run(main())
