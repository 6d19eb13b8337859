// What the parts of this suite share: the service as a process, the peers, and a person with a browser.
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { appendFileSync, chownSync, existsSync, mkdirSync, openSync, readFileSync, readdirSync, writeFileSync } from 'node:fs';
import { createServer as createCollector } from 'node:http';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { gunzipSync } from 'node:zlib';

const { TOOLSIEVE_BIN: binary, CONNECT_WORK: work, CONNECT_PYTHON: python } = process.env;
const KEY = 'connect-suite-key';
const ADMIN_KEY = 'connect-suite-admin-key';
const START_TRIES = 600;

async function freePort() {
  const server = createServer();
  await new Promise((done) => server.listen(0, '127.0.0.1', done));
  const { port } = server.address();
  await new Promise((done) => server.close(done));
  return port;
}

/** Waits until a condition holds, and returns its value. */
export async function until(condition, what, seconds = 30) {
  for (const end = Date.now() + seconds * 1000; ;) {
    const value = await condition();
    if (value) return value;
    assert.ok(Date.now() < end, `${what}: not within ${seconds} s`);
    await sleep(50);
  }
}

function ended(process) {
  return process.exitCode !== null || process.signalCode !== null ? Promise.resolve() : new Promise((done) => process.once('exit', done));
}

/** A program of this suite, which prints one line of JSON when it is ready. */
export class Peer {
  static all = [];

