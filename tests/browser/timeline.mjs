// Uses the timeline of a report as a reader would: keys, pointer, fingers, search, links. Prints JSON.
//
//     node timeline.mjs CHROMIUM FILE.html
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
  offline: true, viewport: { width: 1280, height: 900 }, colorScheme: "light", hasTouch: true,
});
const page = await context.newPage();
const errors = [], requests = [], dialogs = [];
page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
page.on("pageerror", (error) => errors.push(String(error)));
page.on("dialog", (dialog) => { dialogs.push(dialog.message()); dialog.dismiss(); });
page.on("request", (request) => {
  if (request.url().split("#")[0] !== address && !/^(data|blob):/.test(request.url())) requests.push(request.url());
});
const ready = () => page.waitForFunction(() => performance.getEntriesByName("timeline-ready").length > 0);
const part = (name) => page.locator(`[data-tl=${name}]`);
const text = async (name) => (await part(name).textContent()).replaceAll("\u00a0", " ");
const shown = async () => {
  await page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  const [from, to] = /([\d.,]+) – ([\d.,]+) ms/.exec(await text("span")).slice(1).map((ms) => Number(ms.replaceAll(",", "")));
  return { step: await text("step"), from, to };
};
const press = (...keys) => page.evaluate((pressed) => {
  const canvas = document.querySelector(".tl-canvas");
  for (const key of pressed) canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
}, keys);
const picked = async () => Object.fromEntries(await Promise.all(
  ["name", "where", "time", "size", "shape", "wait", "bus", "launched", "full"].map(async (name) => [name, await text(name)])));
const color = (x, y) => page.evaluate(([px, py]) => {
  const canvas = document.querySelector(".tl-canvas");
  const scale = canvas.width / canvas.clientWidth;
  return [...canvas.getContext("2d").getImageData(px * scale, py * scale, 1, 1).data].slice(0, 3);
}, [x, y]);
const visible = (selector) => page.locator(selector).first().isVisible();
const result = { errors, requests, dialogs };

await page.goto(address, { waitUntil: "load" });
await ready();
result.live = { live: await visible(".tl-live"), still: await visible(".tl-still"), problem: await visible(".tl-problem") };
result.first = await shown();
result.said = await text("said");
result.labels = await page.locator(".tl-names > *").evaluateAll((nodes) => nodes.map((node) => node.textContent.trim()));

// Keys
await press("Escape");
result.whole = await shown();
await press("]");
result.step = await shown();
await press("]");
result.next_step = await shown();
await press("w", "w", "w");
result.closer = await shown();
await press("s", "s", "s", "d");
result.panned = await shown();
await press("Escape", "]", "]", "ArrowRight");
result.slice = await picked();
await press("ArrowDown");
result.lane_below = await picked();
await page.waitForTimeout(700);
result.spoken = await text("told");
await press("Enter");
result.full_open = await part("more").evaluate((node) => node.open);
result.buttons_have_names = await page.locator(".tl-live button").evaluateAll((nodes) => nodes.every((node) => node.textContent.trim() || node.getAttribute("aria-label")));

// Search
await press("/");
result.search_focus = await page.evaluate(() => document.activeElement.dataset.tl);
await page.keyboard.type("allreduce");
result.found = await text("found");
await page.keyboard.press("Enter");
result.found_slice = await picked();
await page.keyboard.press("Escape");
result.search_left = await text("found");

// Findings
await press("n");
result.mark = { ...(await shown()), ...(await picked()), link: await part("finding").evaluate((node) => node.hidden ? null : node.getAttribute("href")) };
await press("n");
result.second_mark = await shown();
await press("p");
result.back_mark = await shown();
const links = page.locator("a[data-t]");
result.links = await links.count();
if (result.links) {
  await links.first().click();
  await page.waitForTimeout(1200); // the page may scroll smoothly
  result.jump = { ...(await shown()), hash: await page.evaluate(() => location.hash), focus: await page.evaluate(() => document.activeElement.className),
    top: await page.locator("#timeline").evaluate((node) => Math.round(node.getBoundingClientRect().top)) };
  await page.reload({ waitUntil: "load" });
  await ready();
  result.again = await shown();
  await page.waitForTimeout(600);
  result.kept = await page.evaluate(() => location.hash);
}

