// How fast the pages are with 5,000 tools, in a real Chromium: the first paint of each page, and how long after a key the letter is there.
import { ask, launch, open, signIn, until, visit } from "./browser.mjs";
import { start, tool } from "./service.mjs";

const TOOLS = 5_000;
const ROUNDS = 15;
const LETTERS = 60;
/** The promised times, in milliseconds. */
const PAINT = 300;
const TYPING = 50;

const verbs = ["create", "read", "update", "delete", "list", "search", "send", "convert", "merge", "export"];
const nouns = ["issue", "file", "email", "event", "invoice", "branch", "page", "row", "message", "contact"];
const properties = { id: { type: "string", description: "Which one." }, fields: { type: "array", items: { type: "string" } } };
const tools = Array.from({ length: TOOLS }, (_, number) => {
  const [verb, noun] = [verbs[number % 10], nouns[Math.floor(number / 10) % 10]];
  const description = `${verb} one ${noun} of the workspace ${number}. Returns what was done.`;
  return tool(`${verb}_${noun}_${number}`, description, { inputSchema: { type: "object", properties } });
});

function quantile(times, share) {
  return times.toSorted((one, other) => one - other)[Math.min(times.length - 1, Math.floor(times.length * share))];
}

/** Prints the times, and returns whether nearly all of them are short enough. */
const line = (name, times, most) => {
  const [half, nearly, last] = [0.5, 0.95, 1].map((share) => quantile(times, share).toFixed(1).padStart(7));
  console.log(`${name.padEnd(46)} ${half} ${nearly} ${last}   ${quantile(times, 0.95) <= most ? "" : `over ${most} ms`}`);
  return quantile(times, 0.95) <= most;
};

const service = await start({ many: { tools } }, { tools: TOOLS });
const browser = await launch();
let isFast = true;
try {
  for (let number = 0; number < 50; number += 1) {
    const messages = [{ role: "user", content: `please send the email number ${number}` }];
    await ask(service.url, "/v1/filter", { messages, chat_id: `chat ${number}` });
  }
  const { page } = await open(browser);
  await signIn(page, service.url);
  console.log(`${TOOLS} tools; milliseconds${" ".repeat(22)}  median     p95     max`);
  const paths = [
    "/ui", "/ui/servers", "/ui/tools", "/ui/tools?text=invoice", "/ui/tools?offset=4950", "/ui/tool?server=many&tool=read_issue_1",
    "/ui/access", "/ui/access/keys", "/ui/access/toolsets", "/ui/activity", "/ui/playground",
  ];
  const sizes = [];
  for (const path of paths) {
    const times = [];
    for (let round = 0; round < ROUNDS; round += 1) {
      const bytes = await visit(page, service.url, path);
      const paint = () => page.evaluate(() => performance.getEntriesByName("first-paint")[0]?.startTime);
      times.push(await until("the first paint", paint));
      if (round === 0) sizes.push([path, bytes, await page.evaluate(() => document.querySelectorAll("*").length)]);
    }
    isFast = line(`first paint of ${path}`, times, PAINT) && isFast;
  }
  const fields = [["/ui/playground", /^Message/u, "textbox"], ["/ui/tools", /^Search/u, "searchbox"], ["/ui/access", "Groups", "textbox"]];
  for (const [path, label, role] of fields) {
    await page.goto(`${service.url}${path}`);
    const field = page.getByRole(role, { name: label }).last();
    await field.click();
    // From the key to the end of the first frame that was painted after it.
    await page.evaluate(() => {
      globalThis.typed = [];
      addEventListener("keydown", (event) => requestAnimationFrame(() => {
        const channel = new MessageChannel();
        channel.port1.onmessage = () => globalThis.typed.push(performance.now() - event.timeStamp);
        channel.port2.postMessage(0);
      }), true);
    });
    for (const letter of "send the email to Anna and then ".repeat(2).slice(0, LETTERS)) {
      await page.keyboard.press(letter === " " ? "Space" : letter, { delay: 5 });
    }
    isFast = line(`typing into a field of ${path}`, await page.evaluate(() => globalThis.typed), TYPING) && isFast;
  }
  console.log("\nbytes of the first visit, and elements");
  for (const [path, bytes, nodes] of sizes) console.log(`${path.padEnd(46)} ${String(bytes).padStart(7)} ${String(nodes).padStart(7)}`);
} finally {
  await browser.close();
  await service.stop();
}
process.exitCode = isFast ? 0 : 1;
