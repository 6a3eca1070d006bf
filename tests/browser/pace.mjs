// How fast the timeline of a report is: time until it can be used, and time of its frames. Prints JSON.
//
//     node pace.mjs CHROMIUM FILE.html [LOADS]
import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import { chromium } from "playwright-core";

const [executablePath, file, loads = "5"] = process.argv.slice(2);
const address = pathToFileURL(resolve(file)).href;
const browser = await chromium.launch({
  executablePath,
  args: ["--no-sandbox", "--disable-background-networking", "--disable-component-update", "--disable-gpu"],
});
const result = { ready_ms: [], first_paint_ms: [], frames_ms: {} };
for (let turn = 0; turn < Number(loads); turn += 1) {
  const page = await browser.newPage({ viewport: { width: 1280, height: 900 } });
  await page.goto(address, { waitUntil: "commit" });
  const ready = await page.evaluate(async () => {
    const found = () => performance.getEntriesByName("timeline-ready")[0];
    while (!found()) await new Promise((done) => setTimeout(done, 5));
    return found().startTime;
  });
  result.ready_ms.push(ready);
  result.first_paint_ms.push(await page.evaluate(() => performance.getEntriesByName("first-contentful-paint")[0]?.startTime ?? null));
  if (turn + 1 < Number(loads)) await page.close();
  else {
    // Each key press is followed by the frame that shows it: the time from one frame to the next
    // holds the drawing, the copying to the screen, and the wait for the screen's 60 Hz.
    const used = async (keys, before) => page.evaluate(async ([pressed, first]) => {
      const canvas = document.querySelector(".tl-canvas");
      const press = (key) => canvas.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
      const frame = () => new Promise((done) => requestAnimationFrame(done));
      canvas.scrollIntoView();
      for (const key of first) press(key);
      await frame();
      await frame();
      const times = [];
      for (const key of pressed) {
        press(key);
        const from = await frame();
        const to = await frame();
        times.push(to - from);
      }
      return times;
    }, [keys, before]);
    const repeat = (keys, times) => Array.from({ length: times }, () => keys).flat();
    result.frames_ms["whole recording, panned and zoomed"] = await used(repeat(["s", "w"], 20), ["Escape"]);
    result.frames_ms["zooming in"] = await used(repeat(["w"], 25), ["Escape"]);
    result.frames_ms["one step, panned"] = await used(repeat(["d", "d", "a"], 15), ["Escape", "]", "]"]);
    result.frames_ms["with inner calls"] = await (async () => {
      await page.locator("[data-tl=inner]").click();
      return used(repeat(["s", "w", "d"], 12), ["Escape"]);
    })();
    await page.locator("[data-tl=search]").fill("reduce");
    result.frames_ms["while searching"] = await used(repeat(["s", "w", "d"], 12), ["Escape"]);
    result.slices = await page.evaluate(() => document.querySelector("[data-tl=found]").textContent);
  }
}
await browser.close();
process.stdout.write(JSON.stringify(result));
