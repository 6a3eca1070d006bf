// Takes the pictures of docs/report.md from a report. Look at them before you commit them.
//
//     node tests/browser/pictures.mjs CHROMIUM samples/slow_cpu_rank/report.html docs/pictures
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [executablePath, file, folder] = process.argv.slice(2);
const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-background-networking", "--disable-component-update"],
});

async function page(options, hash = "") {
  const context = await browser.newContext({ offline: true, viewport: { width: 1280, height: 1000 }, ...options });
  const opened = await context.newPage();
  await opened.goto(pathToFileURL(resolve(file)).href + hash, { waitUntil: "load" });
  await opened.waitForFunction(() => performance.getEntriesByName("timeline-ready").length);
  await opened.waitForTimeout(500);
  return opened;
}
const take = (target, name, options = {}) => target.screenshot({ path: `${folder}/${name}.png`, ...options });

const light = await page({ colorScheme: "light" });
await take(light, "verdict");
await take(light.locator(".timeline"), "timeline");

const dark = await page({ colorScheme: "dark" }, "#t=95-98.5&r=1");
await dark.locator("[data-tl=inner]").click();
await dark.waitForTimeout(300);
await take(dark.locator(".timeline"), "timeline-dark");

const narrow = await page({ viewport: { width: 390, height: 844 }, colorScheme: "light" });
await take(narrow, "narrow");

await browser.close();
