// Two users sign in at the real `oidc-provider`, and call an MCP server in their own names.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Peer, Service, note, signIn, stopAll } from './world.mjs';

let peer;
let service;
const call = (user) => service.whoami('tickets', user);

before(async () => {
  peer = await Peer.start('peer.mjs');
  service = await Service.start({ tickets: { type: 'http', url: peer.resource, auth: 'oauth' } });
});
after(stopAll);

test('two users call in their own names, with one refresh for many calls', async () => {
  const { body: known } = await service.request('/v1/connections', { user: 'anna' });
  assert.equal(known.connections[0].connection, 'sign_in');
  await signIn(service.url, 'anna', known.link, 'tickets');
  const answer = await service.firstAnswer('tickets', 'anna');
  assert.deepEqual([answer.status, answer.body.sub], [200, 'anna'], JSON.stringify(answer));

  const refused = await call('bob');
  assert.deepEqual([refused.status, refused.body.code], [403, 'sign_in_needed']);
  await signIn(service.url, 'bob', refused.body.sign_in_url, 'tickets');
  assert.equal((await call('bob')).body.sub, 'bob');
  assert.equal((await call('anna')).body.sub, 'anna');

  for (const round of [1, 2]) {
    await peer.control('expire', 'POST');
    const answers = await Promise.all(Array.from({ length: 20 }, () => call('anna')));
    assert.ok(answers.every(({ body }) => body.sub === 'anna'), JSON.stringify(answers[0]));
    assert.equal((await peer.control('counts')).refreshed, round);
  }
});

test('a revoked sign-in gives a link, and the tools stay listed', async () => {
  const tools = async () => Object.keys((await service.request('/tickets/openapi.json', { user: 'anna' })).body.paths);
  const before = await tools();
  assert.ok(before.includes('/whoami'), before.join());
  await peer.control('revoke', 'POST');
  const refused = await call('anna');
  assert.deepEqual([refused.status, refused.body.code], [403, 'sign_in_needed'], JSON.stringify(refused));
  assert.deepEqual(await tools(), before);
  for (const user of ['anna', 'bob']) {
    await signIn(service.url, user, (await call(user)).body.sign_in_url, 'tickets');
    assert.equal((await call(user)).body.sub, user);
  }
});

test('a user who leaves is signed out at the provider', async () => {
  const { body } = await service.admin('/v1/admin/secrets/user%3Aanna', { method: 'DELETE' });
  assert.equal(body.sign_ins, 1);
  assert.ok((await peer.control('counts')).revoked > 0);
  assert.equal((await call('anna')).body.code, 'sign_in_needed');
  assert.equal((await call('bob')).body.sub, 'bob');
});

test('no token, code or secret is in a log, the audit log, an answer or readable in the data', async () => {
  const issued = await peer.control('issued');
  note(`${issued.length} tokens, codes and secrets are in none of ${await service.assertKeepsSecret(issued)} places`);
});
