// The token that Open WebUI forwards for each user is exchanged at the real `oidc-provider`, and each call carries its own `sub`.
import assert from 'node:assert/strict';
import { createHmac, randomBytes } from 'node:crypto';
import { after, before, test } from 'node:test';
import { Peer, Service, note, stopAll, until } from './world.mjs';

const HEADER = 'x-openwebui-user-jwt';
const CHAT_SECRET = randomBytes(32).toString('hex');
const GATEWAY_SECRET = randomBytes(32).toString('hex');
let peer;
let service;
/** Every token of a user. */
const tokens = [];

/** As Open WebUI signs users (`FORWARD_USER_INFO_HEADER_JWT_SECRET`): with HS256, for five minutes. */
function token(user, { secret = CHAT_SECRET, at = Math.floor(Date.now() / 1000) } = {}) {
  const part = (value) => Buffer.from(JSON.stringify(value)).toString('base64url');
  const claims = { sub: user, email: `${user}@example.org`, name: user, role: 'user', iss: 'open-webui', iat: at, exp: at + 300 };
  const signed = `${part({ alg: 'HS256', typ: 'JWT' })}.${part(claims)}`;
  const whole = `${signed}.${createHmac('sha256', secret).update(signed).digest('base64url')}`;
  tokens.push(whole);
  return whole;
}

const call = (given, server = 'tickets') => service.request(`/${server}/whoami`, { body: {}, headers: given ? { [HEADER]: given } : {} });
const exchanges = async () => (await peer.control('counts')).onBehalf;

function entry(more = {}) {
  const auth = { type: 'oauth', issuer: peer.issuer, client_id: 'gateway', client_secret: GATEWAY_SECRET, ...more };
  return { type: 'http', url: peer.resource, auth: { ...auth, exchange: { header: HEADER, subject_token_type: 'jwt', ...more.exchange } } };
}

before(async () => {
  peer = await Peer.start('peer.mjs', { CHAT_SECRET, GATEWAY_SECRET });
  const servers = { tickets: entry(), elsewhere: entry({ exchange: { audience: 'mail' } }) };
  service = await Service.start(servers, { TOOLSIEVE_ACCESS__USER_JWT_SECRET: CHAT_SECRET });
});
after(stopAll);

test('two users call in their own names, with one exchange for many calls', async () => {
  for (const user of ['anna', 'bob']) {
    const given = token(user);
    const first = await until(async () => {
      const answer = await call(given);
      return ![404, 503].includes(answer.status) && answer;
    }, 'the tools are listed');
    assert.deepEqual([first.status, first.body.sub], [200, user], JSON.stringify(first));
    const before = await exchanges();
    const answers = await Promise.all(Array.from({ length: 20 }, () => call(given)));
    assert.ok(answers.every(({ body }) => body.sub === user), JSON.stringify(answers[0]));
    assert.equal(await exchanges(), before);
  }
  const before = await exchanges();
  const given = token('carl');
  const answers = await Promise.all(Array.from({ length: 20 }, () => call(given)));
  assert.ok(answers.every(({ body }) => body.sub === 'carl'), JSON.stringify(answers[0]));
  assert.equal(await exchanges(), before + 1);
  await peer.control('expire', 'POST');
  const again = await Promise.all(Array.from({ length: 20 }, () => call(given)));
  assert.ok(again.every(({ body }) => body.sub === 'carl'), JSON.stringify(again[0]));
  assert.equal(await exchanges(), before + 2);
});

test('without a valid token, and for another audience, the answer says what to do', async () => {
  const missing = await call();
  assert.deepEqual([missing.status, missing.body.code], [403, 'credentials_missing'], JSON.stringify(missing));
  assert.match(missing.body.detail, /`x-openwebui-user-jwt`/);
  // The service checks these tokens too, before any exchange.
  const before = await exchanges();
  for (const wrong of [token('anna', { secret: 'a-secret-of-somebody-else' }), token('anna', { at: 1_000_000_000 })]) {
    assert.equal((await call(wrong)).status, 401);
  }
  assert.equal(await exchanges(), before);
  const { body: ready } = await service.admin('/readyz');
  const elsewhere = ready.servers.find(({ server }) => server === 'elsewhere');
  assert.match(elsewhere.error, /invalid_target.*`audience`/);
});

test("no token of a user or of the provider is in a log, a trace, an answer or readable in the data", async () => {
  const texts = [...await peer.control('issued'), ...tokens, GATEWAY_SECRET];
  const found = await service.assertKeepsSecret(texts, 'connected for a user');
  note(`${texts.length} tokens and secrets are in none of ${found} places`);
});