// Pointer
await page.locator(".tl-canvas").scrollIntoViewIfNeeded();
await press("Escape", "]", "]");
const before = await shown();
const box = await page.locator(".tl-canvas").boundingBox();
await page.mouse.move(box.x + 500, box.y + 90);
await page.mouse.down();
await page.mouse.move(box.x + 450, box.y + 92, { steps: 4 });
await page.mouse.move(box.x + 400, box.y + 92, { steps: 4 });
await page.mouse.up();
const after = await shown();
result.dragged_ms = after.from - before.from;
result.dragged_share = (after.from - before.from) / (before.to - before.from) * box.width;
const scroll = () => page.evaluate(() => Math.round(scrollY));
const top = await scroll();
await page.mouse.wheel(0, -120);
await page.waitForTimeout(200);
result.wheel_scrolls = (await scroll()) - top;
const plain = await shown();
await page.locator(".tl-canvas").scrollIntoViewIfNeeded();
const now = await page.locator(".tl-canvas").boundingBox();
await page.mouse.move(now.x + 500, now.y + 90);
await page.keyboard.down("Control");
await page.mouse.wheel(0, -120);
await page.keyboard.up("Control");
await page.waitForTimeout(100);
const zoomed = await shown();
result.wheel = { plain: plain.to - plain.from, zoomed: zoomed.to - zoomed.from };
await page.locator(".tl-strip").click({ position: { x: 30, y: 30 } });
result.strip = await shown();

// Two fingers
const session = await context.newCDPSession(page);
const touch = (type, ...points) => session.send("Input.dispatchTouchEvent", { type, touchPoints: points.map(([x, y], id) => ({ x, y, id })) });
await press("Escape", "]", "]");
const wide = await shown();
const y = now.y + 90;
await touch("touchStart", [now.x + 400, y]);
await touch("touchStart", [now.x + 400, y], [now.x + 500, y]);
for (let i = 1; i <= 5; i += 1) await touch("touchMove", [now.x + 400 - 20 * i, y], [now.x + 500 + 20 * i, y]);
await touch("touchEnd");
await page.waitForTimeout(100);
const pinched = await shown();
result.pinch = (wide.to - wide.from) / (pinched.to - pinched.from);

// Ranks open and close, and keep the keyboard
const ranks = page.locator(".tl-rank");
result.expanded = await ranks.evaluateAll((nodes) => nodes.map((node) => node.getAttribute("aria-expanded")));
const tall = (await page.locator(".tl-canvas").boundingBox()).height;
await ranks.first().click();
result.closed = { height: (await page.locator(".tl-canvas").boundingBox()).height - tall,
  expanded: await ranks.evaluateAll((nodes) => nodes.map((node) => node.getAttribute("aria-expanded"))),
  focus: await page.evaluate(() => document.activeElement.textContent) };

// Themes and paper
result.ground = { light: await color(2, 8) };
await page.emulateMedia({ colorScheme: "dark" });
await shown();
result.ground.dark = await color(2, 8);
await page.emulateMedia({ colorScheme: "light", media: "print" });
result.paper = { live: await visible(".tl-live"), still: await visible(".tl-still") };
await page.emulateMedia({ media: null });

// A browser that cannot unpack, and one without scripts
async function elsewhere(options, script) {
  const other = await browser.newContext({ offline: true, ...options });
  if (script) await other.addInitScript(script);
  const tab = await other.newPage();
  tab.on("pageerror", (error) => errors.push(String(error)));
  await tab.goto(address, { waitUntil: "load" });
  await tab.waitForTimeout(300);
  const seen = {
    live: await tab.locator(".tl-live").isVisible(), still: await tab.locator(".tl-still").isVisible(),
    problem: (await tab.locator(".tl-problem").isVisible()) ? await tab.locator(".tl-problem").textContent() : "",
  };
  await other.close();
  return seen;
}
result.old = await elsewhere({}, () => { delete globalThis.DecompressionStream; });
result.damaged = await elsewhere({}, () => { globalThis.atob = () => "not deflated"; });
result.plain = await elsewhere({ javaScriptEnabled: false });

await browser.close();
process.stdout.write(JSON.stringify(result));
