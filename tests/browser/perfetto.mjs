// Opens a trace in Perfetto's own UI, without a network, and prints what its SQL answers as JSON.
//
//     node perfetto.mjs CHROMIUM ADDRESS QUERIES.json
import { readFileSync } from "node:fs";
import { chromium } from "playwright-core";

const [executablePath, address, queries] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-background-networking", "--disable-component-update"],
});
const page = await browser.newPage();
const errors = [];
page.on("pageerror", (error) => errors.push(String(error)));
await page.goto(`${address}/#!/?url=${address}/run.json.gz`, { waitUntil: "load" });
await page.waitForFunction(() => globalThis.app?.trace !== undefined, null, { timeout: 120_000 });
const answers = {};
for (const [name, sql] of Object.entries(JSON.parse(readFileSync(queries, "utf8")))) {
  answers[name] = await page.evaluate(async (text) => {
    const result = await globalThis.app.trace.engine.query(text);
    const columns = result.columns();
    const rows = [];
    for (const row = result.iter({}); row.valid(); row.next()) {
      rows.push(columns.map((column) => {
        const value = row.get(column);
        return typeof value === "bigint" ? Number(value) : value;
      }));
    }
    return rows;
  }, sql);
}
await browser.close();
process.stdout.write(JSON.stringify({ answers, errors }));
