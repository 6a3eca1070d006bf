// Uses the index page of an archive as a reader would: filters, sorts, saves. Prints JSON.
//
//     node archive.mjs CHROMIUM FILE.html
import { readFile } from "node:fs/promises";
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [executablePath, file] = process.argv.slice(2);
const address = pathToFileURL(resolve(file)).href;
const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-background-networking", "--disable-component-update"],
});
const context = await browser.newContext({
  offline: true, viewport: { width: 1340, height: 800 }, acceptDownloads: true,
});
const page = await context.newPage();
const errors = [];
page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
page.on("pageerror", (error) => errors.push(String(error)));
page.on("dialog", (dialog) => { errors.push(dialog.message()); dialog.dismiss(); });
await page.goto(address, { waitUntil: "load" });

const names = () => page.evaluate(() => Array.from(document.querySelectorAll("#table tbody tr"))
  .filter((row) => !row.hidden).map((row) => row.cells[0].textContent.replace("†", "").trim()));
const result = { errors, all: await names() };

const picks = page.locator(".pick");
if (await picks.count() > 1) {
  await picks.nth(1).click();
  result.picked = await names();
  result.pressed = await page.evaluate(() => Array.from(document.querySelectorAll(".pick"))
    .filter((pick) => pick.getAttribute("aria-pressed") === "true").length);
  result.left = await page.locator("#left").textContent();
  await picks.nth(0).click();
}
await page.fill("#text", "slow RANK");
result.found = await names();
await page.fill("#text", "");
await page.selectOption("#least", { index: 2 });
result.large = await names();
await page.selectOption("#least", { index: 0 });

const header = (index) => page.locator("#table thead th").nth(index);
await header(2).locator("button").click();
result.down = await names();
result.state = await header(2).getAttribute("aria-sort");
await header(2).locator("button").click();
result.up = await names();
await header(0).locator("button").click();
result.named = await names();

const [download] = await Promise.all([page.waitForEvent("download"), page.click("#csv")]);
result.saved = await readFile(await download.path(), "utf8");
result.overflow = await page.evaluate(() =>
  document.documentElement.scrollWidth - document.documentElement.clientWidth);
await browser.close();
process.stdout.write(JSON.stringify(result));
