// The official MCP Inspector, by its command line, with a named key: it gets the link, the person signs in, and the call succeeds. The
// official client for TypeScript supports the elicitation of a URL, and gets the link so.
import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client';
import { Peer, Service, note, signIn, stopAll } from './world.mjs';

const INSPECTOR = new URL('node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js', import.meta.url).pathname;
let peer;
let service;
/** Everything that the Inspector printed. */
let printed = '';

before(async () => {
  peer = await Peer.start('sdk_server.mjs');
  service = await Service.start({ tickets: { type: 'http', url: peer.resource, auth: 'oauth' } });
  // Servers like this one list their tools only for signed-in users. Somebody else has signed in before.
  const { body } = await service.request('/v1/connections', { user: 'first' });
  await signIn(service.url, 'first', body.link, 'tickets');
  assert.equal((await service.firstAnswer('tickets', 'first')).body.sub, 'first');
});
after(stopAll);

/** Runs the Inspector with a home folder of its own. */
async function inspect(key, era, ...method) {
  const home = mkdtempSync(join(process.env.CONNECT_WORK, 'inspector-'));
  const server = ['--server-url', `${service.url}/mcp?mode=full`, '--transport', 'http', '--header', `Authorization: Bearer ${key}`];
  const program = spawn(process.execPath, [INSPECTOR, '--cli', ...server, '--stored-auth-only', '--protocol-era', era, '--method', ...method], {
    env: { ...process.env, HOME: home }, stdio: ['ignore', 'pipe', 'pipe'],
  });
  let text = '';
  for (const stream of [program.stdout, program.stderr]) stream.on('data', (chunk) => { text += chunk; });
  const code = await new Promise((done) => program.once('close', done));
  printed += text;
  return { code, text };
}

for (const era of ['legacy', 'modern']) {
  test(`${era}: the Inspector gets the link, and calls after the sign-in`, async () => {
    const { body: { key: secret } } = await service.admin('/v1/admin/keys', { body: { name: `inspector-${era}` } });
    const listed = await inspect(secret, era, 'tools/list');
    assert.equal(listed.code, 0, listed.text);
    assert.match(listed.text, /"tickets__whoami"/);

    const call = ['tools/call', '--tool-name', 'tickets__whoami'];
    const refused = await inspect(secret, era, ...call);
    note(`${era}: exit code ${refused.code}, ${refused.text.trim().replaceAll(/\s+/g, ' ').slice(0, 600)}`);
    const [link] = refused.text.match(/http:\/\/localhost:\d+\/ui\/me\?link=[\w.~-]+/) ?? assert.fail(refused.text);
    await signIn(service.url, `of-${era}`, link, 'tickets');
    const done = await inspect(secret, era, ...call);
    assert.equal(done.code, 0, done.text);
    assert.match(done.text, new RegExp(`"sub": ?"of-${era}"`));
  });
}

/** A connected client with the key of a new name, and the way in which it shows a URL to its person. */
async function connected(name, mode, elicit) {
  const { body: { key } } = await service.admin('/v1/admin/keys', { body: { name } });
  const client = new Client({ name, version: '1' }, { capabilities: { elicitation: { url: {} } }, versionNegotiation: { mode } });
  client.setRequestHandler('elicitation/create', elicit);
  const headers = { authorization: `Bearer ${key}` };
  await client.connect(new StreamableHTTPClientTransport(new URL(`${service.url}/mcp?mode=full`), { requestInit: { headers } }));
  return client;
}

test('legacy: the client gets an error that requires an elicitation', async () => {
  const client = await connected('client-legacy', 'legacy', () => ({ action: 'decline' }));
  const call = () => client.callTool({ name: 'tickets__whoami', arguments: {} });
  const error = await call().then((result) => assert.fail(JSON.stringify(result)), (error) => error);
  assert.equal(error.code, -32042, String(error));
  const [{ mode, url }] = error.data.elicitations;
  assert.equal(mode, 'url');
  await signIn(service.url, 'of-the-client', url, 'tickets');
  assert.equal((await call()).structuredContent.sub, 'of-the-client');
  await client.close();
});

test('modern: the client shows the link, and repeats the call by itself', async () => {
  const asked = [];
  const client = await connected('client-modern', 'auto', async ({ params }) => {
    asked.push(params);
    await signIn(service.url, 'of-the-new-client', params.url, 'tickets');
    return { action: 'accept' };
  });
  const result = await client.callTool({ name: 'tickets__whoami', arguments: {} });
  assert.equal(result.structuredContent?.sub, 'of-the-new-client', JSON.stringify(result));
  assert.deepEqual(asked.map(({ mode }) => mode), ['url']);
  await client.close();
});

test('no token, code or secret is in a log, the audit log, an answer or readable in the data', async () => {
  const issued = await peer.control('issued');
  assert.equal(issued.find((text) => printed.includes(text)), undefined, 'the Inspector prints none');
  note(`${issued.length} tokens, codes and secrets are in none of ${await service.assertKeepsSecret(issued)} places`);
});
