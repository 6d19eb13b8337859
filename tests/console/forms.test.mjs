// Two administrators at once, and sessions that end while somebody types: no form loses what was entered.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { KEY, ask, isFine, launch, open, signIn } from "./browser.mjs";
import { start, tool } from "./service.mjs";

let browser;
let service;

before(async () => {
  browser = await launch();
  const tools = [tool("get_time", "Says what time it is."), tool("set_alarm", "Sets an alarm.")];
  service = await start({ clock: { tools } }, { tools: 2 });
  await ask(service.url, "/v1/admin/servers/remote", { url: "http://127.0.0.1:9/mcp" }, { method: "PUT" });
  await ask(service.url, "/v1/admin/toolsets/day", { servers: ["clock"] }, { method: "PUT" });
});

after(async () => {
  await browser?.close();
  await service?.stop();
});

/** The forms: where they are, what is typed, and how the result is read. */
const FORMS = [
  {
    name: "a tool's texts", path: "/ui/tool?server=clock&tool=get_time", label: "Description",
    texts: ["Written by one.", "Written by the other."],
    stored: async () => (await ask(service.url, "/v1/admin/tools/clock/get_time")).body.written?.description,
  },
  {
    name: "a toolset", path: "/ui/access/toolset?name=day", label: "Description",
    texts: ["Tools of one.", "Tools of the other."],
    stored: async () => (await ask(service.url, "/v1/admin/toolsets/day")).body.description,
  },
  {
    name: "a server's entry", path: "/ui/server?server=remote", label: /^Entry/u,
    texts: ['{"url": "http://127.0.0.1:9/one"}', '{"url": "http://127.0.0.1:9/other"}'],
    stored: async () => (await ask(service.url, "/v1/admin/servers/remote")).body.entry.url,
  },
  {
    name: "the rules", path: "/ui/access", label: "Groups", draft: true,
    texts: ["interns", "guests"], stored: async () => JSON.stringify((await ask(service.url, "/v1/admin/policy")).body.rules),
  },
];
/** The part of an entered text that every view of it shows. */
const part = (text) => text.match(/127[^"]*/u)?.[0] ?? text;

for (const form of FORMS) {
  test(`two administrators change ${form.name}`, async () => {
    const people = [await open(browser), await open(browser)];
    for (const [number, { page }] of people.entries()) {
      await signIn(page, service.url);
      await page.goto(`${service.url}${form.path}`);
      await page.getByLabel(form.label).last().fill(form.texts[number]);
      if (form.draft) await page.getByRole("button", { name: "See the effect" }).last().click();
    }
    const [one, other] = people.map(({ page }) => page);
    await one.getByRole("button", { name: "Save", exact: true }).click();
    await one.waitForLoadState();
    assert.ok((await form.stored()).includes(part(form.texts[0])), "the first one is saved");
    await other.getByRole("button", { name: "Save", exact: true }).click();
    await other.getByText("somebody else has saved this").waitFor();
    await isFine(other, form.name);
    // Both versions are there: one as a text, the other in the form or in the draft.
    const values = await other.locator("input, textarea").evaluateAll((all) => all.map(({ value }) => value));
    const seen = [await other.locator("main").innerText(), ...values].join(" ");
    for (const text of form.texts) assert.ok(seen.includes(part(text)), `${text}: ${seen}`);
    assert.ok((await form.stored()).includes(part(form.texts[0])), "nothing is overwritten yet");
    await other.getByRole("button", { name: "Save", exact: true }).click();
    await other.waitForLoadState();
    assert.ok((await form.stored()).includes(part(form.texts[1])), "the second one has seen both and decides");
    for (const { faults, context } of people) {
      // Browsers log the refused form.
      assert.deepEqual(faults.filter((fault) => !fault.includes("412")), []);
      await context.close();
    }
  });

  test(`a session ends while somebody changes ${form.name}`, async () => {
    const { page, context } = await open(browser);
    await signIn(page, service.url);
    await page.goto(`${service.url}${form.path}`);
    const text = form.texts[0].replace("one", "late").replace("interns", "late");
    await page.getByLabel(form.label).last().fill(text);
    if (form.draft) await page.getByRole("button", { name: "See the effect" }).last().click();
    await context.clearCookies();
    await page.getByRole("button", { name: "Save", exact: true }).click();
    await page.getByText("Your session has ended").waitFor();
    await isFine(page, "the sign-in");
    await page.getByLabel("Admin key").fill("a guess");
    await page.keyboard.press("Enter");
    await page.getByRole("alert").filter({ hasText: "not the admin key" }).waitFor();
    await page.getByLabel("Admin key").fill(KEY);
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Send it now" }).waitFor();
    await isFine(page, "what will be sent");
    assert.ok((await page.locator("main").innerText()).includes(part(text)), "what was entered is shown");
    assert.ok(!(await form.stored()).includes(part(text)), "nothing is sent unseen");
    await page.getByRole("button", { name: "Send it now" }).click();
    await page.waitForLoadState();
    assert.ok((await form.stored()).includes(part(text)), "and saved");
    await context.close();
  });
}

test("a session ends while somebody creates a key, approves, or asks", async () => {
  for (const [path, label, text, button, result] of [
    ["/ui/access/keys", "Name", "late-key", "Create", "late-key"],
    ["/ui/playground", "Message", "what time is it", "Select tools", "Candidates"],
  ]) {
    const { page, context } = await open(browser);
    await signIn(page, service.url);
    await page.goto(`${service.url}${path}`);
    await page.getByRole("textbox", { name: label }).first().fill(text);
    await context.clearCookies();
    await page.getByRole("button", { name: button, exact: true }).click();
    await page.getByLabel("Admin key").fill(KEY);
    await page.keyboard.press("Enter");
    await page.getByRole("button", { name: "Send it now" }).click();
    await page.getByText(result).first().waitFor();
    await context.close();
  }
});
