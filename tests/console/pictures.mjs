// The pictures of the documentation, from a service with the real servers of the quickstart.
import assert from "node:assert/strict";
import { statSync } from "node:fs";

import { ask, launch, open, picture, ready, signIn, until } from "./browser.mjs";

const url = process.env.TOOLSIEVE_URL;
/** The most that a picture may have, in bytes. */
const MOST = 150_000;
const MESSAGES = [
  ["What time is it in Tokyo?", "time/get_current_time", { timezone: "Asia/Tokyo" }],
  [
    "Convert 14:30 from Berlin to New York", "time/convert_time",
    { source_timezone: "Europe/Berlin", time: "14:30", target_timezone: "America/New_York" },
  ],
  ["Which folders may you use?", "filesystem/list_allowed_directories", {}],
  ["What do you remember about Anna?", "memory/search_nodes", { query: "Anna" }],
  ["How late is it in Lima?", "time/get_current_time", { timezone: "America/Lima" }],
  ["Remember that Anna likes trains", "memory/read_graph", {}],
  ["thanks!"],
];

const browser = await launch();
try {
  await ready(url, 40);
  for (const [number, [message, tool, body]] of [...MESSAGES, ...MESSAGES].entries()) {
    const chat = `chat-${number}`;
    await ask(url, "/v1/filter", { messages: [{ role: "user", content: message }], chat_id: chat, model: "gpt-5-mini" });
    if (tool) await ask(url, `/${tool}`, body, { headers: { "x-openwebui-chat-id": chat } });
  }
  await until("everything is recorded", async () => (await ask(url, "/v1/admin/usage")).body.totals.called >= 12);
  const { page } = await open(browser, { viewport: { width: 1280, height: 860 } });
  await signIn(page, url);
  const take = async (name) => {
    const path = await picture(page, name, {});
    const { size } = statSync(path);
    console.log(`${path}: ${size} bytes`);
    assert.ok(size <= MOST, `${name} has ${size} bytes`);
  };
  await take("console-overview");
  await page.goto(`${url}/ui/servers`);
  await take("console-servers");
  await page.goto(`${url}/ui/playground`);
  await page.getByLabel("Message").fill("What time is it in Tokyo? Then show the last commits of the repository.");
  await page.getByRole("button", { name: "Select tools" }).click();
  await page.getByRole("heading", { name: "The message needs a tool." }).scrollIntoViewIfNeeded();
  await page.evaluate(() => document.querySelector(".pair").scrollIntoView());
  await take("console-playground");
} finally {
  await browser.close();
}
