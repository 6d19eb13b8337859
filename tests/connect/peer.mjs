// The certified authorization server `oidc-provider`, and an MCP server that accepts its tokens. Prints the addresses of both.
//   ACCESS_SECONDS   how long access tokens last; an hour by default
//   GRACE_SECONDS    how long a used refresh token is accepted again; by default its reuse ends the sign-in at once
//   ANSWER_MS        the longest delay of a token response after the tokens were issued
//   CHAT_SECRET      with it, the client `gateway` may exchange users' tokens (RFC 8693) that are signed with this secret, as Open WebUI
//                    signs them; the client's own secret is GATEWAY_SECRET
// Below `/control/` of the issuer: `expire` ends all access tokens, `revoke` all tokens, `hold` keeps token responses back until `release`,
// `issued` lists every token, code and secret, and `counts` says how often codes were exchanged, tokens were refreshed and revoked, used
// refresh tokens came back, users' tokens were exchanged, and the client had gone before the answer.
import { createServer } from 'node:http';
import { setTimeout as sleep } from 'node:timers/promises';
import { jwtVerify } from 'jose';
import { Provider, errors } from 'oidc-provider';

const mcp = createServer();
await new Promise((done) => mcp.listen(0, '127.0.0.1', done));
const resource = `http://127.0.0.1:${mcp.address().port}/mcp`;
const server = createServer();
await new Promise((done) => server.listen(0, '127.0.0.1', done));
const issuer = `http://127.0.0.1:${server.address().port}`;

const { ACCESS_SECONDS = '3600', GRACE_SECONDS, ANSWER_MS = '0', CHAT_SECRET, GATEWAY_SECRET } = process.env;
const EXCHANGE = 'urn:ietf:params:oauth:grant-type:token-exchange';
const ACCESS_TOKEN = 'urn:ietf:params:oauth:token-type:access_token';
const JWT = 'urn:ietf:params:oauth:token-type:jwt';
const accessTokenTTL = Number(ACCESS_SECONDS);
const tokens = new Map();
const refreshTokens = new Set();
const issued = new Set();
const counts = { exchanged: 0, refreshed: 0, revoked: 0, reused: 0, onBehalf: 0, lost: 0 };
const gateway = { client_id: 'gateway', client_secret: GATEWAY_SECRET, grant_types: [EXCHANGE], redirect_uris: [], response_types: [] };
let held;
const provider = new Provider(issuer, {
  clients: CHAT_SECRET ? [gateway] : [],
  scopes: ['openid', 'offline_access', 'read'],
  pkce: { required: () => true },
  rotateRefreshToken: true,
  issueRefreshToken: async () => true,
  ttl: { AccessToken: accessTokenTTL, RefreshToken: 86400, Session: 3600, Grant: 86400, Interaction: 600, IdToken: 600 },
  findAccount: async (_, id) => ({ accountId: id, claims: async () => ({ sub: id }) }),
  features: {
    devInteractions: { enabled: true },
    registration: { enabled: true },
    revocation: { enabled: true },
    resourceIndicators: {
      enabled: true,
      useGrantedResource: async () => true,
      getResourceServerInfo: async (_, indicator) => {
        if (indicator !== resource) throw new Error('another resource');
        return { scope: 'read', audience: resource, accessTokenFormat: 'opaque' };
      },
    },
  },
});
if (CHAT_SECRET) {
  const named = ['subject_token', 'subject_token_type', 'requested_token_type', 'resource', 'audience', 'scope'];
  provider.registerGrantType(EXCHANGE, exchange, named, ['resource', 'audience']);
}
provider.on('access_token.saved', (token) => tokens.set(token.jti, token));
provider.on('access_token.issued', (token) => tokens.set(token.jti, token));
provider.on('refresh_token.saved', (token) => refreshTokens.add(token));
provider.on('grant.success', (context) => {
  const kinds = { refresh_token: 'refreshed', [EXCHANGE]: 'onBehalf' };
  counts[kinds[context.oidc.params.grant_type] ?? 'exchanged'] += 1;
});
provider.on('grant.revoked', () => { counts.revoked += 1; });
provider.on('grant.error', (_, error) => {
  if (error.error_detail === 'refresh token already used') counts.reused += 1;
});
if (GRACE_SECONDS) {
  const { consume } = provider.RefreshToken.prototype;
  provider.RefreshToken.prototype.consume = async function consumeLater() {
    setTimeout(() => consume.call(this).catch(() => {}), Number(GRACE_SECONDS) * 1000).unref();
  };
}
provider.use(async (context, next) => {
  await next();
  const { access_token, refresh_token, id_token, client_secret, registration_access_token } = context.body ?? {};
  const [, code] = (context.response.get('location') ?? '').match(/[?&]code=([^&]+)/) ?? [];
  const verifier = context.oidc?.params?.code_verifier;
  for (const text of [access_token, refresh_token, id_token, client_secret, registration_access_token, code, verifier]) {
    if (text) issued.add(text);
  }
  if (!access_token) return;
  if (held) await held.promise;
  await sleep(Math.random() * Number(ANSWER_MS));
  if (context.req.socket.destroyed) counts.lost += 1;
});

