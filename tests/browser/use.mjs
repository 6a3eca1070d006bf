// Uses a report as a reader would: theme, sorting, copying, saving, folding, the keyboard. Prints JSON.
//
//     node use.mjs CHROMIUM FILE.html
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
  offline: true,
  viewport: { width: 1280, height: 800 },
  colorScheme: "light",
  acceptDownloads: true,
  permissions: ["clipboard-read", "clipboard-write"],
});
const page = await context.newPage();
const errors = [];
const dialogs = [];
page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
page.on("pageerror", (error) => errors.push(String(error)));
page.on("dialog", (dialog) => { dialogs.push(dialog.message()); dialog.dismiss(); });
await page.goto(address, { waitUntil: "load" });
const result = { errors, dialogs };

// What stands above the fold.
result.seen = await page.evaluate(() => {
  const bottom = (selector) => document.querySelector(selector)?.getBoundingClientRect().bottom ?? null;
  return { h1: bottom("h1"), next: bottom(".next"), ruler: bottom(".ruler"), answers: bottom(".answers"), trust: bottom(".trust, .trusted") };
});

// Theme: automatic, light, dark, and remembered.
const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
result.themes = [await ground()];
for (let turn = 0; turn < 3; turn += 1) {
  await page.click("#theme");
  result.themes.push(await ground());
  if (turn === 1) {
    await page.reload({ waitUntil: "load" });
    result.remembered = await ground();
  }
}

// Sorting: the column of kernel times, down, up, and by name.
const kernels = page.locator("#kernels table").first();
if (await kernels.count()) {
  const column = async (index) => kernels.evaluate(
    (table, at) => Array.from(table.tBodies[0].rows, (row) => row.cells[at].textContent.trim()), index);
  const header = (index) => kernels.locator("thead th").nth(index);
  if (await header(3).locator("button").count()) {
    await header(2).locator("button").click();
    result.sorted = { down: await column(2), state: await header(2).getAttribute("aria-sort") };
    await header(2).locator("button").click();
    result.sorted.up = await column(2);
    await header(0).locator("button").click();
    result.sorted.names = await column(0);
  }
}

// Copy and save.
await page.click("#copy");
await page.waitForFunction(() => document.getElementById("copy").textContent === "Copied");
result.copied = await page.evaluate(() => navigator.clipboard.readText());
const [download] = await Promise.all([page.waitForEvent("download"), page.click("#save")]);
result.saved_name = download.suggestedFilename();
result.saved = await readFile(await download.path(), "utf8");

// Links into folded findings open them; the skip link is the first stop of the keyboard.
result.opened = await page.evaluate(async () => {
  const second = document.getElementById("finding-2");
  if (!second) return null;
  location.hash = "#finding-2";
  await new Promise((done) => setTimeout(done, 50));
  return second.open;
});
await page.goto(address);
await page.keyboard.press("Tab");
result.first_stop = await page.evaluate(() => document.activeElement.textContent.trim());
const ring = () => page.evaluate(() => getComputedStyle(document.activeElement).outlineStyle);
result.ring = await ring();

// No part of the page is wider than the page.
result.overflow = {};
for (const width of [1280, 960, 720, 390, 320]) {
  await page.setViewportSize({ width, height: 800 });
  result.overflow[width] = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
}

// Targets a finger can hit.
await page.setViewportSize({ width: 1280, height: 800 });
result.small_targets = await page.evaluate(() => Array.from(document.querySelectorAll("button, summary, nav a"))
  .filter((node) => { const box = node.getBoundingClientRect(); return box.width && (box.height < 23.5 || box.width < 23.5); })
  .map((node) => node.outerHTML.slice(0, 120)));

// On paper: light whatever the theme, findings open, the bar gone.
await page.evaluate(() => document.documentElement.setAttribute("data-theme", "dark"));
await page.emulateMedia({ media: "print" });
result.print = await page.evaluate(() => ({
  ground: getComputedStyle(document.body).backgroundColor,
  bar: getComputedStyle(document.querySelector(".bar")).display,
}));
await page.emulateMedia({ media: null });
result.pages = {};
for (const format of ["A4", "Letter"]) {
  const paper = await page.pdf({ format });
  result.pages[format] = paper.toString("latin1").match(/\/Type\s*\/Page\b/g).length;
}

// Without scripts: everything but the buttons.
const plain = await browser.newContext({ offline: true, javaScriptEnabled: false });
const still = await plain.newPage();
await still.goto(address);
result.plain_text = await still.locator("main").innerText();
result.plain_buttons = await still.locator("button:visible").count();

await browser.close();
process.stdout.write(JSON.stringify(result));
