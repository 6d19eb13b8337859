// An MCP server over standard streams. A JSON file says what it lists and answers: {tools, instructions, result, error, last_words}.
// When the file changes, it reports that its tools have changed.
import { readFileSync, watchFile } from "node:fs";
import { createInterface } from "node:readline";

const file = process.argv[2];
const says = () => JSON.parse(readFileSync(file, "utf8"));
const send = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);

if (says().last_words) {
  process.stderr.write(`${says().last_words}\n`);
  process.exit(4);
}
watchFile(file, { interval: 50 }, () => send({ method: "notifications/tools/list_changed" }));

createInterface({ input: process.stdin }).on("line", (line) => {
  const { id, method, params } = JSON.parse(line);
  if (id === undefined || method === undefined) return;
  const { tools = [], instructions, title, result = "done", error } = says();
  const answers = {
    initialize: () => ({
      protocolVersion: params.protocolVersion,
      capabilities: { tools: { listChanged: true } },
      serverInfo: { name: "suite", title, version: "1.0.0" },
      instructions,
    }),
    ping: () => ({}),
    "tools/list": () => ({ tools }),
    "tools/call": () => ({ content: [{ type: "text", text: error ?? result }], isError: error !== undefined }),
  };
  if (answers[method]) send({ id, result: answers[method]() });
  else send({ id, error: { code: -32601, message: "no such method" } });
}).on("close", () => process.exit(0));
