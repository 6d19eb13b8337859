// A service of a suite's own, with servers that the suite can change while it runs.
import { spawn } from "node:child_process";
import { createServer } from "node:net";
import { mkdtempSync, openSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

import { KEY, ready, until } from "./browser.mjs";

const SERVER = join(dirname(fileURLToPath(import.meta.url)), "server.mjs");

/** Prices, and everything that the pages can show. */
export const SETTINGS = `
[selection]
narrow_above_tokens = 0
[definitions]
changes = "quarantine"
[learning]
message_text = true
[access]
trust_users = true
[usage]
currency = "EUR"
[[price]]
model = "*"
input = 2.5
output = 10.0
`;

export const tool = (name, description, more = {}) => ({ name, description, inputSchema: { type: "object", properties: {} }, ...more });

function freePort() {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => resolve(port));
    });
  });
}

/** Starts a service. `servers` are what each server's file contains (server.mjs). */
export async function start(servers, { settings = SETTINGS, tools = 1 } = {}) {
  const folder = mkdtempSync(join(tmpdir(), "console-suite-"));
  const at = (name) => join(folder, name);
  const entries = {};
  const write = (name, says) => writeFileSync(at(`${name}.json`), JSON.stringify(says));
  for (const [name, says] of Object.entries(servers)) {
    write(name, says);
    entries[name] = { command: process.execPath, args: [SERVER, at(`${name}.json`)] };
  }
  writeFileSync(at("mcp.config.json"), JSON.stringify({ mcpServers: entries }));
  writeFileSync(at("toolsieve.toml"), settings);
  const port = await freePort();
  const log = openSync(at("log"), "w");
  const words = ["--config", at("mcp.config.json"), "--settings", at("toolsieve.toml"), "--data-dir", at("data"), "--port", String(port)];
  const env = { ...process.env, TOOLSIEVE_API_KEY: "console-suite-key", TOOLSIEVE_ADMIN_KEY: KEY };
  const child = spawn(process.env.TOOLSIEVE_BIN, ["serve", ...words], { env, stdio: ["ignore", log, log] });
  const ended = new Promise((resolve) => child.once("exit", resolve));
  const url = `http://127.0.0.1:${port}`;
  const stop = async () => {
    child.kill("SIGTERM");
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    await ready(url, tools);
  } catch (error) {
    const text = readFileSync(at("log"), "utf8").slice(-4000);
    await stop();
    throw new Error(`${error.message}\n${text}`);
  }
  return { url, write, stop };
}

/** Waits until a page contains a text, which appears a moment after its cause. */
export function shows(page, address, text) {
  return until(`${address} shows ${text}`, async () => {
    await page.goto(address);
    return (await page.locator("main").innerText()).includes(text);
  });
}
