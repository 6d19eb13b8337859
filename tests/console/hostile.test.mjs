// Texts of servers, users and models are shown as texts on every page that a link leads to, and never run.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { ask, isFine, launch, open, signIn, until } from "./browser.mjs";
import { start, tool } from "./service.mjs";

const PAYLOADS = [
  `<script>globalThis.hacked=1</script>`,
  `"><img src=x onerror="globalThis.hacked=1">`,
  `' onmouseover='globalThis.hacked=1' x='`,
  `javascript:globalThis.hacked=1`,
  `</textarea></title><svg onload=globalThis.hacked=1>`,
  `a\u202Etxt.exe\u2066b`,
  `{{7*7}} \${7*7} &lt;b&gt; &#x27;`,
];
/** As long as a name can get, without a place to break it. */
const LONG = `a_long_name_${"x".repeat(488)}`;
/** The most pages that a crawl opens. */
const MOST = 120;
/** The only script, of the activity and the playground. */
const SCRIPT = '<script src="/ui/static/console.js" defer></script>';

let browser;
let service;

before(async () => {
  browser = await launch();
  const all = PAYLOADS.join(" ");
  const bad = (name, number) => tool(name, `${number}: ${all}`, {
    title: all, annotations: { title: all },
    inputSchema: {
      type: "object", title: all, description: all,
      properties: { [PAYLOADS[0]]: { type: "string", description: all, enum: PAYLOADS, default: all } },
    },
  });
  const unbroken = { type: "object", properties: { path: { type: "string", description: "p".repeat(400) } } };
  const long = tool(LONG, "d".repeat(2_000), { inputSchema: unbroken });
  const tools = [...PAYLOADS.map(bad), bad("fine", 99), long];
  const error = `It failed: ${all}`;
  const plain = [tool("get_time", "Says what time it is.")];
  const gone = { last_words: `fatal: ${"f".repeat(200)} ${all}` };
  service = await start({ bad: { tools, instructions: all, title: all, error }, clock: { tools: plain, result: all }, gone }, { tools: 2 });
  const as = { "x-openwebui-user-id": PAYLOADS[1], "x-openwebui-chat-id": PAYLOADS[0] };
  for (const payload of PAYLOADS) {
    const messages = [{ role: "user", content: `what time is it ${payload}` }];
    const user = { id: payload, email: payload, groups: [payload] };
    await ask(service.url, "/v1/filter", { messages, chat_id: payload, model: payload, user });
    await ask(service.url, "/v1/tools/search", { queries: [payload] }, { headers: as });
  }
  await ask(service.url, "/clock/get_time", {}, { headers: as });
  await ask(service.url, "/bad/fine", {}, { headers: as });
  const written = { description: all, synonyms: [`time ${PAYLOADS[0]}`], tags: [PAYLOADS[0].slice(0, 60)], pinned: true };
  await ask(service.url, "/v1/admin/tools/clock/get_time", written, { method: "PUT" });
  const toolset = { description: all, servers: ["clock"], exclude: [PAYLOADS[0]] };
  await ask(service.url, "/v1/admin/toolsets/clock", toolset, { method: "PUT" });
  const rule = { effect: "block", tools: ["none"], groups: PAYLOADS.slice(0, 2), models: [PAYLOADS[2]] };
  await ask(service.url, "/v1/admin/policy", { rules: [rule] }, { method: "PUT" });
  await ask(service.url, "/v1/admin/keys", { name: "ci", groups: PAYLOADS.slice(0, 2) });
  // A definition that changes is shown with its difference. The server's own texts are read when it starts.
  const changed = [...PAYLOADS.map(bad), bad("fine", 100), bad("new", 101), long];
  service.write("bad", { tools: changed, instructions: `${all} again`, title: all, error });
  await ask(service.url, "/v1/admin/servers/bad/restart", {});
  await until("everything is recorded", async () => (await ask(service.url, "/v1/admin/usage")).body.totals.called >= 2);
});

after(async () => {
  await browser?.close();
  await service?.stop();
});

/** What of a page is not a text: `[]` if everything is. */
function suspicious() {
  const found = [];
  for (const element of document.querySelectorAll("*")) {
    const name = element.localName;
    const isOurs = element.matches("head > script[src='/ui/static/console.js']");
    if (!isOurs && ["script", "img", "iframe", "object", "embed", "base"].includes(name)) found.push(element.outerHTML.slice(0, 200));
    if (name === "svg" && !element.matches("main svg, header svg")) found.push(element.outerHTML.slice(0, 200));
    for (const { name: attribute, value } of element.attributes) {
      if (attribute.startsWith("on") || attribute === "style") found.push(`${name} ${attribute}=${value}`);
      if (["href", "src", "action", "formaction"].includes(attribute) && new URL(value, location.href).origin !== location.origin) {
        found.push(`${name} ${attribute}=${value}`);
      }
    }
  }
  if (globalThis.hacked !== undefined) found.push("a text ran as a script");
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode;
    if (!/[\u202A-\u202E\u2066-\u2069]/u.test(node.data)) continue;
    // A direction that a text sets must end with the text. Blocks and isolated elements end it.
    const style = getComputedStyle(node.parentElement);
    const ends = style.display !== "inline" || style.unicodeBidi.includes("isolate") || style.unicodeBidi === "plaintext";
    if (!ends && !node.parentElement.closest("option, textarea, title")) {
      found.push(`direction: ${node.parentElement.outerHTML.slice(0, 200)}`);
    }
  }
  return found;
}

