// MCP servers with the sign-ins of the official SDKs: discovery, registration, refresh and revocation go through the SDKs' own routes.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { Peer, Service, note, signIn, stopAll } from './world.mjs';

const SDKS = { python: 'sdk_server.py', typescript: 'sdk_server.mjs' };
const peers = {};
let service;

before(async () => {
  const started = await Promise.all(Object.values(SDKS).map((script) => Peer.start(script)));
  Object.keys(SDKS).forEach((name, at) => { peers[name] = started[at]; });
  const servers = Object.entries(peers).map(([name, peer]) => [name, { type: 'http', url: peer.resource, auth: 'oauth' }]);
  service = await Service.start(Object.fromEntries(servers));
});
after(stopAll);

for (const name of Object.keys(SDKS)) {
  test(`the ${name} SDK: users sign in, call in their own names, and stay signed in`, async () => {
    const { body: known } = await service.request('/v1/connections', { user: 'anna' });
    assert.equal(known.connections.find(({ server }) => server === name).connection, 'sign_in');
    await signIn(service.url, 'anna', known.link, name);
    const answer = await service.firstAnswer(name, 'anna');
    assert.deepEqual([answer.status, answer.body.sub, answer.body.scope], [200, 'anna', 'read'], JSON.stringify(answer));

    const refused = await service.whoami(name, 'bob');
    assert.deepEqual([refused.status, refused.body.code], [403, 'sign_in_needed']);
    assert.ok(refused.body.detail.includes(refused.body.sign_in_url), refused.body.detail);
    await signIn(service.url, 'bob', refused.body.sign_in_url, name);
    assert.equal((await service.whoami(name, 'bob')).body.sub, 'bob');
    assert.equal((await peers[name].control('counts')).registered, 1, 'both users sign in with the same client');

    for (const round of [1, 2]) {
      await peers[name].control('expire', 'POST');
      const answers = await Promise.all(Array.from({ length: 20 }, () => service.whoami(name, 'anna')));
      assert.ok(answers.every(({ body }) => body.sub === 'anna'), JSON.stringify(answers.find(({ body }) => body.sub !== 'anna')));
      assert.equal((await peers[name].control('counts')).refreshed, round);
    }
    await service.kill();
    await service.restart();
    assert.equal((await service.whoami(name, 'anna')).body.sub, 'anna');
  });
}

test('who leaves is signed out at both', async () => {
  const { body } = await service.admin('/v1/admin/secrets/user%3Aanna', { method: 'DELETE' });
  assert.equal(body.sign_ins, 2);
  for (const [name, peer] of Object.entries(peers)) {
    assert.ok((await peer.control('counts')).revoked > 0, name);
    assert.equal((await service.whoami(name, 'anna')).body.code, 'sign_in_needed');
    assert.equal((await service.whoami(name, 'bob')).status, 200);
  }
});

test('no token, code or secret is in a log, the audit log, an answer or readable in the data', async () => {
  const issued = (await Promise.all(Object.values(peers).map((peer) => peer.control('issued')))).flat();
  note(`${issued.length} tokens, codes and secrets are in none of ${await service.assertKeepsSecret(issued)} places`);
});
