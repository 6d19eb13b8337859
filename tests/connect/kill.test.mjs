// The service is killed (SIGKILL) while it refreshes tokens. Refresh tokens are used once; one authorization server accepts a used one
// again for a while, as many do, and the other one ends the sign-in at once, as the strictest do.
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { Peer, Postgres, Service, note, signIn, stopAll, until } from './world.mjs';

const KILLS = 20;
const USERS = 4;
/** Calls of one user at a time. */
const PARALLEL = 3;
/** How long nothing is killed first. Tokens last two seconds then. */
const CALM_MS = 5000;
/** A claim of a killed process would last 40 seconds. */
const SOON = 15;
/** With a shared database it does, because another process may still hold it. The refresh itself takes a moment. */
const CLAIM = 40;
const AFTER_CLAIM = CLAIM + 2;

/** A service in front of servers of these peers, with users who have signed in. */
async function signedIn(peers, users, env = {}) {
  const servers = Object.entries(peers).map(([name, peer]) => [name, { type: 'http', url: peer.resource, auth: 'oauth' }]);
  const service = await Service.start(Object.fromEntries(servers), env);
  for (const name of Object.keys(peers)) {
    for (const user of users) {
      const { body } = await service.request('/v1/connections', { user });
      await signIn(service.url, user, body.link, name);
      const answer = await service.firstAnswer(name, user);
      assert.equal(answer.body.sub, user, JSON.stringify(answer));
    }
  }
  return service;
}

/** Kills the service after the authorization server has refreshed the tokens, and before the answer arrives. */
async function killBeforeStorage(service, peer, server) {
  const { refreshed } = await peer.control('counts');
  await peer.control('expire', 'POST');
  await peer.control('hold', 'POST');
  const call = service.whoami(server, 'anna').catch(() => 'killed');
  await until(async () => (await peer.control('counts')).refreshed > refreshed, 'the tokens are refreshed');
  await service.kill();
  assert.equal(await call, 'killed');
  await peer.control('release', 'POST');
  await service.restart();
}

/** The first call after a start, once the server has connected. */
async function firstCall(service, server, user = 'anna') {
  const began = Date.now();
  const answer = await until(async () => {
    const answer = await service.whoami(server, user);
    return answer.status < 500 && answer;
  }, `${server} answers`, 90);
  return { answer, seconds: (Date.now() - began) / 1000 };
}

let forgiving;
let strict;
/** A service for each. */
let kindly;
let strictly;
before(async () => {
  forgiving = await Peer.start('peer.mjs', { GRACE_SECONDS: '120' });
  strict = await Peer.start('peer.mjs');
  kindly = await signedIn({ forgiving }, ['anna']);
  strictly = await signedIn({ strict }, ['anna']);
});
after(stopAll);

test('killed between the refresh and its storage: with a grace period nobody signs in again', async () => {
  const service = kindly;
  await killBeforeStorage(service, forgiving, 'forgiving');
  const { answer, seconds } = await firstCall(service, 'forgiving');
  assert.deepEqual([answer.status, answer.body.sub], [200, 'anna'], JSON.stringify(answer));
  const { lost } = await forgiving.control('counts');
  assert.equal(lost, 1);
  note(`grace period: the first call after the restart succeeds, after ${seconds.toFixed(1)} s`);
  assert.ok(seconds < SOON, `the first call took ${seconds} s`);
  await service.stop();
});

test('killed between the refresh and its storage: without a grace period the user gets a link', async () => {
  const service = strictly;
  await killBeforeStorage(service, strict, 'strict');
  const { answer, seconds } = await firstCall(service, 'strict');
  assert.deepEqual([answer.status, answer.body.code], [403, 'sign_in_needed'], JSON.stringify(answer));
  assert.equal((await strict.control('counts')).reused, 1, 'the former refresh token was tried once');
  note(`no grace period: the first call after the restart returns a link, after ${seconds.toFixed(1)} s: ${answer.body.detail.split('http')[0]}`);
  await signIn(service.url, 'anna', answer.body.sign_in_url, 'strict');
  assert.equal((await service.whoami('strict', 'anna')).body.sub, 'anna');
  assert.ok(seconds < SOON, `the first call took ${seconds} s`);
});

test('killed between the exchange of a code and its storage: the person begins again', async () => {
  const service = strictly;
  const { exchanged } = await strict.control('counts');
  const refused = await service.whoami('strict', 'bob');
  assert.equal(refused.body.code, 'sign_in_needed');
  await strict.control('hold', 'POST');
  const page = signIn(service.url, 'bob', refused.body.sign_in_url, 'strict').catch(() => 'killed');
  await until(async () => (await strict.control('counts')).exchanged > exchanged, 'the code is exchanged');
  await service.kill();
  assert.equal(await page, 'killed');
  await strict.control('release', 'POST');
  await service.restart();
  const { answer } = await firstCall(service, 'strict', 'bob');
  assert.equal(answer.body.code, 'sign_in_needed');
  await signIn(service.url, 'bob', answer.body.sign_in_url, 'strict');
  for (const user of ['anna', 'bob']) assert.equal((await service.whoami('strict', user)).body.sub, user);
});

