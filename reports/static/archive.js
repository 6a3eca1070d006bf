// Theme, sorting, filtering and saving of the archive index. The page is complete without any of it.
"use strict";
(function () {
  const root = document.documentElement;
  root.classList.add("js");

  // Theme: automatic, light, dark; remembered where the browser lets us, together with the reports.
  const THEMES = ["auto", "light", "dark"];
  const SAID = { auto: "as the system", light: "light", dark: "dark" };
  const REMEMBERED = "trace-analyzer-theme";
  function remembered() {
    try {
      const value = window.localStorage.getItem(REMEMBERED);
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

  function themes(button, told) {
    function say() {
      const words = "Theme: " + SAID[theme];
      button.setAttribute("aria-label", words);
      button.title = words;
      button.textContent = { auto: "◐", light: "○", dark: "●" }[theme];
    }
    say();
    button.addEventListener("click", function () {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      apply(theme);
      say();
      told.textContent = "Theme: " + SAID[theme];
      try {
        window.localStorage.setItem(REMEMBERED, theme);
      } catch {
        // A file opened from disk may not remember: the choice holds until the page is closed.
      }
    });
  }

  // Sorting: numbers by the value that the row carries, text as it reads; unknown last; stable.
  function valueOf(row, header) {
    const by = header.dataset.by;
    if (!by) return row.cells[header.cellIndex].textContent.trim() || null;
    return row.dataset[by] === "" ? null : parseFloat(row.dataset[by]);
  }
  function sortBy(table, header) {
    const now = header.getAttribute("aria-sort");
    const numeric = Boolean(header.dataset.by);
    const first = numeric ? "descending" : "ascending";
    const other = numeric ? "ascending" : "descending";
    const next = now === first ? other : first;
    for (const cell of table.tHead.rows[0].cells) {
      cell.removeAttribute("aria-sort");
      cell.querySelectorAll(".arrow").forEach((arrow) => arrow.remove());
    }
    header.setAttribute("aria-sort", next);
    const arrow = document.createElement("span");
    arrow.className = "arrow";
    arrow.setAttribute("aria-hidden", "true");
    arrow.textContent = next === "descending" ? "▼ " : "▲ ";
    header.querySelector("button").prepend(arrow);
    const sign = next === "descending" ? -1 : 1;
    const rows = Array.from(table.tBodies[0].rows, (row) => ({ row, value: valueOf(row, header) }));
    rows.sort(function (a, b) {
      if (a.value === null || b.value === null) return (a.value === null) - (b.value === null);
      if (numeric) return sign * (a.value - b.value);
      return sign * a.value.localeCompare(b.value, "en", { numeric: true });
    });
    table.tBodies[0].append(...rows.map((item) => item.row));
  }
  function makeSortable(table) {
    for (const header of table.tHead.rows[0].cells) {
      if (header.classList.contains("plain-head")) continue;
      const head = header.querySelector(".head");
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => sortBy(table, header));
    }
  }

  // Filtering by text, by cause and by gain.
  function filters(table) {
    const text = document.getElementById("text");
    const least = document.getElementById("least");
    const left = document.getElementById("left");
    const picks = Array.from(document.querySelectorAll(".pick"));
    let key = "";
    function filter() {
      const words = text.value.toLowerCase().split(/\s+/).filter(Boolean);
      const ms = parseFloat(least.value.replace(/,/g, "")) || 0;
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        const fits =
          (key === "" || row.dataset.key === key) &&
          (ms === 0 || parseFloat(row.dataset.gain) >= ms) &&
          words.every((word) => row.dataset.words.includes(word));
        row.hidden = !fits;
        if (fits) shown += 1;
      }
      left.textContent = shown === table.tBodies[0].rows.length ? "" : shown + " shown";
    }
    for (const pick of picks) {
      pick.addEventListener("click", function () {
        key = pick.dataset.key;
        picks.forEach((other) => other.setAttribute("aria-pressed", String(other === pick)));
        filter();
      });
    }
    text.addEventListener("input", filter);
    least.addEventListener("change", filter);
    filter();
  }

  // Save CSV: the rows that are shown. A cell that a spreadsheet would compute is made text.
  function field(text) {
    const plain = text.replace(/\s+/g, " ").trim();
    const safe = /^[=+@\-\t]/.test(plain) ? "'" + plain : plain;
    return '"' + safe.replace(/"/g, '""') + '"';
  }
  function save(table) {
    const lines = [["run", "report", "gpus", "step_ms", "main_cause", "ranks", "recoverable_ms", "of_step", "warnings"]];
    for (const row of table.tBodies[0].rows) {
      if (row.hidden) continue;
      const cell = (index) => row.cells[index].textContent;
      const link = row.cells[0].querySelector("a");
      lines.push([
        row.cells[0].title || (link || row.cells[0].firstChild).textContent, link ? link.getAttribute("href") : "", cell(1), row.dataset.step,
        cell(4), cell(5), row.dataset.gain, row.dataset.share, cell(9),
      ]);
    }
    const text = lines.map((line) => line.map(field).join(",")).join("\r\n") + "\r\n";
    const url = URL.createObjectURL(new Blob(["\ufeff", text], { type: "text/csv" }));
    const link = document.createElement("a");
    link.href = url;
    link.download = "runs.csv";
    link.click();
    setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  document.addEventListener("DOMContentLoaded", function () {
    themes(document.getElementById("theme"), document.getElementById("told"));
    const table = document.getElementById("table");
    const csv = document.getElementById("csv");
    if (table) {
      makeSortable(table);
      filters(table);
      csv.addEventListener("click", () => save(table));
    } else csv.hidden = true;

    // A frame that does not scroll is no stop for the Tab key.
    function stops() {
      for (const frame of document.querySelectorAll(".scroll")) {
        frame.tabIndex = frame.scrollWidth > frame.clientWidth ? 0 : -1;
      }
    }
    stops();
    window.addEventListener("resize", stops);
  });
})();
