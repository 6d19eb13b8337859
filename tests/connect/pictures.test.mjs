// The pages of a sign-in in a real Chromium, at the real `oidc-provider`: they work by keyboard and without scripts, and are pictured for
// the documentation (docs/src/images).
//   SCREENSHOTS  where the pictures go
//   CHROMIUM     the browser
import assert from 'node:assert/strict';
import { statSync } from 'node:fs';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { chromium } from 'playwright-core';
import { Peer, Service, note, signIn, stopAll } from './world.mjs';

const MAX_BYTES = 60_000;
let service;
let browser;

before(async () => {
  const [tickets, wiki] = [await Peer.start('peer.mjs'), await Peer.start('sdk_server.mjs')];
  const at = ({ resource }) => ({ type: 'http', url: resource, auth: 'oauth' });
  service = await Service.start({ tickets: at(tickets), wiki: at(wiki) });
  const { body } = await service.request('/v1/connections', { user: 'first' });
  await signIn(service.url, 'first', body.link, 'tickets');
  assert.equal((await service.firstAnswer('tickets', 'first')).body.sub, 'first');
  const flags = ['--no-sandbox', '--disable-gpu', '--no-first-run', '--disable-background-networking', '--disable-component-update', '--disable-sync'];
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: flags });
});
after(async () => {
  await browser?.close();
  await stopAll();
});

test('a person signs in by the link, and sees the connections', async () => {
  const context = await browser.newContext({ viewport: { width: 760, height: 720 }, javaScriptEnabled: false, colorScheme: 'light' });
  const page = await context.newPage();
  const picture = async (name) => {
    const path = join(process.env.SCREENSHOTS, `${name}.png`);
    const { y, height } = await page.locator('main').boundingBox();
    await page.screenshot({ path, clip: { x: 0, y: 0, width: page.viewportSize().width, height: y + height + y } });
    const { size } = statSync(path);
    assert.ok(size < MAX_BYTES, `${name}: ${size} bytes`);
    note(`${name}.png: ${size} bytes`);
  };

  const { body } = await service.whoami('tickets', 'anna');
  await page.goto(body.sign_in_url);
  await page.getByRole('heading', { name: 'Is this you?' }).waitFor();
  await page.getByText('anna').first().waitFor();
  await picture('connect-link');
  await page.getByRole('button', { name: 'Continue' }).press('Enter');
  await page.locator('input[name=login]').fill('anna');
  await page.locator('input[name=password]').fill('x');
  await page.keyboard.press('Enter');
  await page.getByRole('button', { name: 'Continue' }).click();
  await page.getByRole('heading', { name: 'Connected' }).waitFor();
  await page.getByRole('link', { name: 'Your account' }).click();
  await page.getByRole('heading', { name: 'Your connections' }).waitFor();
  const of = (server) => page.locator('section').filter({ has: page.getByRole('heading', { name: server }) });
  assert.match(await of('tickets').innerText(), /^tickets\s+connected/);
  assert.match(await of('wiki').innerText(), /^wiki\s+not connected/);
  await picture('connect-me');
  assert.equal((await service.whoami('tickets', 'anna')).body.sub, 'anna');

  await of('tickets').getByRole('button', { name: 'Disconnect' }).click();
  await of('tickets').getByText('not connected').waitFor();
  assert.equal((await service.whoami('tickets', 'anna')).body.code, 'sign_in_needed');
});
