// The timeline a reader zooms into: layout, keys, pointer, search. The static picture stays for
// paper, and for browsers that cannot unpack the columns.
"use strict";
(function () {
  const root = document.querySelector(".timeline");
  const source = document.getElementById("timeline-data");
  if (!root || !source) return;
  const R = TimelineRead, D = TimelineDraw;
  const HEIGHT = [14, 13, 24, 24], GAP = [1, 2, 4, 4]; // by kind of lane: ranges, host, stream, NCCL
  const RANK_PX = 26, FOLDED_PX = 26, FLAG_PX = 17, FLAG_ROWS = 3, TOP_PX = 38, STRIP_PX = 64;
  const TALLEST_PX = 4000, MOST_LANES = 12, NEAR_PX = 3, LEAST_NS = 200, SAY_EVERY_MS = 500;
  const NBSP = "\u00a0";
  const part = (name) => root.querySelector("[data-tl=" + name + "]");
  const canvas = part("canvas"), strip = part("strip"), side = part("labels");

  if (typeof DecompressionStream === "undefined") {
    part("problem").textContent =
      "This browser cannot unpack the zoomable timeline (it lacks DecompressionStream, which browsers have since 2023). The picture below stands in.";
    part("problem").hidden = false;
    return;
  }
  R.read(JSON.parse(source.textContent)).then(start, function (error) {
    part("problem").textContent = "The zoomable timeline could not be unpacked (" + error + "). The picture below stands in.";
    part("problem").hidden = false;
  });

  function start(model) {
    const unit = model.unit_ns;
    const perMs = 1e6 / unit;
    const pen = canvas.getContext("2d", { alpha: false });
    const stripPen = strip.getContext("2d", { alpha: false });
    const byRank = new Map(model.ranks.map((rank) => [rank.rank, rank]));
    const opened = new Set(model.opened);
    const unfolded = new Set(); // groups whose ranks are shown one by one
    const state = {
      from: model.view[0], to: model.view[1], width: 0, scale: 1, colors: null, rows: [], height: 0,
      inner: false, every: new Set(), picked: null, hovered: null, mark: -1, search: null,
    };
    const counts = new Float64Array(model.types.name.length);
    let operations = 0;
    for (const rank of model.ranks) {
      for (const lane of rank.lanes) {
        for (let i = 0; i < lane.slices; i += 1) {
          if (lane.type[i] < R.TOGETHER) counts[lane.type[i]] += 1;
          operations += 1;
        }
      }
    }

    // Words

    const fixed = (value, digits) => value.toLocaleString("en-US", { minimumFractionDigits: digits, maximumFractionDigits: digits });
    const short = (value) => (value >= 100 ? fixed(value, 0) : value >= 10 ? fixed(value, 1) : fixed(value, 2));
    function duration(units) {
      const ns = units * unit;
      if (ns >= 1e6) return short(ns / 1e6) + NBSP + "ms";
      if (ns >= 1e3) return short(ns / 1e3) + NBSP + "µs";
      return fixed(ns, 0) + NBSP + "ns";
    }
    function size(bytes) {
      for (const [limit, name] of [[1e9, "GB"], [1e6, "MB"], [1e3, "kB"]]) {
        if (bytes >= limit) return fixed(bytes / limit, 1) + NBSP + name;
      }
      return fixed(bytes, 0) + NBSP + "B";
    }
    const OPERATIONS = {
      allreduce: "AllReduce", allgather: "AllGather", reducescatter: "ReduceScatter", alltoall: "AllToAll",
      sendrecv: "SendRecv", broadcast: "Broadcast", reduce: "Reduce", gather: "Gather", scatter: "Scatter",
      send: "Send", recv: "Recv", barrier: "Barrier",
    };
    const detailOf = (type) => (model.types.detail[type] >= 0 ? model.details[model.types.detail[type]] : {});
    model.shown = function (type) {
      const operation = detailOf(type).operation;
      if (operation) return OPERATIONS[operation] || operation;
      const name = model.types.name[type];
      return model.short[name] || model.names[name] || "(no name)";
    };
    function bandwidth(lane, i) {
      const type = lane.type[i];
      const factor = detailOf(type).factor, bytes = model.types.bytes[type];
      const moved = (lane.end[i] - lane.start[i] - lane.wait[i]) * unit;
      return factor && bytes > 0 && lane.wait[i] >= 0 && moved > 0 ? (factor * bytes) / moved : null;
    }
    const rate = (value) => (value >= 10 ? fixed(value, 0) : fixed(value, 1)) + NBSP + "GB/s";
    const told = new Map();
    model.collective = function (lane, i) {
      const key = lane.lane + ":" + i;
      let words = told.get(key);
      if (words) return words;
      const type = lane.type[i], bytes = model.types.bytes[type];
      const weight = bytes >= 0 ? size(bytes) : "";
      const waits = lane.wait[i], moves = duration(lane.end[i] - lane.start[i] - Math.max(waits, 0));
      const fast = bandwidth(lane, i);
      const named = [model.shown(type), weight].filter(Boolean).join(" ");
      words = {
        wait: waits > 0 ? "wait " + duration(waits) : "",
        waitLong: waits > 0 ? named + " · wait " + duration(waits) : "",
        move: [weight, moves].filter(Boolean).join(" · "),
        moveLong: [waits < 0 ? named : weight, moves, fast ? rate(fast) : ""].filter(Boolean).join(" · "),
        size: weight,
      };
      if (told.size > 5000) told.clear();
      told.set(key, words);
      return words;
    };

    // Layout: rows from top to bottom, and their labels beside the canvas

    model.ranks.forEach((rank) => rank.lanes.forEach((lane, at) => { lane.lane = rank.rank + "." + at; }));
    const codes = [];
    for (const mark of model.marks) if (!codes.includes(mark.number)) codes.push(mark.number);
    const flagRows = Math.min(codes.length, FLAG_ROWS);
    const flagRow = (mark) => Math.min(codes.indexOf(mark.number), FLAG_ROWS - 1);

    function lanesOf(rank) {
      const lanes = rank.lanes.filter((lane) => lane.level === 0 || state.inner);
      return state.every.has(rank.rank) ? lanes : lanes.slice(0, MOST_LANES * (state.inner ? 2 : 1));
    }
    function folds() {
      const rows = [];
      for (const [name, members] of model.folded) {
        if (members.length > 1 && !unfolded.has(name)) {
          const closed = members.filter((rank) => !opened.has(rank));
          if (closed.length) rows.push({ name, members: closed, group: name });
        } else for (const rank of members) if (!opened.has(rank)) rows.push({ name: "Rank " + rank, members: [rank] });
      }
      for (const rank of model.opened) if (!opened.has(rank)) rows.push({ name: "Rank " + rank, members: [rank] });
      return rows.sort((a, b) => a.members[0] - b.members[0]);
    }
    function layout() {
      const rows = [];
      let y = TOP_PX + flagRows * FLAG_PX + 4;
      for (const rank of model.ranks) {
        if (!opened.has(rank.rank)) continue;
        rows.push({ what: "rank", rank, y, height: RANK_PX });
        y += RANK_PX;
        const lanes = lanesOf(rank);
        for (const lane of lanes) {
          const height = HEIGHT[lane.kind];
          rows.push({ what: "lane", rank, lane, y, height });
          y += height + GAP[lane.kind];
        }
        const hidden = rank.lanes.filter((lane) => lane.level === 0 || state.inner).length - lanes.length;
        if (hidden) {
          rows.push({ what: "more", rank, hidden, y, height: RANK_PX });
          y += RANK_PX;
        }
        y += 6;
      }
      for (const fold of folds()) {
        rows.push({ what: "fold", ...fold, y, height: FOLDED_PX });
        y += FOLDED_PX + 2;
      }
      state.rows = rows;
      state.height = Math.min(y + 4, TALLEST_PX);
      labels();
      resize();
    }
    function element(tag, text, cls) {
      const node = document.createElement(tag);
      node.textContent = text;
      if (cls) node.className = cls;
      return node;
    }
    function place(node, row, offset) {
      node.style.top = row.y + (offset || 0) + "px";
      side.append(node);
    }
    function labels() {
      side.replaceChildren();
      side.style.height = state.height + "px";
      for (const row of state.rows) {
        if (row.what === "lane") {
          const text = row.lane.level ? "↳ inside" : row.lane.label.replace(/^(host · )thread \d+ \((.+)\)$/, "$1$2");
          const node = element("span", text, row.lane.level ? "tl-lane quiet" : "tl-lane");
          node.title = row.lane.label;
          place(node, row, row.height / 2 - 8);
          continue;
        }
        const number = row.what === "fold" && row.members.length > 1 ? null : row.what === "fold" ? row.members[0] : row.rank.rank;
        const guilty = row.what === "fold" ? row.members.some((rank) => model.blamed.includes(rank)) : model.blamed.includes(number);
        const node = element("button", "", "tl-rank");
        node.type = "button";
        if (row.what === "more") {
          node.append(element("span", "+ " + row.hidden + " lanes"));
          node.addEventListener("click", () => { state.every.add(number); layout(); });
        } else {
          const open = row.what === "rank";
          node.setAttribute("aria-expanded", String(open));
          node.append(element("span", open ? "▾ " : "▸ ", "quiet"));
          node.append(element(open ? "strong" : "span", (open ? "Rank " + number : row.name) + (guilty ? " ▲" : ""), guilty ? "blamed" : ""));
          if (open) node.append(element("span", " " + (row.rank.gpu || ""), "quiet"));
          node.addEventListener("click", () => toggle(row, open, number));
        }
        place(node, row, 1);
      }
    }
    function toggle(row, open, number) {
      if (open) opened.delete(number);
      else if (number === null) unfolded.add(row.group);
      else opened.add(number);
      layout();
      if (state.height >= TALLEST_PX) say("The timeline is as high as it can be: close a rank to see more.");
      const again = side.querySelectorAll("button");
      const at = state.rows.filter((item) => item.what !== "lane").findIndex((item) => item.what === "fold" ? item.members.includes(number ?? row.members[0]) : item.rank.rank === number);
      if (again[at]) again[at].focus({ preventScroll: true });
    }
    function resize() {
      const width = canvas.parentElement.clientWidth;
      state.scale = Math.min(window.devicePixelRatio || 1, 2);
      state.width = width;
      for (const [node, height] of [[canvas, state.height], [strip, STRIP_PX]]) {
        node.style.height = height + "px";
        node.width = Math.max(1, Math.round(width * state.scale));
        node.height = Math.round(height * state.scale);
      }
      state.painter = D.Painter(pen, state.scale);
      recolor();
    }
    function recolor() {
      state.colors = D.palette(pen, state.scale);
      paintStrip();
      redraw();
    }

    // Painting

    let asked = 0;
    function redraw() {
      if (!asked) asked = requestAnimationFrame(draw);
    }
    const x = (time) => ((time - state.from) / (state.to - state.from)) * state.width;
    const timeAt = (px) => state.from + (px / state.width) * (state.to - state.from);

    function ticks() {
      const span = (state.to - state.from) / perMs;
      const wished = span / Math.max(3, Math.min(12, state.width / 90));
      const power = 10 ** Math.floor(Math.log10(wished));
      const step = [1, 2, 5, 10].map((factor) => factor * power).find((value) => value >= wished);
      const digits = Math.max(0, -Math.floor(Math.log10(step) + 1e-9));
      const found = [];
      for (let k = Math.ceil(state.from / perMs / step); k * step * perMs < state.to; k += 1) {
        found.push([k * step * perMs, fixed(k * step, Math.min(digits, 6))]);
      }
      return found;
    }
    function line(px, top, bottom, color) {
      pen.fillStyle = color;
      pen.fillRect(Math.round(px * state.scale) / state.scale, top, 1 / state.scale, bottom - top);
    }
    function draw() {
      asked = 0;
      const { colors, width, height } = state;
      pen.setTransform(state.scale, 0, 0, state.scale, 0, 0);
      pen.fillStyle = colors.bg;
      pen.fillRect(0, 0, width, height);
      pen.font = D.FONT;
      const marks = ticks();
      marks.forEach(([time, text], at) => {
        const px = x(time);
        line(px, 18, height, colors.grid);
        const shown = at === 0 ? text + NBSP + "ms" : text;
        const room = D.textWidth(pen, shown) / 2;
        pen.textAlign = "center";
        pen.fillStyle = colors.muted;
        if (px + room < width) pen.fillText(shown, Math.max(px, room), 12);
      });
      steps();
      for (const row of state.rows) {
        if (row.what === "lane") state.painter.lane(row.lane, model, view(width), row.y, row.height, colors, state.search);
        else if (row.what === "fold") folded(row);
      }
      notes();
      flags();
      selection();
      frame();
      head();
    }
    const view = (width) => ({ from: state.from, to: state.to, width });

    function steps() {
      const { colors } = state;
      const lead = model.ranks.find((rank) => opened.has(rank.rank)) || model.ranks[0];
      pen.font = D.BOLD;
      pen.textAlign = "left";
      lead.steps.forEach(([number, begin, end], at) => {
        const left = Math.max(x(begin), 0), room = Math.min(x(end), state.width) - left;
        const text = "step " + number;
        if (room >= D.textWidth(pen, text) + 10) D.label(pen, text, left + 4, 32, room, colors.fg, null);
        if (at === lead.steps.length - 1 && x(end) > 0 && x(end) < state.width - 60) {
          D.label(pen, "end of step " + number, x(end) + 4, 32, 100, colors.muted, null);
        }
      });
      pen.textAlign = "center";
      for (const row of state.rows) {
        if (row.what !== "rank") continue;
        const own = state.rows.filter((item) => item.what === "lane" && item.rank === row.rank);
        const bottom = own.length ? own[own.length - 1].y + own[own.length - 1].height : row.y + row.height;
        const bounds = new Set(row.rank.steps.flatMap(([, begin, end]) => [begin, end]));
        const seen = [...bounds].filter((time) => time >= state.from && time <= state.to);
        if (seen.length <= state.width / 6) for (const time of seen) line(x(time), row.y + 2, bottom, colors.fg);
      }
    }
    function folded(row) {
      const { colors, painter } = state;
      const lanes = row.members.map((rank) => byRank.get(rank).lanes.filter((lane) => lane.kind >= 2));
      const upper = 14, lower = 8;
      if (lanes.length === 1) {
        for (const lane of lanes[0]) {
          const comm = lane.kind === 3;
          painter.shaded(lane, lane.sums, view(state.width), row.y + (comm ? upper + 2 : 0), comm ? lower : upper, colors);
        }
        return;
      }
      painter.mean(lanes, R.COMPUTE, view(state.width), row.y, upper, colors.compute);
      painter.mean(lanes, R.WAIT, view(state.width), row.y + upper + 2, lower, colors.wait);
      painter.mean(lanes, R.TRANSFER, view(state.width), row.y + upper + 2, lower, colors.comm);
    }
    function notes() {
      const { colors } = state;
      for (const mark of model.marks) {
        if (!mark.note || mark.end < state.from || mark.start > state.to) continue;
        const rows = state.rows.filter((row) => row.what === "lane" && row.rank.rank === mark.rank && row.lane.kind === 1);
        if (!rows.length) continue;
        const top = rows[0].y - 1, last = rows[rows.length - 1];
        const tall = Math.max(last.y + last.height - top + 1, 22);
        const left = Math.max(x(mark.start), -4), right = Math.min(x(mark.end), state.width + 4);
        pen.fillStyle = colors["bad-tint"];
        pen.strokeStyle = colors.bad;
        pen.lineWidth = 1.5;
        pen.fillRect(left, top, right - left, tall);
        pen.strokeRect(left, top, right - left, tall);
        pen.font = D.BOLD;
        D.label(pen, mark.note, (Math.max(left, 0) + Math.min(right, state.width)) / 2, top + tall / 2 + 4, right - left - 8, colors.bad, null);
      }
    }
    function flags() {
      const { colors } = state;
      pen.textAlign = "left";
      model.marks.forEach((mark, at) => {
        if (mark.end < state.from || mark.start > state.to) return;
        const y = TOP_PX + flagRow(mark) * FLAG_PX;
        const left = Math.max(x(mark.start), 0), width = Math.max(Math.min(x(mark.end), state.width) - left, 4);
        pen.fillStyle = colors.bad;
        pen.fillRect(left, y, width, FLAG_PX - 1);
        if (at === state.mark) {
          pen.strokeStyle = colors.link;
          pen.lineWidth = 2;
          pen.strokeRect(left + 1, y + 1, Math.max(width - 2, 2), FLAG_PX - 3);
        }
        pen.font = D.BOLD;
        const texts = [mark.number + " " + mark.code + " " + mark.name, mark.number + " " + mark.code, String(mark.number)];
        const text = texts.find((item) => D.textWidth(pen, item) <= width - 8);
        if (text) D.label(pen, text, left + 5, y + 12, width, colors["on-bad"], null);
      });
      pen.textAlign = "center";
    }
    function selection() {
      const item = state.picked;
      if (!item) return;
      const row = state.rows.find((each) => each.lane === item.lane);
      if (!row) return;
      const left = x(item.lane.start[item.at]), right = x(item.lane.end[item.at]);
      if (right < 0 || left > state.width) return;
      pen.strokeStyle = state.colors.link;
      pen.lineWidth = 2;
      const from = Math.max(left, -4), to = Math.min(right, state.width + 4);
      pen.strokeRect(from - 1, row.y - 2, Math.max(to - from, 1) + 2, row.height + 4);
    }

    // The strip: the whole recording, painted once; only the frame moves.
    const whole = document.createElement("canvas");
    function paintStrip() {
      whole.width = strip.width;
      whole.height = strip.height;
      const ink = whole.getContext("2d", { alpha: false });
      const { colors, width, scale } = state;
      ink.setTransform(scale, 0, 0, scale, 0, 0);
      ink.fillStyle = colors.bg;
      ink.fillRect(0, 0, width, STRIP_PX);
      const brush = D.Painter(ink, scale);
      const ranks = (opened.size ? model.ranks.filter((rank) => opened.has(rank.rank)) : model.ranks).slice(0, 3);
      const pitch = Math.floor(52 / ranks.length);
      const upper = Math.min(Math.floor((pitch * 4) / 7), 12), lower = Math.min(pitch - upper - 4, 8);
      const all = { from: 0, to: model.length, width };
      ranks.forEach((rank, at) => {
        for (const lane of rank.lanes) {
          if (lane.kind === 2) brush.shaded(lane, lane.sums, all, 3 + at * pitch, upper, colors);
          if (lane.kind === 3) brush.shaded(lane, lane.sums, all, 4 + at * pitch + upper, lower, colors);
        }
      });
      ink.font = D.FONT;
      ink.textAlign = "right";
      const lead = ranks[0] ? ranks[0].steps : [];
      let free = 0;
      if (lead.length <= width / 6) {
        for (const [number, , end] of lead) {
          const px = (end / model.length) * width;
          ink.fillStyle = colors.muted;
          ink.fillRect(px, 2, 1, STRIP_PX - 4);
          const text = "step " + number, room = D.textWidth(ink, text) + 8;
          if (px - room > free && width > 400) {
            D.label(ink, text, px - 4, STRIP_PX - 3, room, colors.muted, colors.bg);
            free = px;
          }
        }
      }
      for (const mark of model.marks) {
        ink.fillStyle = colors.bad;
        ink.fillRect((mark.start / model.length) * width, 0, Math.max(((mark.end - mark.start) / model.length) * width, 1.5), 3);
      }
    }
    function frame() {
      const { scale, width, colors } = state;
      stripPen.setTransform(1, 0, 0, 1, 0, 0);
      stripPen.drawImage(whole, 0, 0);
      stripPen.setTransform(scale, 0, 0, scale, 0, 0);
      stripPen.strokeStyle = colors.link;
      stripPen.lineWidth = 2;
      const left = (state.from / model.length) * width, right = (state.to / model.length) * width;
      stripPen.strokeRect(Math.max(left, 1), 1, Math.max(Math.min(right, width - 1) - Math.max(left, 1), 2), STRIP_PX - 2);
    }
    function stepNow() {
      const middle = (state.from + state.to) / 2;
      const lead = model.ranks.find((rank) => opened.has(rank.rank)) || model.ranks[0];
      return lead.steps.find(([, begin, end]) => begin <= middle && middle < end);
    }
    function head() {
      const step = stepNow();
      const all = state.from <= 0 && state.to >= model.length;
      part("step").textContent = all ? "Whole recording" : step ? "Step " + step[0] : "Between steps";
      const ms = (time) => fixed(Math.max(time, 0) / perMs, 1);
      part("span").textContent = ms(state.from) + " – " + fixed(Math.min(state.to, model.length) / perMs, 1) + NBSP + "ms: " + duration(state.to - state.from) + " of " + duration(model.length) + " shown";
    }

    // The view

    let later = 0;
    function look(from, to, { keep = true } = {}) {
      const least = Math.max(LEAST_NS / unit, 8), most = model.length * 1.02;
      const span = Math.min(Math.max(to - from, least), most);
      const middle = (from + to) / 2;
      const edge = model.length * 0.01;
      let begin = middle - span / 2;
      begin = Math.min(Math.max(begin, -edge), Math.max(model.length + edge - span, -edge));
      state.from = begin;
      state.to = begin + span;
      redraw();
      if (!keep) return;
      clearTimeout(later);
      later = setTimeout(remember, 400);
    }
    // A ticket can link to what is shown: #t=191.5-252.5&r=1.
    function address(from, to, rank) {
      const ms = (time) => String(+(Math.max(time, 0) / perMs).toFixed(3));
      return "#t=" + ms(from) + "-" + ms(to) + (rank === undefined ? "" : "&r=" + rank);
    }
    function remember() {
      try {
        history.replaceState(history.state, "", address(state.from, state.to, state.picked ? state.picked.rank.rank : undefined));
      } catch {
        // Some browsers refuse this for files: the view works, the address stays.
      }
    }
    function fromAddress() {
      const found = /^#t=(-?[\d.]+)-([\d.]+)(?:&r=(\d+))?$/.exec(location.hash);
      if (!found || !(+found[2] > +found[1])) return false;
      show(+found[1] * perMs, +found[2] * perMs, found[3] === undefined ? null : +found[3]);
      root.closest("section").scrollIntoView({ block: "start" });
      return true;
    }
    function show(from, to, rank) {
      if (rank !== null && byRank.has(rank) && !opened.has(rank)) {
        opened.add(rank);
        layout();
      }
      const margin = (to - from) * 0.12;
      look(from - margin, to + margin, { keep: false });
    }
    function zoom(factor, px) {
      const at = timeAt(px);
      look(at - (at - state.from) * factor, at + (state.to - at) * factor);
    }
    function pan(share) {
      const by = (state.to - state.from) * share;
      look(state.from + by, state.to + by);
    }
    function everything() {
      look(0, model.length);
      say("Whole recording, " + duration(model.length));
    }
    function goStep(by) {
      const lead = model.ranks.find((rank) => opened.has(rank.rank)) || model.ranks[0];
      if (!lead.steps.length) return;
      const middle = (state.from + state.to) / 2;
      let at = lead.steps.findIndex(([, begin, end]) => begin <= middle && middle < end);
      if (state.from <= 0 && state.to >= model.length) at = by > 0 ? -1 : lead.steps.length;
      else if (at < 0) at = middle < lead.steps[0][1] ? (by > 0 ? -1 : 0) : lead.steps.length - (by > 0 ? 1 : 0);
      const next = Math.min(Math.max(at + by, 0), lead.steps.length - 1);
      const number = lead.steps[next][0];
      const spans = model.ranks.flatMap((rank) => rank.steps.filter((step) => step[0] === number));
      const from = Math.min(...spans.map((step) => step[1])), to = Math.max(...spans.map((step) => step[2]));
      look(from - (to - from) / 25, to + (to - from) / 25);
      say("Step " + number + ", " + duration(lead.steps[next][2] - lead.steps[next][1]));
    }
    function goMark(by) {
      if (!model.marks.length) {
        say("No finding has a place in the timeline.");
        return;
      }
      state.mark = (state.mark + by + model.marks.length) % model.marks.length;
      if (by < 0 && state.mark < 0) state.mark += model.marks.length;
      const mark = model.marks[state.mark];
      show(mark.start, mark.end, mark.rank);
      remember();
      say("Finding " + mark.number + " " + mark.code + " " + mark.name + ", rank " + mark.rank + ", " + duration(mark.end - mark.start) + (mark.note ? ": " + mark.note : ""));
    }

    // What is looked at

    function stepOf(rank, time) {
      return rank.steps.find(([, begin, end]) => begin <= time && time < end);
    }
    function describe(item) {
      const { rank, lane, at } = item;
      const type = lane.type[at];
      const begin = lane.start[at], end = lane.end[at];
      const joined = type >= R.TOGETHER;
      const kind = R.kindOf(type, model.types.kind);
      const step = stepOf(rank, begin);
      const where = ["rank " + rank.rank, lane.label, step ? "step " + step[0] : ""].filter(Boolean).join(" · ");
      const found = {
        name: "", where, time: fixed(begin / perMs, 3) + NBSP + "ms for " + duration(end - begin),
        size: "–", shape: "–", wait: "–", bus: "–", launched: "–", full: "", more: [],
      };
      if (joined) {
        const { busy, count } = lane.joined.get(at);
        found.name = fixed(count, 0) + " slices drawn together";
        found.time += ", busy " + duration(busy);
        return found;
      }
      const detail = detailOf(type), bytes = model.types.bytes[type];
      found.name = model.shown(type);
      found.full = model.names[model.types.name[type]];
      if (kind === R.TRANSFER && step) {
        let place = 0, total = 0;
        for (let i = Math.max(R.lastBefore(lane.start, step[1], 0), 0); i < lane.slices && lane.start[i] < step[2]; i += 1) {
          if (lane.start[i] < step[1] || lane.type[i] >= R.TOGETHER || model.types.kind[lane.type[i]] !== R.TRANSFER) continue;
          total += 1;
          if (i === at) place = total;
        }
        if (place) found.name += " #" + place + " of " + total;
      }
      if (bytes >= 0) found.size = size(bytes) + (detail.dtype ? " · " + detail.dtype : "");
      else if (detail.dtype) found.size = "unknown · " + detail.dtype;
      const stream = /stream -?\d+/.exec(lane.label);
      if (detail.grid) found.shape = detail.grid + " × " + (detail.block || "unknown") + (stream ? " · " + stream[0] : "");
      else if (kind === R.COMPUTE || kind === R.TRANSFER) found.shape = "unknown";
      if (kind === R.TRANSFER) {
        const waits = lane.wait[at];
        found.wait = waits < 0 ? "not told apart" : fixed((waits * unit) / 1e6, 2) + " + " + fixed(((end - begin - waits) * unit) / 1e6, 2) + NBSP + "ms";
        const fast = bandwidth(lane, at);
        found.bus = fast ? rate(fast) : "unknown";
        if (detail.group) found.more.push("Group: " + detail.group);
      }
      if (kind === R.BLOCKED) found.name += " (the host waits)";
      if (lane.delay) {
        const us = R.delayUs(lane.delay[at]);
        found.launched = us === null ? "unknown" : "≈" + NBSP + (us >= 1e3 ? short(us / 1e3) + NBSP + "ms" : fixed(us, us < 10 ? 1 : 0) + NBSP + "µs") + " before start";
      }
      return found;
    }
    const FIELDS = ["name", "time", "size", "shape", "wait", "bus", "launched"];
    function fields(item) {
      const found = item ? describe(item) : null;
      for (const field of FIELDS) part(field).textContent = found ? found[field] : "–";
      part("where").textContent = found ? found.where : item === null ? "hover, tap, or use the arrow keys" : "";
      part("full").textContent = found ? [found.full, ...found.more].filter(Boolean).join("\n") : "";
      part("more").hidden = !found || !found.full;
      return found;
    }
    let spoken = 0, waiting = 0;
    function say(text) {
      clearTimeout(waiting);
      const pause = Math.max(0, spoken + SAY_EVERY_MS - performance.now());
      waiting = setTimeout(() => {
        spoken = performance.now();
        part("told").textContent = text;
      }, pause);
    }
    function pick(item, { follow = false } = {}) {
      state.picked = item;
      if (item && follow) {
        const begin = item.lane.start[item.at], end = item.lane.end[item.at];
        const span = state.to - state.from;
        if (begin < state.from || begin > state.to) look((begin + end) / 2 - span / 2, (begin + end) / 2 + span / 2);
      }
      const found = fields(item);
      if (found) {
        const wait = found.wait === "–" ? "" : ", wait and transfer " + found.wait;
        say(found.name + ", " + found.where + ", " + found.time + wait);
      }
      redraw();
    }
    const laneRows = () => state.rows.filter((row) => row.what === "lane");
    function moveSlice(by) {
      const item = state.picked;
      if (!item || !laneRows().some((row) => row.lane === item.lane)) {
        const row = laneRows().find((each) => each.lane.kind >= 2) || laneRows()[0];
        if (row && row.lane.slices) pick(nearest(row, (state.from + state.to) / 2), { follow: true });
        return;
      }
      const at = Math.min(Math.max(item.at + by, 0), item.lane.slices - 1);
      pick({ ...item, at }, { follow: true });
    }
    function nearest(row, time) {
      const at = R.sliceAt(row.lane, time, Infinity);
      return { rank: row.rank, lane: row.lane, at: Math.max(at, 0) };
    }
    function moveLane(by) {
      const rows = laneRows().filter((row) => row.lane.slices);
      if (!rows.length) return;
      const item = state.picked;
      const now = item ? rows.findIndex((row) => row.lane === item.lane) : -1;
      const row = rows[Math.min(Math.max(now + by, 0), rows.length - 1)];
      const middle = item ? (item.lane.start[item.at] + item.lane.end[item.at]) / 2 : (state.from + state.to) / 2;
      pick(nearest(row, Math.min(Math.max(middle, state.from), state.to)), { follow: true });
    }
    function under(px, py) {
      const row = state.rows.find((each) => each.what === "lane" && py >= each.y - 1 && py <= each.y + each.height + 1);
      if (!row) return null;
      const at = R.sliceAt(row.lane, timeAt(px), (NEAR_PX / state.width) * (state.to - state.from));
      return at < 0 ? null : { rank: row.rank, lane: row.lane, at };
    }
    function flagUnder(px, py) {
      return model.marks.findIndex((mark) => {
        const y = TOP_PX + flagRow(mark) * FLAG_PX;
        return py >= y && py < y + FLAG_PX && px >= x(mark.start) - 2 && px <= Math.max(x(mark.end), x(mark.start) + 6);
      });
    }

    // Search

    const field = part("search");
    function search(text) {
      const words = text.trim().toLowerCase();
      if (!words) {
        state.search = null;
        part("found").textContent = "";
        redraw();
        return;
      }
      const byName = model.names.map((name, at) => name.toLowerCase().includes(words) || (model.short[at] || "").toLowerCase().includes(words));
      const wanted = new Uint8Array(0x10000);
      let count = 0;
      model.types.name.forEach((name, type) => {
        if (byName[name] || model.shown(type).toLowerCase().includes(words)) {
          wanted[type] = 1;
          count += counts[type];
        }
      });
      state.search = { wanted };
      part("found").textContent = fixed(count, 0) + " of " + fixed(operations, 0);
      redraw();
    }
    function nextFound(by) {
      if (!state.search) return;
      const rows = laneRows();
      const from = state.picked ? state.picked.lane.start[state.picked.at] : by > 0 ? state.from : state.to;
      let best = null;
      for (const row of rows) {
        const lane = row.lane;
        let i = R.lastBefore(lane.start, from, 0) + (by > 0 ? 1 : 0);
        if (by < 0) while (i >= 0 && lane.start[i] >= from) i -= 1;
        while (i >= 0 && i < lane.slices && !state.search.wanted[lane.type[i]]) i += by;
        if (i < 0 || i >= lane.slices) continue;
        if (!best || by * (lane.start[i] - best.lane.start[best.at]) < 0) best = { rank: row.rank, lane, at: i };
      }
      if (best) pick(best, { follow: true });
      else say("No further slice of this name in the lanes shown.");
    }
    field.addEventListener("input", () => search(field.value));
    field.addEventListener("keydown", function (event) {
      if (event.key === "Enter") nextFound(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") {
        field.value = "";
        search("");
        canvas.focus({ preventScroll: true });
      } else return;
      event.preventDefault();
    });

    // Keys

    const KEYS = {
      w: () => zoom(1 / 1.5, state.width / 2), s: () => zoom(1.5, state.width / 2),
      "+": () => zoom(1 / 1.5, state.width / 2), "-": () => zoom(1.5, state.width / 2),
      a: () => pan(-0.25), d: () => pan(0.25),
      arrowup: () => moveLane(-1), arrowdown: () => moveLane(1),
      arrowleft: () => moveSlice(-1), arrowright: () => moveSlice(1),
      n: () => goMark(1), p: () => goMark(-1), "[": () => goStep(-1), "]": () => goStep(1),
      "/": () => field.focus(), escape: everything,
      enter: function () {
        const more = part("more");
        if (!more.hidden) more.open = !more.open;
      },
    };
    canvas.addEventListener("keydown", function (event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const act = KEYS[event.key.toLowerCase()];
      if (!act) return;
      event.preventDefault();
      act();
    });

    // Pointer: drag pans, two fingers zoom, a click picks; the wheel zooms with Ctrl only.

    const fingers = new Map();
    let moved = false, pinch = null;
    const at = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener("pointerdown", function (event) {
      if (event.button) return;
      fingers.set(event.pointerId, at(event));
      moved = fingers.size > 1;
      pinch = null;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", function (event) {
      const [px, py] = at(event);
      const last = fingers.get(event.pointerId);
      if (!last) {
        if (event.pointerType !== "touch") hover(px, py);
        return;
      }
      fingers.set(event.pointerId, [px, py]);
      if (fingers.size === 1) {
        if (!moved && Math.abs(px - last[0]) < 4) {
          fingers.set(event.pointerId, last);
          return;
        }
        moved = true;
        pan((last[0] - px) / state.width);
      } else {
        const [one, two] = [...fingers.values()];
        const middle = (one[0] + two[0]) / 2, wide = Math.max(Math.abs(one[0] - two[0]), 10);
        if (pinch) {
          zoom(pinch.wide / wide, middle);
          pan((pinch.middle - middle) / state.width);
        }
        pinch = { middle, wide };
      }
    });
    function lift(event) {
      const known = fingers.delete(event.pointerId);
      pinch = null;
      if (!known || moved || event.type !== "pointerup") return;
      const [px, py] = at(event);
      const mark = flagUnder(px, py);
      if (mark >= 0) {
        state.mark = mark - 1;
        goMark(1);
      } else pick(under(px, py));
    }
    canvas.addEventListener("pointerup", lift);
    canvas.addEventListener("pointercancel", lift);
    canvas.addEventListener("dblclick", function (event) {
      const item = under(...at(event));
      if (!item) return;
      const begin = item.lane.start[item.at], end = item.lane.end[item.at];
      look(begin - (end - begin), end + (end - begin));
    });
    function hover(px, py) {
      const item = under(px, py);
      const same = item && state.hovered && item.lane === state.hovered.lane && item.at === state.hovered.at;
      canvas.style.cursor = flagUnder(px, py) >= 0 || item ? "pointer" : "grab";
      if (same || (!item && !state.hovered)) return;
      state.hovered = item;
      fields(item || state.picked);
    }
    canvas.addEventListener("pointerleave", function () {
      state.hovered = null;
      fields(state.picked);
    });
    canvas.addEventListener("wheel", function (event) {
      if (event.ctrlKey || event.metaKey) {
        event.preventDefault();
        zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.01), at(event)[0]);
      } else if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) {
        event.preventDefault();
        pan(event.deltaX / state.width);
      }
    }, { passive: false });
    function onStrip(event) {
      if (!(event.buttons & 1)) return;
      const box = strip.getBoundingClientRect();
      const middle = ((event.clientX - box.left) / box.width) * model.length;
      const span = state.to - state.from < model.length * 0.9 ? state.to - state.from : model.length / 5;
      look(middle - span / 2, middle + span / 2);
    }
    strip.addEventListener("pointerdown", function (event) {
      strip.setPointerCapture(event.pointerId);
      onStrip(event);
    });
    strip.addEventListener("pointermove", onStrip);

    // Buttons and links

    part("back").addEventListener("click", () => goStep(-1));
    part("on").addEventListener("click", () => goStep(1));
    part("all").addEventListener("click", everything);
    part("in").addEventListener("click", () => zoom(1 / 2, state.width / 2));
    part("out").addEventListener("click", () => zoom(2, state.width / 2));
    part("next").addEventListener("click", () => goMark(1));
    part("next").hidden = !model.marks.length;
    if (!model.ranks.some((rank) => rank.steps.length)) part("back").hidden = part("on").hidden = true;
    const inner = part("inner");
    inner.hidden = !model.ranks.some((rank) => rank.lanes.some((lane) => lane.level));
    inner.addEventListener("click", function () {
      state.inner = !state.inner;
      inner.setAttribute("aria-pressed", String(state.inner));
      layout();
    });
    document.addEventListener("click", function (event) {
      const link = event.target.closest && event.target.closest("a[data-t]");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      const [from, to] = link.dataset.t.split("-").map(Number);
      const wanted = address(from * perMs, to * perMs, link.dataset.r);
      if (location.hash === wanted) fromAddress();
      else location.hash = wanted;
      canvas.focus({ preventScroll: true });
    });
    window.addEventListener("hashchange", fromAddress);
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);
    new MutationObserver(recolor).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    new ResizeObserver(function () {
      const width = canvas.parentElement.clientWidth;
      if (width && width !== state.width) resize();
    }).observe(canvas.parentElement);

    root.classList.add("live");
    part("live").hidden = false;
    part("tools").hidden = false;
    part("said").textContent = model.said;
    canvas.setAttribute("aria-label", "Timeline of " + model.ranks.length + (model.ranks.length === 1 ? " rank, " : " ranks, ") + duration(model.length) + ". Arrow keys select slices, W and S zoom.");
    layout();
    fields(null);
    fromAddress();
    requestAnimationFrame(() => performance.mark("timeline-ready"));
  }
})();
