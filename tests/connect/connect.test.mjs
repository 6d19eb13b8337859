// Two users sign in at the real `oidc-provider`, and call an MCP server in their own names.
//   TOOLSIEVE_URL, TOOLSIEVE_PUBLIC  the service, and its public address
//   PEER                             the address of the MCP server
import assert from 'node:assert/strict';
import test from 'node:test';

const { TOOLSIEVE_URL: url, PEER: peer } = process.env;
const key = 'Bearer connect-suite-key';

/** A browser: keeps cookies by host, and follows no redirect by itself. */
class Browser {
  cookies = new Map();

  async send(address, form) {
    const { origin } = new URL(address);
    const jar = this.cookies.get(origin) ?? new Map();
    this.cookies.set(origin, jar);
    const headers = { cookie: [...jar].map(([name, value]) => `${name}=${value}`).join('; ') };
    if (form) headers.origin = origin;
    const response = await fetch(address, { method: form ? 'POST' : 'GET', redirect: 'manual', headers, body: form && new URLSearchParams(form) });
    for (const cookie of response.headers.getSetCookie()) {
      const [name, ...value] = cookie.split(';')[0].split('=');
      jar.set(name, value.join('='));
    }
    const location = response.headers.get('location');
    return { status: response.status, location: location && new URL(location, address).href, text: await response.text(), address };
  }

  /** Follows redirects until a page appears, or the service's redirect URI. */
  async follow(page) {
    let now = page;
    for (let step = 0; step < 20 && now.location; step += 1) {
      if (now.location.startsWith(`${url}/ui/oauth/callback`)) return now;
      now = await this.send(now.location);
    }
    return now;
  }
}

const hidden = (text, name) => text.split(`name="${name}" value="`)[1].split('"')[0];

async function api(path, user, body) {
  const headers = { authorization: key, 'x-openwebui-user-id': user, 'content-type': 'application/json' };
  const response = await fetch(`${url}${path}`, { method: body ? 'POST' : 'GET', headers, body: body && JSON.stringify(body) });
  return { status: response.status, body: await response.json() };
}

const call = (user) => api('/tickets/whoami', user, {});

/** Signs in as a user, from the link to the page that says so. */
async function signIn(user, link) {
  const browser = new Browser();
  const first = await browser.send(link);
  assert.match(first.text, /Is this you\?/);
  let page = await browser.send(`${url}/ui/me/enter`, { link: hidden(first.text, 'link') });
  if (page.location) {
    const list = await browser.send(`${url}/ui/me`);
    page = await browser.send(`${url}/ui/me/connect`, { csrf: hidden(list.text, 'csrf'), server: 'tickets' });
  }
  const issuer = page.text.split('0; url=')[1].split('"')[0].replaceAll('&amp;', '&');
  let now = await browser.follow(await browser.send(issuer));
  for (const prompt of [{ prompt: 'login', login: user, password: 'x' }, { prompt: 'consent' }]) {
    if (now.location) break;
    const [, action] = now.text.match(/action="([^"]+)"/) ?? assert.fail(now.text);
    now = await browser.follow(await browser.send(new URL(action, now.address).href, prompt));
  }
  assert.ok(now.location, now.text);
  const done = await browser.send(now.location);
  assert.match(done.text, /<h1>Connected<\/h1>/, done.text);
}

test('two users call in their own names, with one refresh for many calls', async () => {
  const { body: before } = await api('/v1/connections', 'anna');
  assert.equal(before.connections[0].connection, 'sign_in');
  await signIn('anna', before.link);
  let answer;
  for (let look = 0; look < 100; look += 1) {
    answer = await call('anna');
    if (answer.status === 200) break;
    await new Promise((done) => setTimeout(done, 100));
  }
  assert.deepEqual([answer.status, answer.body.sub], [200, 'anna'], JSON.stringify(answer));

  const refused = await call('bob');
  assert.deepEqual([refused.status, refused.body.code], [403, 'sign_in_needed']);
  await signIn('bob', refused.body.sign_in_url);
  assert.equal((await call('bob')).body.sub, 'bob');
  assert.equal((await call('anna')).body.sub, 'anna');

  for (const round of [1, 2]) {
    await fetch(`${peer}/control/expire`, { method: 'POST' });
    const answers = await Promise.all(Array.from({ length: 20 }, () => call('anna')));
    assert.ok(answers.every(({ body }) => body.sub === 'anna'), JSON.stringify(answers[0]));
    assert.equal((await (await fetch(`${peer}/control/counts`)).json()).refreshed, round);
  }
});

test('a user who leaves is signed out at the provider', async () => {
  const headers = { authorization: 'Bearer connect-suite-admin-key' };
  const response = await fetch(`${url}/v1/admin/secrets/user%3Aanna`, { method: 'DELETE', headers });
  assert.equal((await response.json()).sign_ins, 1);
  assert.ok((await (await fetch(`${peer}/control/counts`)).json()).revoked > 0);
  assert.equal((await call('anna')).body.code, 'sign_in_needed');
  assert.equal((await call('bob')).body.sub, 'bob');
});
