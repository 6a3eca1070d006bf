// Theme, sorting, copy and save. The page is complete without any of it.
"use strict";
(function () {
  const root = document.documentElement;
  root.classList.add("js");

  // Theme: automatic, light, dark; remembered where the browser lets us.
  const THEMES = ["auto", "light", "dark"];
  const SAID = { auto: "as the system", light: "light", dark: "dark" };
  function remembered() {
    try {
      const value = window.localStorage.getItem("trace-analyzer-theme");
      return THEMES.includes(value) ? value : "auto";
    } catch {
      return "auto";
    }
  }
  function apply(theme) {
    if (theme === "auto") root.removeAttribute("data-theme");
    else root.setAttribute("data-theme", theme);
  }
  let theme = remembered();
  apply(theme);

  function embedded(id) {
    return document.getElementById(id).textContent;
  }

  // Save JSON: the embedded text, indented without reading the numbers, so that the saved file has
  // the bytes that the command line writes.
  const PLAIN = /^[<>&\u007f-\u009f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]$/;
  function stringEnd(text, start) {
    let at = start + 1;
    while (text[at] !== '"') at += text[at] === "\\" ? 2 : 1;
    return at + 1;
  }
  function unescaped(text) {
    return text.replace(/\\(u[0-9a-f]{4}|.)/g, function (whole, code) {
      if (code.length === 1) return whole;
      const character = String.fromCharCode(parseInt(code.slice(1), 16));
      return PLAIN.test(character) ? character : whole;
    });
  }
  function indented(text) {
    const out = [];
    let depth = 0;
    let at = 0;
    const newline = () => "\n" + "  ".repeat(depth);
    while (at < text.length) {
      const mark = text[at];
      if (mark === '"') {
        const end = stringEnd(text, at);
        out.push(unescaped(text.slice(at, end)));
        at = end;
        continue;
      }
      if (mark === "{" || mark === "[") {
        if (text[at + 1] === "}" || text[at + 1] === "]") {
          out.push(mark, text[at + 1]);
          at += 2;
          continue;
        }
        depth += 1;
        out.push(mark, newline());
      } else if (mark === "}" || mark === "]") {
        depth -= 1;
        out.push(newline(), mark);
      } else if (mark === ",") out.push(mark, newline());
      else if (mark === ":") out.push(": ");
      else out.push(mark);
      at += 1;
    }
    return out.join("") + "\n";
  }
  function save() {
    const text = embedded("report");
    const saved = JSON.parse(text);
    const name = (saved.run || saved).name.replace(/[^\w.-]+/g, "_").slice(0, 80) || "run";
    const url = URL.createObjectURL(new Blob([indented(text)], { type: "application/json" }));
    const link = document.createElement("a");
    link.href = url;
    link.download = name + ".trace-report.json";
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  // Copy summary: the verdict as markdown.
  function copyByHand(text) {
    const area = document.createElement("textarea");
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
  async function copy(button, told) {
    const text = JSON.parse(embedded("summary"));
    let done = true;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      done = copyByHand(text);
    }
    const before = button.textContent;
    button.textContent = done ? "Copied" : "Not copied";
    told.textContent = done ? "Summary copied" : "The browser refused to copy";
    setTimeout(() => {
      button.textContent = before;
      told.textContent = "";
    }, 2000);
  }

  // Sorting: numbers by value, unknown last, stable.
  function valueOf(cell) {
    const text = cell.textContent.trim();
    const number = /^[<>≤≈▲ ]*([−-]?[\d,]+(?:\.\d+)?)/.exec(text);
    if (number) return parseFloat(number[1].replace(/,/g, "").replace("−", "-"));
    return text === "–" || text === "unknown" || text === "" ? null : text;
  }
  function compare(a, b) {
    if (a === null || b === null) return a === b ? 0 : a === null ? Infinity : -Infinity;
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b), "en", { numeric: true });
  }
  function sortBy(table, header) {
    const index = header.cellIndex;
    const numeric = header.classList.contains("n");
    const now = header.getAttribute("aria-sort");
    const next = now === "descending" ? "ascending" : now === "ascending" ? "descending" : numeric ? "descending" : "ascending";
    for (const other of table.tHead.rows[0].cells) {
      other.removeAttribute("aria-sort");
      other.querySelectorAll(".arrow").forEach((arrow) => arrow.remove());
    }
    header.setAttribute("aria-sort", next);
    const arrow = document.createElement("span");
    arrow.className = "arrow";
    arrow.setAttribute("aria-hidden", "true");
    arrow.textContent = next === "descending" ? "▼ " : "▲ ";
    header.querySelector("button").prepend(arrow);
    const body = table.tBodies[0];
    const sign = next === "descending" ? -1 : 1;
    const rows = Array.from(body.rows, (row) => ({ row, value: valueOf(row.cells[index]) }));
    rows.sort((a, b) => {
      const order = compare(a.value, b.value);
      return Number.isFinite(order) ? sign * order : order > 0 ? 1 : -1;
    });
    body.append(...rows.map((item) => item.row));
  }
  function makeSortable(table) {
    for (const header of table.tHead.rows[0].cells) {
      const head = header.querySelector(".head");
      if (!head || header.cellIndex < 0) continue;
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sortBy(table, header));
    }
  }

  document.addEventListener("DOMContentLoaded", function () {
    const told = document.getElementById("told");
    const themeButton = document.getElementById("theme");
    function sayTheme() {
      const words = "Theme: " + SAID[theme];
      themeButton.setAttribute("aria-label", words);
      themeButton.title = words;
      themeButton.textContent = theme === "auto" ? "◐" : theme === "light" ? "○" : "●";
    }
    sayTheme();
    themeButton.addEventListener("click", function () {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      apply(theme);
      sayTheme();
      told.textContent = "Theme: " + SAID[theme];
      try {
        window.localStorage.setItem("trace-analyzer-theme", theme);
      } catch {
        // A file opened from disk may not remember: the choice holds until the page is closed.
      }
    });
    const copyButton = document.getElementById("copy");
    copyButton.addEventListener("click", () => copy(copyButton, told));
    const saveButton = document.getElementById("save"); // absent where the page has no room for it
    if (saveButton) saveButton.addEventListener("click", save);
    document.querySelectorAll("table[data-sort]").forEach(makeSortable);

    // A frame that does not scroll is no stop for the Tab key.
    function stops() {
      for (const frame of document.querySelectorAll(".scroll")) {
        frame.tabIndex = frame.scrollWidth > frame.clientWidth ? 0 : -1;
      }
    }
    stops();
    window.addEventListener("resize", stops);

    // A link to a finding opens it.
    function openTarget() {
      const target = document.getElementById(location.hash.slice(1));
      if (target && target.matches("details")) target.open = true;
    }
    window.addEventListener("hashchange", openTarget);
    openTarget();

    // On paper the findings are open; lists of hundreds of rows stay as they are.
    let opened = [];
    window.addEventListener("beforeprint", function () {
      opened = Array.from(document.querySelectorAll("details.finding:not([open])"));
      opened.forEach((item) => { item.open = true; });
    });
    window.addEventListener("afterprint", function () {
      opened.forEach((item) => { item.open = false; });
    });
  });
})();
