// Everyday tasks: each takes at most three clicks from the overview. Typing is no click; sending a form is one, also with Enter.
import assert from "node:assert/strict";
import { after, before, beforeEach, test } from "node:test";

import { KEY, ask, isFine, launch, open, signIn, until } from "./browser.mjs";
import { shows, start, tool } from "./service.mjs";

const MOST = 3;
const MAIL = [
  tool("send_email", "Sends an email to a person."),
  tool("list_inbox", "Lists the newest emails of the inbox."),
  tool("delete_email", "Deletes an email for good."),
];
const CLOCK = [tool("get_time", "Says what time it is in a city."), tool("set_alarm", "Sets an alarm for a time of the day.")];
const MESSAGE = "What time is it in Tokyo?";

let browser;
let service;
let page;
let faults;
let clicks;

before(async () => {
  browser = await launch();
  service = await start({ mail: { tools: MAIL }, clock: { tools: CLOCK } }, { tools: 5 });
  await ask(service.url, "/v1/filter", { messages: [{ role: "user", content: MESSAGE }], chat_id: "chat-of-anna", model: "gpt" });
  await ask(service.url, "/clock/get_time", {}, { headers: { "x-openwebui-chat-id": "chat-of-anna" } });
  ({ page, faults } = await open(browser));
  await signIn(page, service.url);
});

beforeEach(async () => {
  await page.goto(`${service.url}/ui`);
  clicks = 0;
});

after(async () => {
  await browser?.close();
  await service?.stop();
});

async function click(target) {
  clicks += 1;
  await target.click();
}

async function enter() {
  clicks += 1;
  await page.keyboard.press("Enter");
}

/** The task is done, and the page that shows it is fine. */
async function done(name) {
  assert.ok(clicks <= MOST, `${name}: ${clicks} clicks`);
  await isFine(page, name);
  assert.deepEqual(faults, []);
  console.log(`${name}: ${clicks} clicks`);
}

const link = (name) => page.getByRole("link", { name, exact: true }).first();
const button = (name) => page.getByRole("button", { name, exact: true });
const textbox = (name) => page.getByRole("textbox", { name, exact: true });
const saved = (text) => page.getByRole("status").filter({ hasText: text }).waitFor();

test("find out why a tool was not offered", async () => {
  await click(link("Playground"));
  await page.getByLabel("Message").fill(MESSAGE);
  await click(button("Select tools"));
  const row = page.getByRole("row").filter({ hasText: "mail__delete_email" });
  assert.match(await row.innerText(), /no: score too far below the best/);
  await done("why a tool was not offered");
});

test("block a tool for a group", async () => {
  await click(link("Access"));
  await textbox("Tools").fill("delete_email");
  await textbox("Groups").fill("interns");
  await click(button("See the effect").last());
  assert.match(await page.getByRole("row").filter({ hasText: "interns" }).first().innerText(), /mail__delete_email/);
  await click(button("Save"));
  await saved("saved");
  const check = { principal: "user:7", groups: ["interns"], tool: "mail__delete_email" };
  const { body } = await ask(service.url, "/v1/admin/policy/check", check);
  assert.equal(body.decisions[0].effect, "block", JSON.stringify(body));
  await done("block a tool for a group");
});

test("approve a changed definition", async () => {
  service.write("clock", { tools: [tool("get_time", "Says what time it is in any city of the world."), CLOCK[1]] });
  await shows(page, `${service.url}/ui/servers`, "any city of the world");
  await page.goto(`${service.url}/ui`);
  await click(link("Servers"));
  await click(page.getByRole("button", { name: "Approve: clock/get_time" }));
  await saved("approved");
  await done("approve a changed definition");
});

test("restart a server", async () => {
  await click(link("clock"));
  await click(button("Restart"));
  await saved("restarted");
  await done("restart a server");
});

test("pin a tool", async () => {
  await click(link("Tools"));
  await page.getByRole("searchbox").fill("alarm");
  await enter();
  await page.waitForURL(`${service.url}/ui/tools?*alarm*`);
  await click(page.getByRole("button", { name: "Pin: clock / set_alarm" }));
  await saved("saved");
  const { body } = await ask(service.url, "/v1/admin/tools/clock/set_alarm");
  assert.equal(body.pinned, true);
  await done("pin a tool");
});

test("revoke a key", async () => {
  const { body: key } = await ask(service.url, "/v1/admin/keys", { name: "lost" });
  await click(link("Keys"));
  await click(page.getByRole("link", { name: "Revoke: lost" }));
  await click(button("Revoke"));
  await saved("revoked");
  const answer = await fetch(`${service.url}/openapi.json`, { headers: { authorization: `Bearer ${key.key}` } });
  assert.equal(answer.status, 401);
  await done("revoke a key");
});

test("see what a chat did", async () => {
  await shows(page, `${service.url}/ui/activity`, "success");
  await page.goto(`${service.url}/ui`);
  await click(link("Activity"));
  await click(link("chat-of-anna"));
  const story = await page.locator("main").innerText();
  for (const part of [MESSAGE, "Tools selected", "clock/get_time", "Called"]) assert.ok(story.includes(part), `${part}: ${story}`);
  await done("see what a chat did");
});

test("see how much money was saved last week", async () => {
  await until("the savings are recorded", async () => {
    const { body } = await ask(service.url, "/v1/admin/usage");
    return body.costs.totals.tokens_saved > 0;
  });
  await click(link("Last 7 days"));
  const card = page.getByRole("listitem").filter({ hasText: "Money saved" });
  assert.match(await card.innerText(), /0\.0\d*[1-9]\d* EUR\s+Last 7 days/);
  await done("see how much money was saved last week");
});

test("the key is in no address", () => assert.ok(!page.url().includes(KEY)));
