// The certified authorization server `oidc-provider`, and an MCP server that accepts its tokens. Prints the ports of both.
// `POST /control/expire` ends all access tokens, and `GET /control/counts` says how often tokens were refreshed and revoked.
import { createServer } from 'node:http';
import { Provider } from 'oidc-provider';

const mcp = createServer();
await new Promise((done) => mcp.listen(0, '127.0.0.1', done));
const resource = `http://127.0.0.1:${mcp.address().port}/mcp`;
const server = createServer();
await new Promise((done) => server.listen(0, '127.0.0.1', done));
const issuer = `http://127.0.0.1:${server.address().port}`;

const tokens = new Map();
const counts = { refreshed: 0, revoked: 0 };
const provider = new Provider(issuer, {
  clients: [],
  scopes: ['openid', 'offline_access', 'read'],
  pkce: { required: () => true },
  rotateRefreshToken: true,
  issueRefreshToken: async () => true,
  ttl: { AccessToken: 3600, RefreshToken: 86400, Session: 3600, Grant: 86400, Interaction: 600, IdToken: 600 },
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
        return { scope: 'read', audience: resource, accessTokenFormat: 'opaque', accessTokenTTL: 3600 };
      },
    },
  },
});
provider.on('access_token.saved', (token) => tokens.set(token.jti, token));
provider.on('access_token.issued', (token) => tokens.set(token.jti, token));
provider.on('grant.success', (context) => {
  if (context.oidc.params.grant_type === 'refresh_token') counts.refreshed += 1;
});
provider.on('grant.revoked', () => { counts.revoked += 1; });
server.on('request', provider.callback());

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
  if (request.url === '/control/expire') {
    await Promise.all([...tokens.values()].map((token) => token.destroy()));
    tokens.clear();
    return answer(response, 200, {});
  }
  if (request.url === '/control/counts') return answer(response, 200, counts);
  return answer(response, 404);
});
console.log(JSON.stringify({ resource, issuer }));