test('killed after the storage: the stored tokens are used, without a further refresh', async () => {
  const service = strictly;
  const before = await strict.control('counts');
  for (let kill = 1; kill <= 2; kill += 1) {
    await strict.control('expire', 'POST');
    assert.equal((await service.whoami('strict', 'anna')).status, 200);
    await service.kill();
    await service.restart();
    const { answer } = await firstCall(service, 'strict');
    assert.deepEqual([answer.status, answer.body.sub], [200, 'anna'], JSON.stringify(answer));
  }
  const now = await strict.control('counts');
  assert.deepEqual([now.refreshed - before.refreshed, now.reused - before.reused], [2, 0]);
  await service.stop();
});

test('killed during a refresh with the state in PostgreSQL: the next calls wait until the claim ends, and refresh once', async () => {
  const database = await Postgres.start();
  const peer = await Peer.start('peer.mjs', { GRACE_SECONDS: '120' });
  const env = { DATABASE_URL: database.url };
  const service = await signedIn({ shared: peer }, ['anna'], env);
  // Another service on the same database.
  const other = await Service.start({ shared: { type: 'http', url: peer.resource, auth: 'oauth' } }, { ...env, TOOLSIEVE_SECRETS_KEY: service.env.TOOLSIEVE_SECRETS_KEY });
  await other.firstAnswer('shared', 'anna');
  const before = await peer.control('counts');
  const killed = Date.now();
  await killBeforeStorage(service, peer, 'shared');
  const calls = [service, other].map((each) => firstCall(each, 'shared'));
  for (const { answer } of await Promise.all(calls)) {
    assert.deepEqual([answer.status, answer.body.sub], [200, 'anna'], JSON.stringify(answer));
  }
  const seconds = (Date.now() - killed) / 1000;
  const now = await peer.control('counts');
  // One was lost with the killed process.
  assert.deepEqual([now.refreshed - before.refreshed, now.lost - before.lost, now.reused], [2, 1, 0]);
  note(`PostgreSQL: the first calls of both services succeed ${seconds.toFixed(1)} s after the killed call began`);
  assert.ok(seconds < AFTER_CLAIM, `the first calls took ${seconds} s`);
  const { seconds: next } = await firstCall(service, 'shared');
  assert.ok(next < 1, `the call after them took ${next} s`);
  await Promise.all([service.stop(), other.stop()]);
});

test(`${KILLS} kills at random moments under parallel calls`, async () => {
  const short = { ACCESS_SECONDS: '2', ANSWER_MS: '300' };
  const peers = { forgiving: await Peer.start('peer.mjs', { ...short, GRACE_SECONDS: '120' }), strict: await Peer.start('peer.mjs', short) };
  const users = Array.from({ length: USERS }, (_, at) => `user${at}`);
  const service = await signedIn(peers, users);
  const seen = { calls: 0, 200: 0 };
  const links = { forgiving: 0, strict: 0 };
  let running = true;

  /** One user at one server. The first of the parallel callers signs in again where that is needed. */
  async function callAll(server, user, isFirst) {
    for (let hasLink = false; running;) {
      const answer = await service.whoami(server, user).catch(() => undefined);
      seen.calls += 1;
      seen[answer?.status ?? 'no answer'] = (seen[answer?.status ?? 'no answer'] ?? 0) + 1;
      if (answer?.status === 200) {
        assert.equal(answer.body.sub, user);
        hasLink = false;
      } else if (answer?.body.code === 'sign_in_needed') {
        if (isFirst && !hasLink) links[server] += 1;
        hasLink = true;
        // The service may be killed meanwhile.
        if (isFirst) await signIn(service.url, user, answer.body.sign_in_url, server).catch(() => {});
      }
      await sleep(answer ? 20 : 50);
    }
  }

  const callers = Object.keys(peers).flatMap((server) => users.flatMap((user) => (
    Array.from({ length: PARALLEL }, (_, at) => callAll(server, user, at === 0)))));
  const calling = Promise.all(callers);
  await sleep(CALM_MS);
  const calm = await peers.strict.control('counts');
  assert.ok(calm.refreshed >= USERS, `${calm.refreshed} refreshes before the first kill`);
  assert.deepEqual([calm.reused, calm.lost], [0, 0], 'parallel calls alone use no refresh token twice');
  for (let kill = 1; kill <= KILLS; kill += 1) {
    await sleep(100 + Math.random() * 1400);
    await service.kill();
    await service.restart();
  }
  running = false;
  await calling;

  for (const server of Object.keys(peers)) {
    for (const user of users) {
      const answer = await until(async () => {
        const answer = await service.whoami(server, user);
        return answer.status < 500 && answer;
      }, `${server} answers ${user}`, 60);
      if (server === 'strict' && answer.status === 403) continue;
      assert.deepEqual([answer.status, answer.body.sub], [200, user], `${server}: ${JSON.stringify(answer)}`);
    }
  }
  const [kind, hard] = await Promise.all(Object.values(peers).map((peer) => peer.control('counts')));
  note(`${KILLS} kills, answers: ${JSON.stringify(seen)}`);
  note(`grace period: ${kind.refreshed} refreshes, ${kind.lost} answers lost, ${links.forgiving} links; none: ${hard.refreshed} refreshes, ${hard.lost} lost, ${links.strict} links`);
  assert.equal(links.forgiving, 0, 'no connection is lost where the authorization server has a grace period');
  assert.ok(kind.lost > 0, 'at least one kill hit a refresh');
  assert.ok(links.strict <= hard.reused, `${links.strict} links for ${hard.reused} used refresh tokens`);
  const issued = (await Promise.all(Object.values(peers).map((peer) => peer.control('issued')))).flat();
  note(`${issued.length} tokens, codes and secrets are in none of ${await service.assertKeepsSecret(issued)} places`);
});
