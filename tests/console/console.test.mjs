// The console in a real Chromium: every page, by keyboard, in light and dark, at a phone's width, with axe.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { chromium } from "playwright-core";

const URL_OF = process.env.TOOLSIEVE_URL;
const KEY = "console-suite-admin-key";
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const MESSAGE = "What time is it in Tokyo? Then show the last commits of the repository.";
const PAGES = ["/ui", "/ui/playground"];

let browser;

before(async () => {
  for (let tries = 0; ; tries += 1) {
    const ready = await fetch(`${URL_OF}/readyz`, { headers: { authorization: `Bearer ${KEY}` } }).then((answer) => answer.json(), () => null);
    if (ready?.ready && ready.index.embedded === ready.tools && ready.tools > 0) break;
    assert.ok(tries < 600, `not ready: ${JSON.stringify(ready)}`);
    await sleep(100);
  }
  const flags = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"];
  browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: flags });
});

after(async () => browser?.close());

/** A page in a browser of its own, whose messages to the developer are errors of the test. */
async function open(options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, locale: "en-US", ...options });
  const page = await context.newPage();
  const faults = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && faults.push(message.text()));
  page.on("pageerror", (error) => faults.push(String(error)));
  return { page, context, faults };
}

async function signIn(page) {
  await page.goto(`${URL_OF}/ui`);
  assert.equal(new URL(page.url()).pathname, "/ui/login");
  await page.getByLabel("Admin key").pressSequentially(KEY);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${URL_OF}/ui`);
}

async function violations(page) {
  await page.evaluate(AXE);
  const { violations: found } = await page.evaluate(() => globalThis.axe.run());
  return found.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`);
}

async function picture(page, name) {
  await page.screenshot({ path: join(process.env.SCREENSHOTS, `${name}.png`), fullPage: true });
}

test("the key is typed, and the pages are reached and left by keyboard", async () => {
  const { page, faults } = await open();
  await signIn(page);
  await page.getByRole("link", { name: "Playground" }).focus();
  await page.keyboard.press("Enter");
  await page.waitForURL(`${URL_OF}/ui/playground`);
  await page.getByLabel("Message").fill(MESSAGE);
  await page.getByRole("button", { name: "Select tools" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "The message needs a tool." }).waitFor();
  await page.getByRole("button", { name: "Sign out" }).click();
  await page.waitForURL(`${URL_OF}/ui/login`);
  await page.goto(`${URL_OF}/ui`);
  assert.equal(new URL(page.url()).pathname, "/ui/login");
  assert.deepEqual(faults, []);
});

test("a wrong key is refused beside the field", async () => {
  const { page } = await open();
  await page.goto(`${URL_OF}/ui/login`);
  await page.getByLabel("Admin key").fill("a guess");
  await page.keyboard.press("Enter");
  assert.equal(await page.getByRole("alert").innerText(), "This is not the admin key.");
  assert.deepEqual(await violations(page), []);
});

for (const colorScheme of ["light", "dark"]) {
  for (const [device, viewport] of [["desk", { width: 1280, height: 900 }], ["phone", { width: 390, height: 800 }]]) {
    test(`axe finds nothing: ${colorScheme}, ${device}`, async () => {
      const { page, faults } = await open({ colorScheme, viewport });
      await signIn(page);
      for (const path of PAGES) {
        let bytes = 0;
        page.on("response", async (response) => (bytes += (await response.body().catch(() => "")).length));
        await page.goto(`${URL_OF}${path}`, { waitUntil: "networkidle" });
        assert.deepEqual(await violations(page), [], path);
        const { width, seen } = await page.evaluate(() => ({ width: document.documentElement.scrollWidth, seen: innerWidth }));
        assert.ok(width <= seen, `${path} is ${width} wide`);
        assert.ok(bytes > 0 && bytes <= 200 * 1024, `${path}: ${bytes} bytes`);
        await picture(page, `${path.slice(1).replace("/", "-")}-${colorScheme}-${device}`);
      }
      await page.getByLabel("Message").fill(MESSAGE);
      await page.getByLabel("strictness").fill("2");
      await page.getByRole("button", { name: "Select tools" }).click();
      await page.getByRole("heading", { name: "With these settings" }).waitFor();
      assert.deepEqual(await violations(page), []);
      const { width, seen } = await page.evaluate(() => ({ width: document.documentElement.scrollWidth, seen: innerWidth }));
      assert.ok(width <= seen, `the result is ${width} wide`);
      await picture(page, `ui-playground-result-${colorScheme}-${device}`);
      assert.deepEqual(faults, []);
    });
  }
}

test("a German browser gets German pages", async () => {
  const { page } = await open({ locale: "de-DE" });
  await page.goto(`${URL_OF}/ui/login`);
  assert.equal(await page.locator("html").getAttribute("lang"), "de");
  await page.getByLabel("Admin-Schlüssel").fill(KEY);
  await page.getByRole("button", { name: "Anmelden" }).click();
  await page.getByRole("heading", { name: "Übersicht" }).waitFor();
});

test("texts of others are shown and never run", async () => {
  const { page, faults } = await open();
  await signIn(page);
  await page.goto(`${URL_OF}/ui/playground`);
  const hostile = `<script>document.title = "run"</script><img src=x onerror="document.title='run'"> what time is it`;
  await page.getByLabel("Message").fill(hostile);
  await page.getByRole("button", { name: "Select tools" }).click();
  await page.getByRole("heading", { name: "Candidates" }).waitFor();
  assert.ok((await page.locator("ol").first().innerText()).includes("<script>"));
  assert.ok(!(await page.title()).includes("run"));
  assert.deepEqual(faults, []);
});

test("an ended session leads to the sign-in", async () => {
  const { page, context } = await open();
  await signIn(page);
  await page.goto(`${URL_OF}/ui/playground`);
  await page.getByLabel("Message").fill(MESSAGE);
  await context.clearCookies();
  await page.getByRole("button", { name: "Select tools" }).click();
  await page.waitForURL(`${URL_OF}/ui/login`);
});
