// Opens a report in Chromium as a reader would, without a network, and prints what happened as JSON.
//
//     node visit.mjs CHROMIUM FILE.html [SCREENSHOT PREFIX]
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [executablePath, file, pictures] = process.argv.slice(2);
const axe = readFileSync(createRequire(import.meta.url).resolve("axe-core/axe.min.js"), "utf8");
const address = pathToFileURL(resolve(file)).href;

const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-background-networking", "--disable-component-update"],
});

async function visit(name, { viewport = { width: 1280, height: 800 }, script = true, ...options }) {
  const context = await browser.newContext({
    offline: true, viewport, javaScriptEnabled: script, ...options,
  });
  const page = await context.newPage();
  const requests = [];
  const errors = [];
  page.on("request", (request) => {
    if (request.url() !== address && !/^(data|blob):/.test(request.url())) requests.push(request.url());
  });
  page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
  page.on("pageerror", (error) => errors.push(String(error)));
  const started = performance.now();
  await page.goto(address, { waitUntil: "load" });
  const loaded = performance.now() - started;
  if (script) {
    await page.waitForFunction(() => !document.getElementById("timeline-data") || performance.getEntriesByName("timeline-ready").length);
  }
  const text = await page.locator("body").innerText();
  const width = await page.locator("html").evaluate((element) => element.scrollWidth).catch(() => null);
  let violations = null;
  if (script) {
    // The page's own policy forbids foreign scripts, as it should: axe comes in through the debugger.
    await page.evaluate(axe);
    const found = await page.evaluate(() => globalThis.axe.run());
    violations = found.violations.map((violation) => ({
      rule: violation.id,
      nodes: violation.nodes.map((node) => node.target.join(" ")).slice(0, 5),
    }));
  }
  if (pictures) await page.screenshot({ path: `${pictures}-${name}.png`, fullPage: true });
  await context.close();
  return { requests, errors, violations, text, width, loaded_ms: Math.round(loaded) };
}

const result = {
  light: await visit("light", { colorScheme: "light" }),
  dark: await visit("dark", { colorScheme: "dark" }),
  narrow: await visit("narrow", { viewport: { width: 390, height: 844 } }),
  plain: await visit("plain", { script: false }),
};

const context = await browser.newContext({ offline: true });
const page = await context.newPage();
await page.goto(address, { waitUntil: "load" });
const paper = await page.pdf({ format: "A4" });
result.pdf_pages = paper.toString("latin1").match(/\/Type\s*\/Page\b/g).length;

await browser.close();
process.stdout.write(JSON.stringify(result));
