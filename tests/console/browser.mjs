// What all suites share: a real Chromium, the sign-in, and what every page must fulfil.
import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";

import { chromium } from "playwright-core";

export const KEY = "console-suite-admin-key";
const AXE = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
/** The most that a page may transfer, in bytes. */
const MOST = 200 * 1024;

export function launch() {
  const flags = [
    "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync",
  ];
  return chromium.launch({ executablePath: process.env.CHROMIUM, args: flags });
}

/** Looks again and again until something is true, and returns it. */
export async function until(what, look, tries = 600) {
  for (let last; tries > 0; tries -= 1) {
    last = await look();
    if (last) return last;
    await sleep(100);
  }
  assert.fail(`waited in vain: ${what}`);
}

/** Waits until all servers of a service are known and all tools can be found. */
export function ready(url, tools = 1) {
  return until(`${url} is ready`, async () => {
    const state = await fetch(`${url}/readyz`, { headers: { authorization: `Bearer ${KEY}` } }).then((answer) => answer.json(), () => null);
    return state?.ready && state.tools >= tools && state.index.embedded === state.tools;
  }, 3000);
}

/** A request of the administrator. */
export async function ask(url, path, body, { method = body ? "POST" : "GET", headers = {} } = {}) {
  const all = { authorization: `Bearer ${KEY}`, "content-type": "application/json", ...headers };
  const answer = await fetch(`${url}${path}`, { method, headers: all, body: body && JSON.stringify(body) });
  return { status: answer.status, body: await answer.json().catch(() => null) };
}

/** A page in a browser of its own, whose messages to the developer are errors of the test. */
export async function open(browser, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, locale: "en-US", ...options });
  const page = await context.newPage();
  const faults = [];
  page.on("console", (message) => ["error", "warning"].includes(message.type()) && faults.push(message.text()));
  page.on("pageerror", (error) => faults.push(String(error)));
  return { page, context, faults };
}

export async function signIn(page, url) {
  await page.goto(`${url}/ui`);
  assert.equal(new URL(page.url()).pathname, "/ui/login");
  await page.getByLabel("Admin key").pressSequentially(KEY);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${url}/ui`);
}

/** The rules of axe about colors, which are all that another color scheme can break. */
export const COLORS = ["color-contrast", "link-in-text-block"];

/** What axe finds, with all its rules or with these. */
export async function violations(page, rules) {
  await page.evaluate(AXE);
  const options = rules ? { runOnly: { type: "rule", values: rules } } : {};
  const { violations: found } = await page.evaluate((of) => globalThis.axe.run(document, of), options);
  return found.map(({ id, nodes }) => `${id}: ${nodes.map((node) => node.html).join(" ")}`);
}

/** No violations of all rules or of these, nothing wider than the window, and few elements. */
export async function isFine(page, name, rules) {
  assert.deepEqual(await violations(page, rules), [], name);
  const { width, seen, nodes } = await page.evaluate(() => ({
    width: document.documentElement.scrollWidth, seen: innerWidth, nodes: document.querySelectorAll("*").length,
  }));
  assert.ok(width <= seen, `${name} is ${width} wide`);
  assert.ok(nodes < 2000, `${name} has ${nodes} elements`);
}

/** Opens a page and checks what it transfers, and its policy. Returns the bytes. */
export async function visit(page, url, path) {
  const bodies = [];
  const note = (response) => bodies.push(response.body().then((body) => body.length, () => 0));
  page.on("response", note);
  const answer = await page.goto(`${url}${path}`);
  const policy = answer.headers()["content-security-policy"] ?? "";
  // Only a script may load more.
  if (policy.includes("script-src")) await page.waitForLoadState("networkidle");
  page.off("response", note);
  const bytes = (await Promise.all(bodies)).reduce((sum, length) => sum + length, 0);
  assert.ok(bytes > 0 && bytes <= MOST, `${path}: ${bytes} bytes`);
  assert.ok(policy.includes("default-src 'none'") && !policy.includes("unsafe-"), `${path}: ${policy}`);
  return bytes;
}

/** Takes a picture if a folder for them is given. Returns its path. */
export async function picture(page, name, options = { fullPage: true }) {
  if (!process.env.SCREENSHOTS) return undefined;
  const path = join(process.env.SCREENSHOTS, `${name}.png`);
  await page.screenshot({ path, ...options });
  return path;
}