  static async start(script, env = {}) {
    const command = script.endsWith('.py') ? python : process.execPath;
    const program = spawn(command, [script], { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', openSync(join(work, `${script}.log`), 'a')] });
    const peer = new Peer();
    Peer.all.push(peer);
    peer.program = program;
    let text = '';
    const line = new Promise((done, fail) => {
      program.stdout.on('data', (chunk) => {
        text += chunk;
        if (text.includes('\n')) done(text.split('\n')[0]);
      });
      program.once('exit', (code) => fail(new Error(`${script} ended with ${code}`)));
    });
    Object.assign(peer, JSON.parse(await line));
    return peer;
  }

  /** A request to the part of the peer that only this suite uses. */
  async control(path, method = 'GET') {
    return (await fetch(`${this.issuer}/control/${path}`, { method })).json();
  }

  async stop() {
    this.program.kill('SIGTERM');
    await ended(this.program);
  }
}

/** The service, which can be killed and started again with the same port and data. */
export class Service {
  static all = [];
  /** Every answer that it gave, for the search for tokens. */
  answers = [];

  static async start(servers, env = {}) {
    const service = new Service();
    Service.all.push(service);
    await service.collectTraces();
    service.folder = join(work, `service-${Service.all.length}`);
    mkdirSync(service.folder);
    service.log = join(work, `service-${Service.all.length}.log`);
    service.port = await freePort();
    service.url = `http://localhost:${service.port}`;
    service.config = join(service.folder, 'mcp.json');
    writeFileSync(service.config, JSON.stringify({ mcpServers: servers }));
    service.env = {
      ...process.env,
      TOOLSIEVE_API_KEY: KEY,
      TOOLSIEVE_ADMIN_KEY: ADMIN_KEY,
      TOOLSIEVE_ACCESS__TRUST_USERS: 'true',
      TOOLSIEVE_HTTP__PUBLIC_URL: service.url,
      TOOLSIEVE_CALLS__COMPACT_RESULTS: 'false',
      TOOLSIEVE_LOGGING__LEVEL: 'debug',
      TOOLSIEVE_TELEMETRY__ENDPOINT: `http://127.0.0.1:${service.collector.address().port}`,
      TOOLSIEVE_TELEMETRY__CAPTURE_CONTENT: 'true',
      TOOLSIEVE_SECRETS_KEY: execFileSync(binary, ['secrets', 'new-key'], { encoding: 'utf8', stdio: ['ignore', 'pipe', 'ignore'] }).trim(),
      ...env,
    };
    await service.restart();
    return service;
  }

  /** Keeps the traces of the service, with all texts. */
  async collectTraces() {
    this.traces = '';
    this.collector = createCollector(async (request, response) => {
      const chunks = [];
      for await (const chunk of request) chunks.push(chunk);
      const body = Buffer.concat(chunks);
      this.traces += (request.headers['content-encoding'] === 'gzip' ? gunzipSync(body) : body).toString('latin1');
      response.writeHead(200, { 'content-type': 'application/json' }).end('{}');
    });
    this.collector.unref();
    await new Promise((done) => this.collector.listen(0, '127.0.0.1', done));
  }

  async restart() {
    const output = openSync(this.log, 'a');
    const data = join(this.folder, 'data');
    const serve = ['serve', '--config', this.config, '--data-dir', data, '--port', String(this.port)];
    this.program = spawn(binary, serve, { env: this.env, stdio: ['ignore', output, output] });
    for (let tries = 0; !(await fetch(`${this.url}/healthz`).then((answer) => answer.ok, () => false)); tries += 1) {
      assert.ok(tries < START_TRIES && this.program.exitCode === null, `the service does not start:\n${readFileSync(this.log, 'utf8').slice(-2000)}`);
      await sleep(50);
    }
  }

  /** Ends the process in the middle of whatever it does. */
  async kill() {
    this.program.kill('SIGKILL');
    await ended(this.program);
  }

  async stop() {
    this.program.kill('SIGTERM');
    await ended(this.program);
  }

  async request(path, { user, body, key = KEY, method = body ? 'POST' : 'GET', headers: more = {} } = {}) {
    const headers = { authorization: `Bearer ${key}`, 'content-type': 'application/json', ...more };
    if (user) headers['x-openwebui-user-id'] = user;
    const response = await fetch(`${this.url}${path}`, { method, headers, body: body && JSON.stringify(body) });
    const text = await response.text();
    this.answers.push({ path, status: response.status, text });
    return { status: response.status, body: text ? JSON.parse(text) : undefined };
  }

  admin(path, options = {}) {
    return this.request(path, { key: ADMIN_KEY, ...options });
  }

  /** Calls the tool that says in whose name it was called. */
  whoami(server, user, key = KEY) {
    return this.request(`/${server}/whoami`, { user, body: {}, key });
  }

  /** The first answer once the tools of a server are published that lists them only for signed-in users. */
  async firstAnswer(server, user, key = KEY) {
    return until(async () => {
      const answer = await this.whoami(server, user, key);
      return ![404, 503].includes(answer.status) && answer;
    }, `${server} lists its tools`);
  }

  /** Fails if one of these texts is in the log, the audit log, a trace, an answer, a page, or plain in the stored data. The log has `logged`. */
  async assertKeepsSecret(texts, logged = 'a user has signed in') {
    assert.ok(texts.length > 0 && texts.every((text) => text.length >= 16), 'there is something to search for');
    const audit = [];
    for (let page = '/v1/admin/audit?limit=1000'; page;) {
      const { status, body } = await this.admin(page);
      assert.equal(status, 200);
      audit.push(...body.entries);
      page = body.next && `/v1/admin/audit?limit=1000&before=${encodeURIComponent(body.next)}`;
    }
    assert.ok(audit.length > 0, 'the audit log has entries');
    await until(() => this.traces.includes('whoami'), 'the traces arrive');
    const log = readFileSync(this.log, 'latin1');
    assert.ok(log.includes(logged), 'the log is that of the calls');
    const pages = Browser.pages.filter(({ address }) => address.startsWith(this.url)).map(({ text }) => text);
    const places = new Map([['the audit log', JSON.stringify(audit)], ['the log', log], ['a trace', this.traces], ['a page', pages.join('\n')]]);
    for (const path of ['/readyz', '/metrics', '/v1/admin/servers', '/openapi.json']) {
      const headers = { authorization: `Bearer ${ADMIN_KEY}` };
      places.set(path, await (await fetch(`${this.url}${path}`, { headers })).text());
    }
    for (const { path, status, text } of this.answers) places.set(`${status} ${path}`, `${places.get(`${status} ${path}`) ?? ''}${text}`);
    for (const file of filesBelow(join(this.folder, 'data'))) {
      const text = whileThere(() => readFileSync(file, 'latin1'));
      if (text !== undefined) places.set(file, text);
    }
    for (const [place, text] of places) {
      const found = texts.find((secret) => text.includes(secret));
      assert.equal(found, undefined, `${place} contains a token, a code or a secret`);
    }
    return places.size;
  }
}

/** What is read, or undefined: the index removes files and folders of its own while it works. */
function whileThere(read) {
  try {
    return read();
  } catch (error) {
    assert.equal(error.code, 'ENOENT');
    return undefined;
  }
}

function filesBelow(folder) {
  const entries = whileThere(() => readdirSync(folder, { withFileTypes: true })) ?? [];
  return entries.flatMap((entry) => {
    const path = join(folder, entry.name);
    return entry.isDirectory() ? filesBelow(path) : entry.isFile() ? [path] : [];
  });
}

/** A PostgreSQL server with a folder of its own. It refuses to run as root. */
export class Postgres {
  static all = [];
  static NOBODY = 65534;

  static async start() {
    const versions = readdirSync('/usr/lib/postgresql').map(Number).filter((version) => version >= 15);
    const programs = `/usr/lib/postgresql/${Math.max(...versions)}/bin`;
    const server = new Postgres();
    Postgres.all.push(server);
    const folder = join(work, `postgres-${Postgres.all.length}`);
    const port = await freePort();
    mkdirSync(folder);
    const user = process.getuid() === 0 ? { uid: Postgres.NOBODY, gid: Postgres.NOBODY } : {};
    if (user.uid) chownSync(folder, user.uid, user.gid);
    const data = join(folder, 'data');
    const options = { ...user, cwd: folder, env: { PATH: process.env.PATH, LC_ALL: 'C.UTF-8' } };
    // The machine does not crash, only services do, so nothing needs to be flushed.
    execFileSync(`${programs}/initdb`, ['--auth=trust', '--encoding=UTF8', '--no-sync', '--username=tester', '--pgdata', data], { ...options, stdio: 'ignore' });
    const settings = ['listen_addresses=127.0.0.1', `port=${port}`, `unix_socket_directories=${folder}`, 'fsync=off'];
    const log = openSync(join(work, 'postgres.log'), 'a');
    server.program = spawn(`${programs}/postgres`, ['-D', data, ...settings.flatMap((setting) => ['-c', setting])], { ...options, stdio: ['ignore', log, log] });
    const state = join(data, 'postmaster.pid');
    await until(() => existsSync(state) && readFileSync(state, 'utf8').split('\n')[7]?.trim() === 'ready', 'PostgreSQL is ready');
    server.url = `postgres://tester@127.0.0.1:${port}/postgres`;
    return server;
  }

  async stop() {
    this.program.kill('SIGINT');
    await ended(this.program);
  }
}

/** Ends everything that was started. */
export async function stopAll() {
  for (const each of [...Service.all, ...Peer.all, ...Postgres.all]) await each.stop().catch(() => {});
  for (const { collector } of Service.all) collector.closeAllConnections();
}

/** A browser: keeps cookies by host, and follows no redirect by itself. */
export class Browser {
  /** Every page that a browser got. */
  static pages = [];
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
    const page = { status: response.status, location: location && new URL(location, address).href, text: await response.text(), address };
    Browser.pages.push(page);
    return page;
  }

  /** Follows redirects until a page appears. */
  async follow(page) {
    let now = page;
    for (let step = 0; step < 20 && now.location; step += 1) now = await this.send(now.location);
    return now;
  }
}

const hidden = (text) => Object.fromEntries([...text.matchAll(/<input type="hidden" name="([^"]+)" value="([^"]*)"/g)].map(([, name, value]) => [name, value]));

/** Follows a link to the sign-in page of a server, and returns the browser and that page. */
export async function openLink(url, link, server) {
  const browser = new Browser();
  const first = await browser.send(link);
  assert.match(first.text, /Is this you\?/);
  let page = await browser.send(`${url}/ui/me/enter`, hidden(first.text));
  if (page.location) {
    const list = await browser.send(`${url}/ui/me`);
    page = await browser.send(`${url}/ui/me/connect`, { csrf: hidden(list.text).csrf, server });
  }
  const to = page.text.split('0; url=')[1]?.split('"')[0].replaceAll('&amp;', '&');
  assert.ok(to, page.text);
  return { browser, page: await browser.follow(await browser.send(to)) };
}

/** Signs in as a user, from the link to the page that says so. */
export async function signIn(url, user, link, server) {
  const { browser, page } = await openLink(url, link, server);
  let now = page;
  for (let form = 0; form < 3 && !now.address.startsWith(url); form += 1) {
    const [, action] = now.text.match(/action="([^"]*)"/) ?? assert.fail(now.text);
    const fields = { ...hidden(now.text), ...(now.text.includes('name="login"') ? { login: user, password: 'x' } : {}) };
    now = await browser.follow(await browser.send(new URL(action, now.address).href, fields));
  }
  assert.match(now.text, /<h1>Connected<\/h1>/, now.text);
}

/** Writes what a part found into its output. */
export function note(text) {
  console.log(`    ${text}`);
  appendFileSync(join(work, 'notes.log'), `${text}\n`);
}