/** Opens all pages that links lead to. Returns their paths with their texts. */
async function crawl(page) {
  const seen = new Map();
  const waiting = ["/ui"];
  while (waiting.length > 0 && seen.size < MOST) {
    const path = waiting.shift();
    if (seen.has(path)) continue;
    const answer = await page.goto(`${service.url}${path}`);
    assert.ok(answer.status() < 500, `${path}: ${answer.status()}`);
    const source = await answer.text();
    assert.ok(!/<script|<img/iu.test(source.replace(SCRIPT, "")), path);
    assert.deepEqual(await page.evaluate(suspicious), [], path);
    // What a form contains is not part of the text.
    const fields = await page.locator("input, textarea").evaluateAll((all) => all.map(({ value }) => value));
    seen.set(path, [await page.locator("body").innerText(), ...fields].join("\n"));
    const links = await page.locator("a[href^='/ui']").evaluateAll((all) => all.map(({ pathname, search }) => pathname + search));
    for (const link of new Set(links)) if (!seen.has(link)) waiting.push(link);
  }
  return seen;
}

test("every page that a link leads to shows the texts and runs none", async () => {
  const { page, faults } = await open(browser);
  await signIn(page, service.url);
  await until("the changed definitions are there", async () => {
    await page.goto(`${service.url}/ui/servers`);
    return (await page.locator("main").innerText()).includes("again");
  });
  const seen = await crawl(page);
  console.log(`${seen.size} pages`);
  for (const path of ["/ui", "/ui/servers", "/ui/tools", "/ui/access", "/ui/access/keys", "/ui/access/toolsets", "/ui/activity", "/ui/playground"]) {
    assert.ok(seen.has(path), path);
  }
  const texts = [...seen.values()].join("\n");
  for (const payload of PAYLOADS.filter((payload) => !/[\u202A-\u202E\u2066-\u2069]/u.test(payload))) {
    assert.ok(texts.includes(payload), `${payload} is shown nowhere`);
  }
  const about = (start) => [...seen].filter(([path]) => path.startsWith(start)).map(([, text]) => text).join("\n");
  for (const start of [
    "/ui/tool?", "/ui/tools", "/ui/servers", "/ui/server?", "/ui/activity", "/ui/activity/chat", "/ui/access", "/ui/access/keys",
    "/ui/access/toolset?",
  ]) {
    assert.ok(about(start).includes("<script>globalThis.hacked=1</script>"), `${start} shows nothing hostile, so that it proves nothing`);
  }
  assert.ok(about("/ui/server?server=gone").includes("fatal:"), "the last words of a server");
  assert.deepEqual(faults.filter((fault) => !/40[0-9]|422/u.test(fault)), []);
});

test("what is typed into forms comes back as a text", async () => {
  const { page, faults } = await open(browser);
  await signIn(page, service.url);
  for (const payload of PAYLOADS) {
    for (const [path, label, button] of [
      ["/ui/playground", "Message", "Select tools"],
      ["/ui/playground", /^As caller/u, "Select tools"],
      ["/ui/access", "Groups", "See the effect"],
      ["/ui/access/keys", /^Name/u, "Create"],
      ["/ui/access/toolset", /^Name/u, "Save"],
      ["/ui/server", /^Entry/u, "Save"],
      ["/ui/tool?server=clock&tool=get_time", /^Synonyms/u, "Save"],
      ["/ui/activity", /^Tool/u, "Filter"],
      ["/ui/tools", /^Search/u, "Search"],
    ]) {
      await page.goto(`${service.url}${path}`);
      if (path === "/ui/playground" && label !== "Message") await page.getByLabel("Message").fill("what time is it");
      if (path === "/ui/server") await page.getByLabel(/^Name/u).fill("x");
      const role = path === "/ui/tools" ? "searchbox" : "textbox";
      await page.getByRole(role, { name: label }).last().fill(payload);
      await page.getByRole("button", { name: button, exact: true }).last().click();
      await page.waitForLoadState();
      assert.deepEqual(await page.evaluate(suspicious), [], `${path}: ${payload}`);
    }
  }
  assert.deepEqual(faults.filter((fault) => !/40[0-9]|422/u.test(fault)), []);
});

test("long texts make no page wider, and leave the words beside them whole", async () => {
  const { page, context } = await open(browser, { viewport: { width: 360, height: 740 } });
  await signIn(page, service.url);
  const of = (name) => `server=bad&tool=${encodeURIComponent(name)}`;
  for (const path of [
    "/ui/tools?server=bad", "/ui/server?server=gone", `/ui/tool?${of(LONG)}`, `/ui/run?${of(LONG)}`, `/ui/tool?${of("fine")}`,
    "/ui/activity",
  ]) {
    await page.goto(`${service.url}${path}`);
    await isFine(page, path);
  }
  await page.goto(`${service.url}/ui/tools?server=bad`);
  // One line is as high as the text of a button.
  const state = page.getByRole("row").filter({ hasText: "a_long_name" }).locator("td span").first();
  assert.ok((await state.boundingBox()).height < 30, "a word is broken into letters");
  await context.close();
});

test("the playground shows why a tool was left out in words, not in letters below each other", async () => {
  const { page, context } = await open(browser);
  await signIn(page, service.url);
  await page.goto(`${service.url}/ui/playground`);
  await page.getByLabel("Message").fill("what time is it?");
  await page.getByLabel("limit").fill("-5");
  await page.getByRole("button", { name: "Select tools" }).click();
  assert.equal(await page.locator("#limit:invalid").count(), 1, "the browser refuses what the service would");
  await page.getByLabel("limit").fill("1");
  await page.getByRole("button", { name: "Select tools" }).click();
  const reason = page.locator("tbody td", { hasText: "no: " }).last();
  assert.ok((await reason.boundingBox()).height < 150, await reason.innerText());
  await context.close();
});