/** Exchanges the token of a user of the chat application for one for the MCP server. */
async function exchange(context) {
  const { params, client } = context.oidc;
  if (params.subject_token_type !== JWT || params.requested_token_type !== ACCESS_TOKEN) throw new errors.InvalidRequest('another type');
  if (params.resource !== resource || (params.audience && params.audience !== 'tickets')) throw new errors.InvalidTarget();
  const key = new TextEncoder().encode(CHAT_SECRET);
  const { payload } = await jwtVerify(params.subject_token, key, { issuer: 'open-webui', algorithms: ['HS256'] }).catch((error) => {
    throw new errors.InvalidGrant(error.message);
  });
  const grant = new provider.Grant({ accountId: payload.sub, clientId: client.clientId });
  grant.addResourceScope(resource, 'read');
  const token = new provider.AccessToken({ accountId: payload.sub, client, grantId: await grant.save(), gty: EXCHANGE, scope: 'read' });
  token.resourceServer = new provider.ResourceServer(resource, { scope: 'read', audience: resource, accessTokenFormat: 'opaque' });
  const access_token = await token.save();
  context.body = { access_token, issued_token_type: ACCESS_TOKEN, token_type: 'Bearer', expires_in: token.expiration, scope: 'read' };
}

const control = {
  async expire() {
    await Promise.all([...tokens.values()].map((token) => token.destroy()));
    tokens.clear();
  },
  async revoke() {
    await control.expire();
    await Promise.all([...refreshTokens].map((token) => token.destroy()));
  },
  hold() {
    held = Promise.withResolvers();
  },
  release() {
    held?.resolve();
    held = undefined;
  },
  counts: () => counts,
  issued: () => [...issued],
};
const callback = provider.callback();
server.on('request', async (request, response) => {
  if (!request.url.startsWith('/control/')) return callback(request, response);
  return answer(response, 200, await control[request.url.slice('/control/'.length)]() ?? {});
});

async function body(request) {
  let text = '';
  for await (const chunk of request) text += chunk;
  return text;
}

function answer(response, status, value, headers = {}) {
  response.writeHead(status, { 'content-type': 'application/json', ...headers }).end(value === undefined ? '' : JSON.stringify(value));
}

async function serve(request, response) {
  const text = await body(request);
  const challenge = { 'www-authenticate': `Bearer resource_metadata="${resource.replace('/mcp', '/.well-known/oauth-protected-resource/mcp')}"` };
  const [, value] = (request.headers.authorization ?? '').match(/^Bearer (.+)$/) ?? [];
  const token = value && await provider.AccessToken.find(value);
  if (!token?.isValid || ![token.aud].flat().includes(resource)) return answer(response, 401, undefined, challenge);
  const message = JSON.parse(text);
  const reply = (result) => answer(response, 200, { jsonrpc: '2.0', id: message.id, result });
  if (message.id === undefined) return answer(response, 202);
  switch (message.method) {
    case 'initialize':
      return reply({ protocolVersion: '2025-06-18', capabilities: { tools: {} }, serverInfo: { name: 'tickets', version: '1' } });
    case 'tools/list':
      return reply({ tools: [{ name: 'whoami', description: 'Tells who calls', inputSchema: { type: 'object' } }] });
    case 'tools/call':
      return reply({ content: [], structuredContent: { sub: token.accountId, scope: token.scope } });
    default:
      return answer(response, 200, { jsonrpc: '2.0', id: message.id, error: { code: -32601, message: 'no' } });
  }
}

mcp.on('request', async (request, response) => {
  if (request.url === '/mcp' && request.method === 'POST') return serve(request, response);
  if (request.url === '/.well-known/oauth-protected-resource/mcp') {
    return answer(response, 200, { resource, authorization_servers: [issuer], scopes_supported: ['read'] });
  }
  return answer(response, 404);
});
console.log(JSON.stringify({ resource, issuer }));
