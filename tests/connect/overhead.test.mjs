// Measures what a call in a user's name costs beside one with a fixed header: the same tool of the same server, by turns. Run it on an
// idle machine, because it fails above the goal.
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { Peer, Service, note, signIn, stopAll } from './world.mjs';

const CALLS = 3000;
const WARM = 300;
/** Microseconds that a valid token may cost. */
const GOAL = 50;

after(stopAll);

const median = (values) => values.toSorted((a, b) => a - b)[Math.floor(values.length / 2)];

/** The access token that the MCP server accepts, of all that was issued. */
async function accessToken(peer) {
  const params = { protocolVersion: '2025-11-25', capabilities: {}, clientInfo: { name: 'overhead', version: '1' } };
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'initialize', params });
  for (const token of (await peer.control('issued')).toReversed()) {
    const headers = { authorization: `Bearer ${token}`, 'content-type': 'application/json', accept: 'application/json, text/event-stream' };
    const { ok } = await fetch(peer.resource, { method: 'POST', headers, body });
    if (ok) return token;
  }
  return assert.fail('the server accepts none of the tokens');
}

test('calls by turns', { timeout: 300_000 }, async () => {
  const peer = await Peer.start('peer.mjs');
  const quiet = { TOOLSIEVE_LOGGING__LEVEL: 'warn', TOOLSIEVE_TELEMETRY__ENDPOINT: '', TOOLSIEVE_TELEMETRY__CAPTURE_CONTENT: 'false' };
  const signedIn = await Service.start({ tickets: { type: 'http', url: peer.resource, auth: 'oauth' } }, quiet);
  const { body: known } = await signedIn.request('/v1/connections', { user: 'anna' });
  await signIn(signedIn.url, 'anna', known.link, 'tickets');
  await signedIn.firstAnswer('tickets', 'anna');
  const headers = { authorization: `Bearer ${await accessToken(peer)}` };
  const fixed = await Service.start({ tickets: { type: 'http', url: peer.resource, headers } }, quiet);
  await fixed.firstAnswer('tickets', 'anna');

  const times = new Map([[signedIn, []], [fixed, []]]);
  for (let call = 0; call < WARM + CALLS; call += 1) {
    const turn = call % 2 ? [...times] : [...times].reverse();
    for (const [service, taken] of turn) {
      const began = process.hrtime.bigint();
      const { status } = await service.whoami('tickets', 'anna');
      const took = Number(process.hrtime.bigint() - began) / 1e3;
      assert.equal(status, 200);
      if (call >= WARM) taken.push(took);
    }
  }
  const [own, shared] = [...times.values()];
  const differences = own.map((took, call) => took - shared[call]);
  note(`${CALLS} calls each: ${median(own).toFixed(0)} µs in a user's name, ${median(shared).toFixed(0)} µs with a fixed header`);
  note(`median of the differences: ${median(differences).toFixed(0)} µs`);
  assert.ok(median(differences) <= GOAL);
});
