// A client with one of both TypeScript SDKs. See sdk_sessions.py for what it does.
import { createInterface } from 'node:readline';

const [sdk, url, key, era, name] = process.argv.slice(2);
const TOOL = 'ledger__write_entry';

async function load() {
  if (sdk === 'client') return import('@modelcontextprotocol/client');
  const [{ Client }, { StreamableHTTPClientTransport }] = await Promise.all([
    import('@modelcontextprotocol/sdk/client/index.js'),
    import('@modelcontextprotocol/sdk/client/streamableHttp.js'),
  ]);
  return { Client, StreamableHTTPClientTransport };
}

const { Client, StreamableHTTPClientTransport } = await load();
const tell = (step) => console.log(JSON.stringify(step));

async function connect() {
  const mode = era === 'older' ? 'legacy' : 'auto';
  const client = new Client({ name, version: '1' }, sdk === 'client' ? { versionNegotiation: { mode } } : {});
  // The stream for notifications breaks off with the replica.
  client.onerror = () => {};
  const headers = { Authorization: `Bearer ${key}` };
  const transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } });
  await client.connect(transport);
  tell({ session: transport.sessionId ?? '' });
  return client;
}

async function attempt(client, id) {
  try {
    const { content } = await client.callTool({ name: TOOL, arguments: { id } });
    tell({ text: content[0].text });
  } catch (error) {
    tell({ error: error.constructor.name, code: error.status ?? error.code ?? null, message: error.message });
  }
}

const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const first = await connect();
for (const step of ['first', 'second', 'third']) {
  await attempt(first, `${name}-${step}`);
  await lines.next();
}
await first.close();
const second = await connect();
await attempt(second, `${name}-fourth`);
await second.close();
process.exit(0);
