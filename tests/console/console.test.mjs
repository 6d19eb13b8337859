// The console in a real Chromium: every page, by keyboard, in light and dark, at a phone's width, with axe.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { COLORS, KEY, isFine, launch, open as openIn, picture, ready, signIn as signInAt, violations, visit } from "./browser.mjs";

const URL_OF = process.env.TOOLSIEVE_URL;
const MESSAGE = "What time is it in Tokyo? Then show the last commits of the repository.";
const TIMES = JSON.stringify({ source_timezone: "UTC", time: "12:00", target_timezone: "Asia/Tokyo" });
const PAGES = [
  "/ui", "/ui/servers", "/ui/server", "/ui/server?server=time", "/ui/tools", "/ui/access", "/ui/access/check?principal=service-key", "/ui/access/keys",
  "/ui/access/secrets", "/ui/access/toolsets", "/ui/access/toolset", "/ui/activity", "/ui/activity/chat?chat=none", "/ui/learning", "/ui/playground",
];

let browser;

before(async () => {
  await ready(URL_OF);
  browser = await launch();
});

after(async () => browser?.close());

const open = (options) => openIn(browser, options);
const signIn = (page) => signInAt(page, URL_OF);

/** The name of a tool of the quickstart, and the address of its page. */
async function firstTool(page) {
  await page.goto(`${URL_OF}/ui/tools`);
  const link = page.locator("tbody th a").first();
  return { name: await link.innerText(), address: await link.getAttribute("href") };
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

for (const [colorScheme, rules] of [["light"], ["dark", COLORS]]) {
  for (const [device, viewport] of [["desk", { width: 1280, height: 900 }], ["phone", { width: 390, height: 800 }]]) {
    test(`axe finds nothing: ${colorScheme}, ${device}`, async () => {
      const { page, faults } = await open({ colorScheme, viewport });
      await signIn(page);
      for (const path of PAGES) {
        await visit(page, URL_OF, path);
        await isFine(page, path, rules);
        await picture(page, `${path.slice(1).replaceAll(/[^a-z]/gu, "-")}-${colorScheme}-${device}`);
      }
      await page.goto(`${URL_OF}${(await firstTool(page)).address}`);
      await isFine(page, "a tool", rules);
      await picture(page, `ui-tool-${colorScheme}-${device}`);
      await page.goto(`${URL_OF}/ui/access`);
      await page.getByLabel("Effect").selectOption("block");
      await page.getByLabel("Callers").fill("service-key");
      await page.getByRole("button", { name: "See the effect" }).last().click();
      await page.getByRole("heading", { name: "Not saved yet" }).waitFor();
      await isFine(page, "a draft", rules);
      await picture(page, `ui-access-draft-${colorScheme}-${device}`);
      await page.goto(`${URL_OF}/ui/playground`);
      await page.getByLabel("Message").fill(MESSAGE);
      await page.getByLabel("strictness").fill("2");
      await page.getByRole("button", { name: "Select tools" }).click();
      await page.getByRole("heading", { name: "With these settings" }).waitFor();
      await isFine(page, "the result", rules);
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

test("an ended session leads to the sign-in and back", async () => {
  const { page, context } = await open();
  await signIn(page);
  await page.goto(`${URL_OF}/ui/playground`);
  await page.getByLabel("Message").fill(MESSAGE);
  await context.clearCookies();
  await page.getByRole("button", { name: "Select tools" }).click();
  await page.getByText("Your session has ended").waitFor();
  await isFine(page, "a session has ended");
  await page.getByLabel("Admin key").fill(KEY);
  await page.keyboard.press("Enter");
  await page.getByRole("button", { name: "Send it now" }).click();
  assert.equal(await page.getByLabel("Message").inputValue(), MESSAGE);
  await page.getByRole("heading", { name: "The message needs a tool." }).waitFor();
  await context.clearCookies();
  await page.goto(`${URL_OF}/ui/tools?text=time`);
  await page.waitForURL(`${URL_OF}/ui/login?*`);
  await isFine(page, "the sign-in");
  await page.getByLabel("Admin key").fill(KEY);
  await page.keyboard.press("Enter");
  await page.waitForURL(`${URL_OF}/ui/tools?text=time`);
});

test("a synonym is written and found, and its error stands beside it", async () => {
  const { page, faults } = await open();
  await signIn(page);
  const { name, address } = await firstTool(page);
  await page.goto(`${URL_OF}${address}`);
  await page.getByLabel("Synonyms").fill("the");
  await page.getByRole("button", { name: "Save" }).click();
  const described = await page.getByLabel("Synonyms").getAttribute("aria-describedby");
  assert.match(await page.locator(`#${described}`).innerText(), /no searchable word/);
  assert.deepEqual(await violations(page), []);
  await page.getByLabel("Synonyms").fill("quokkalore");
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("status").filter({ hasText: "saved" }).waitFor();
  await page.getByRole("link", { name: "Tools", exact: true }).click();
  await page.getByRole("searchbox").fill("quokkalore");
  await page.keyboard.press("Enter");
  await page.waitForURL(`${URL_OF}/ui/tools?*quokkalore*`);
  assert.deepEqual(await page.locator("tbody th a").allInnerTexts(), [name]);
  await page.locator("tbody th a").click();
  await page.getByRole("button", { name: "Remove all own texts" }).click();
  await page.getByRole("status").filter({ hasText: "removed" }).waitFor();
  // The refused form is the one message that browsers log.
  assert.deepEqual(faults.filter((fault) => !fault.includes("422")), []);
});

test("a rule blocks a server for a key, with its effect shown before", async () => {
  const { page, faults } = await open();
  await signIn(page);
  await page.getByRole("link", { name: "Access" }).click();
  await page.getByRole("link", { name: "Keys" }).click();
  await page.getByRole("textbox", { name: "Name" }).fill("console-suite");
  await page.getByRole("button", { name: "Create" }).click();
  assert.match(await page.locator(".secret").innerText(), /^tsk_/);
  assert.deepEqual(await violations(page), []);
  await page.getByRole("link", { name: "Rules" }).click();
  await page.getByLabel("Callers").fill("key:console-suite");
  await page.getByLabel("Effect").selectOption("block");
  await page.getByRole("button", { name: "See the effect" }).last().click();
  assert.match(await page.getByRole("row", { name: "key:console-suite" }).first().innerText(), /\d/);
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByRole("status").filter({ hasText: "saved" }).waitFor();
  await page.getByRole("button", { name: "Remove: Rule 1" }).click();
  await page.getByRole("button", { name: "Save" }).click();
  await page.getByText("There are no rules here.").waitFor();
  await page.getByRole("link", { name: "Keys" }).click();
  await page.getByRole("link", { name: "Revoke: console-suite" }).click();
  await page.getByRole("button", { name: "Revoke" }).click();
  await page.getByRole("status").filter({ hasText: "revoked" }).waitFor();
  assert.deepEqual(faults, []);
});

test("a rule is dragged before another one", async () => {
  const { page, faults } = await open();
  await signIn(page);
  await page.goto(`${URL_OF}/ui/access`);
  for (const caller of ["key:first", "key:second", "key:third"]) {
    await page.getByLabel("Callers").fill(caller);
    await page.getByRole("button", { name: "See the effect" }).last().click();
    await page.getByRole("heading", { name: "Not saved yet" }).waitFor();
  }
  const rows = page.locator("tr[data-place]");
  const count = await rows.count();
  assert.ok(await page.getByText("Rules can also be dragged").isVisible());
  await rows.nth(count - 1).dragTo(rows.nth(count - 3));
  await page.waitForFunction(
    (place) => document.querySelectorAll("tr[data-place]")[place]?.textContent.includes("key:third"),
    count - 3,
  );
  const words = await rows.allInnerTexts();
  const order = words.slice(count - 3).map((text) => /key:\w+/u.exec(text)[0]);
  assert.deepEqual(order, ["key:third", "key:first", "key:second"]);
  assert.deepEqual(faults, []);
});

test("a chat is told as a story", async () => {
  const headers = { authorization: `Bearer ${KEY}`, "content-type": "application/json" };
  const body = JSON.stringify({ messages: [{ role: "user", content: MESSAGE }], chat_id: "console-suite-chat" });
  assert.equal((await fetch(`${URL_OF}/v1/filter`, { method: "POST", headers, body })).status, 200);
  const { page, faults } = await open();
  await signIn(page);
  const link = page.getByRole("link", { name: "console-suite-chat" });
  for (let tries = 0; (await link.count()) === 0; tries += 1) {
    assert.ok(tries < 50, "the selection is not recorded");
    await sleep(100);
    await page.goto(`${URL_OF}/ui/activity?chat=console-suite-chat`);
  }
  await isFine(page, "activity");
  await link.first().click();
  await page.getByText("Tools selected").waitFor();
  await isFine(page, "a story");
  await picture(page, "ui-story");
  assert.deepEqual(faults, []);
});

test("what was learned is replayed, tried by a message and forgotten", async () => {
  const headers = { authorization: `Bearer ${KEY}`, "content-type": "application/json", "x-openwebui-chat-id": "console-suite-learning" };
  const messages = [{ role: "user", content: MESSAGE }];
  const asked = await fetch(`${URL_OF}/v1/filter`, { method: "POST", headers, body: JSON.stringify({ messages }) });
  assert.equal(asked.status, 200);
  const called = await fetch(`${URL_OF}/time/convert_time`, { method: "POST", headers, body: TIMES });
  assert.equal(called.status, 200);
  const { page, faults } = await open();
  await signIn(page);
  await page.getByRole("navigation", { name: "Toolsieve console" }).getByRole("link", { name: "Learning", exact: true }).click();
  await page.waitForURL(`${URL_OF}/ui/learning`);
  const row = page.getByRole("row", { name: "time/convert_time" });
  for (let tries = 0; (await row.count()) === 0; tries += 1) {
    assert.ok(tries < 50, "nothing was learned");
    await sleep(100);
    await page.reload();
  }
  assert.match(await row.innerText(), /called/);
  assert.ok(!(await page.content()).includes("Tokyo"), "no text of a message");
  await isFine(page, "learning");
  await picture(page, "ui-learning");
  await page.getByRole("button", { name: "Replay now" }).focus();
  await page.keyboard.press("Enter");
  await page.getByRole("heading", { name: "Results of the replay" }).waitFor();
  await isFine(page, "a replay");
  await page.getByRole("textbox", { name: "Message" }).fill(MESSAGE);
  await page.getByRole("textbox", { name: "Caller" }).fill("nobody known");
  await page.getByRole("button", { name: "Show the effect" }).click();
  const described = await page.getByRole("textbox", { name: "Caller" }).getAttribute("aria-describedby");
  assert.match(await page.locator(`#${described}`).innerText(), /no principal/);
  await isFine(page, "an error at the caller");
  await page.getByRole("textbox", { name: "Caller" }).fill("admin");
  await page.keyboard.press("Enter");
  await page.getByRole("link", { name: "time__convert_time" }).waitFor();
  await isFine(page, "a message");
  await picture(page, "ui-learning-message");
  await page.getByRole("link", { name: "time__convert_time" }).click();
  await page.getByRole("heading", { name: "Evidence: time/convert_time" }).waitFor();
  await isFine(page, "the evidence");
  await page.goto(`${URL_OF}/ui/learning`);
  await page.getByRole("link", { name: "Everything that was learned" }).click();
  await isFine(page, "the question");
  await page.getByRole("button", { name: "Forget" }).click();
  await page.getByRole("status").filter({ hasText: "Forgotten" }).waitFor();
  assert.equal(await row.count(), 0);
  // The refused form is the one message that browsers log.
  assert.deepEqual(faults.filter((fault) => !fault.includes("422")), []);
});

test("the activity is watched live, paused and continued, by keyboard", async () => {
  const { page, context, faults } = await open();
  await signIn(page);
  const ask = async (chat) => {
    const body = JSON.stringify({ messages: [{ role: "user", content: "what <b>time</b> is it" }], chat_id: chat });
    const headers = { authorization: "Bearer console-suite-key", "content-type": "application/json" };
    const answer = await fetch(`${URL_OF}/v1/filter`, { method: "POST", headers, body });
    assert.equal(answer.status, 200);
  };
  await page.goto(`${URL_OF}/ui/activity`);
  const live = page.getByRole("button", { name: "Live" });
  const status = page.locator("[data-stream] [role=status]");
  await live.focus();
  await page.keyboard.press("Enter");
  assert.equal(await live.getAttribute("aria-pressed"), "true");
  await ask("live-1");
  await page.locator("tbody tr", { hasText: "live-1" }).waitFor();
  await page.waitForFunction(() => /^1 new$/.test(document.querySelector("[data-stream] [role=status]").textContent));
  assert.equal(await page.locator("tbody [aria-live], tbody[aria-live]").count(), 0);
  assert.ok(await live.evaluate((button) => button === document.activeElement), "new rows leave the focus where it is");
  await isFine(page, "live");
  await picture(page, "live");

  await page.keyboard.press("Enter");
  assert.equal(await status.innerText(), "Paused");
  await ask("live-2");
  // Longer than a stream takes to show it.
  await sleep(2500);
  assert.equal(await page.locator("tbody tr", { hasText: "live-2" }).count(), 0);
  await page.keyboard.press("Enter");
  await page.locator("tbody tr", { hasText: "live-2" }).waitFor();
  assert.equal(await page.locator("tbody tr", { hasText: "live-1" }).count(), 1, "nothing is shown twice");

  // Signed out elsewhere, the view ends.
  const other = await context.newPage();
  await other.goto(`${URL_OF}/ui`);
  await other.getByRole("button", { name: "Sign out" }).click();
  await page.waitForFunction(() => document.querySelector("[data-stream] button").getAttribute("aria-pressed") === "false");
  assert.deepEqual(faults, []);
  await context.close();
});

test("the slider shows its value, and a tool is run from the playground", async () => {
  const { page, context, faults } = await open();
  await signIn(page);
  await page.goto(`${URL_OF}/ui/playground`);
  const slider = page.getByRole("slider");
  await slider.focus();
  for (let step = 0; step < 5; step += 1) await page.keyboard.press("ArrowRight");
  assert.equal(await page.locator("output").innerText(), "0.5");
  await isFine(page, "playground with a slider");
  await page.locator("#message").fill(MESSAGE);
  await page.getByRole("button", { name: "Select tools" }).click();
  await page.getByText("With these settings").waitFor();
  await page.getByRole("link", { name: "Run" }).first().click();
  await page.getByRole("button", { name: "Call the tool" }).waitFor();
  await isFine(page, "the form of a tool");
  await picture(page, "run");
  assert.deepEqual(faults, []);
  await context.close();
});
