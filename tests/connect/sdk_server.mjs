// An MCP server with sign-ins of the official TypeScript SDK, whose router is also the authorization server. Prints the address of both.
// What the SDK leaves to its users is here: a sign-in form, and tokens in memory that last an hour. Refresh tokens are used once. Its
// own example of a provider refreshes no tokens.
// Below `/control/`: `expire` ends all access tokens, `counts` says how often clients were registered and tokens were refreshed and
// revoked, and `issued` lists every token, code and secret.
import { randomBytes } from 'node:crypto';
import express from 'express';
import { InvalidGrantError, InvalidTokenError } from '@modelcontextprotocol/sdk/server/auth/errors.js';
import { requireBearerAuth } from '@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js';
import { getOAuthProtectedResourceMetadataUrl, mcpAuthRouter } from '@modelcontextprotocol/sdk/server/auth/router.js';
import { createMcpExpressApp } from '@modelcontextprotocol/sdk/server/express.js';
import { McpServer } from '@modelcontextprotocol/sdk/server/mcp.js';
import { StreamableHTTPServerTransport } from '@modelcontextprotocol/sdk/server/streamableHttp.js';

const SCOPE = 'read';
const SECONDS = 3600;

class Provider {
  clients = new Map();
  requests = new Map();
  codes = new Map();
  access = new Map();
  refresh = new Map();
  issued = [];
  counts = { registered: 0, refreshed: 0, revoked: 0 };

  clientsStore = {
    getClient: (id) => this.clients.get(id),
    registerClient: (client) => {
      this.clients.set(client.client_id, client);
      this.counts.registered += 1;
      if (client.client_secret) this.issued.push(client.client_secret);
      return client;
    },
  };

  #new() {
    const text = randomBytes(32).toString('base64url');
    this.issued.push(text);
    return text;
  }

  async authorize(client, params, response) {
    const request = randomBytes(16).toString('base64url');
    this.requests.set(request, { client, params });
    response.type('html').send(`<!doctype html><title>Sign in</title><form method="post" action="/login">
<input type="hidden" name="request" value="${request}"><input name="login"><input name="password" type="password"><button>Sign in</button></form>`);
  }

  /** Where the person goes who has signed in. */
  signIn(request, sub) {
    const { client, params } = this.requests.get(request);
    this.requests.delete(request);
    const code = this.#new();
    this.codes.set(code, { clientId: client.client_id, scopes: params.scopes, resource: params.resource, sub, challenge: params.codeChallenge });
    const to = new URL(params.redirectUri);
    to.searchParams.set('code', code);
    if (params.state) to.searchParams.set('state', params.state);
    return to.href;
  }

  async challengeForAuthorizationCode(client, code) {
    const known = this.codes.get(code);
    if (known?.clientId !== client.client_id) throw new InvalidGrantError('unknown code');
    return known.challenge;
  }

  async exchangeAuthorizationCode(client, code) {
    const known = this.codes.get(code);
    this.codes.delete(code);
    return this.#tokens(known);
  }

  async exchangeRefreshToken(client, text) {
    const known = this.refresh.get(text);
    if (known?.clientId !== client.client_id) throw new InvalidGrantError('unknown refresh token');
    this.refresh.delete(text);
    this.counts.refreshed += 1;
    return this.#tokens(known);
  }

  async verifyAccessToken(token) {
    const known = this.access.get(token);
    if (!known) throw new InvalidTokenError('unknown token');
    return { token, ...known, extra: { sub: known.sub } };
  }

  async revokeToken(client, { token }) {
    const { sub } = this.refresh.get(token) ?? this.access.get(token) ?? {};
    if (!sub) return;
    this.counts.revoked += 1;
    for (const kept of [this.access, this.refresh]) for (const [text, other] of kept) if (other.sub === sub) kept.delete(text);
  }

  #tokens({ clientId, scopes, resource, sub }) {
    const of = { clientId, scopes, resource, sub };
    const [access, refresh] = [this.#new(), this.#new()];
    this.access.set(access, { ...of, expiresAt: Math.floor(Date.now() / 1000) + SECONDS });
    this.refresh.set(refresh, of);
    return { access_token: access, token_type: 'bearer', expires_in: SECONDS, refresh_token: refresh, scope: scopes.join(' ') };
  }
}

const provider = new Provider();
const app = createMcpExpressApp();
const listening = app.listen(0, '127.0.0.1');
await new Promise((done) => listening.once('listening', done));
const issuer = `http://127.0.0.1:${listening.address().port}`;
const resource = new URL(`${issuer}/mcp`);

app.use(mcpAuthRouter({ provider, issuerUrl: new URL(issuer), resourceServerUrl: resource, scopesSupported: [SCOPE] }));
const signedIn = requireBearerAuth({
  verifier: provider, requiredScopes: [SCOPE], resourceMetadataUrl: getOAuthProtectedResourceMetadataUrl(resource), expectedResource: resource,
});
app.post('/mcp', signedIn, async (request, response) => {
  const server = new McpServer({ name: 'tickets', version: '1' });
  server.registerTool('whoami', { description: 'Tells in whose name the call comes' }, ({ authInfo }) => ({
    content: [], structuredContent: { sub: authInfo.extra.sub, scope: authInfo.scopes.join(' ') },
  }));
  const transport = new StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
  response.on('close', () => server.close());
  await server.connect(transport);
  await transport.handleRequest(request, response, request.body);
});
app.post('/login', express.urlencoded(), (request, response) => response.redirect(provider.signIn(request.body.request, request.body.login)));
app.all('/control/:action', (request, response) => {
  if (request.params.action === 'expire') provider.access.clear();
  response.json({ counts: provider.counts, issued: provider.issued }[request.params.action] ?? {});
});
console.log(JSON.stringify({ resource: resource.href, issuer }));
