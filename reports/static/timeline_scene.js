// Everything that is painted: axis, steps, lanes, flags of findings, the strip above.
"use strict";
const TimelineScene = function (c) {
  const STRIP_PX = 64;
  const R = TimelineRead, D = TimelineDraw;
  const NBSP = "\u00a0";
  const { model, state, canvas, strip, part, words, rows } = c;
  const { fixed, duration } = words;
  const byRank = new Map(model.ranks.map((rank) => [rank.rank, rank]));
  const perMs = 1e6 / model.unit_ns;
  const pen = canvas.getContext("2d", { alpha: false });
  const stripPen = strip.getContext("2d", { alpha: false });

  function resize() {
    const width = canvas.parentElement.clientWidth;
    state.scale = Math.min(window.devicePixelRatio || 1, 2);
    state.width = width;
    for (const [node, height] of [[canvas, state.height], [strip, STRIP_PX]]) {
      node.style.height = height + "px";
      node.width = Math.max(1, Math.round(width * state.scale));
      node.height = Math.round(height * state.scale);
    }
    state.painter = D.Painter(pen, state.scale, model, words);
    recolor();
  }
  function recolor() {
    state.colors = D.palette(pen, state.scale);
    paintStrip();
    redraw();
  }

  let asked = 0;
  function redraw() {
    if (!asked) asked = requestAnimationFrame(draw);
  }
  const x = (time) => ((time - state.from) / (state.to - state.from)) * state.width;
  const timeAt = (px) => state.from + (px / state.width) * (state.to - state.from);

  function ticks() {
    const span = (state.to - state.from) / perMs;
    const wished = span / Math.max(4, Math.min(12, state.width / 85));
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
      if (row.what === "lane") state.painter.lane(row.lane, view(width), row.y, row.height, colors, state.search);
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
    const lead = rows.lead();
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
      const own = rows.lanes().filter((item) => item.rank === row.rank);
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
      const host = rows.lanes().filter((row) => row.rank.rank === mark.rank && row.lane.kind === 1);
      if (!host.length) continue;
      const top = host[0].y - 1, last = host[host.length - 1];
      const tall = Math.max(last.y + last.height - top + 1, 22);
      const left = Math.max(x(mark.start), -4), right = Math.min(x(mark.end), state.width + 4);
      pen.fillStyle = colors["bad-tint"];
      pen.strokeStyle = colors.bad;
      pen.lineWidth = 1.5;
      pen.fillRect(left, top, right - left, tall);
      pen.strokeRect(left, top, right - left, tall);
      pen.font = D.BOLD;
      const room = Math.min(right, state.width) - Math.max(left, 0) - 8;
      const text = [mark.note, duration(mark.end - mark.start)].find((words) => D.textWidth(pen, words) <= room);
      if (text) D.label(pen, text, (Math.max(left, 0) + Math.min(right, state.width)) / 2, top + tall / 2 + 4, room, colors.bad, null);
    }
  }
  // Ranges of one finding that touch on the screen share a flag, whatever their rank.
  function flags() {
    const { colors } = state;
    const seen = model.marks.filter((mark) => mark.end >= state.from && mark.start <= state.to);
    const flown = [];
    for (const mark of seen) {
      const left = Math.max(x(mark.start), 0), right = Math.max(Math.min(x(mark.end), state.width), left + 4);
      const last = flown.findLast((flag) => flag.mark.number === mark.number);
      if (last && left <= last.right + 2) last.right = Math.max(last.right, right);
      else flown.push({ mark, left, right });
    }
    pen.textAlign = "left";
    pen.font = D.BOLD;
    const height = rows.FLAG_PX - 1;
    for (const { mark, left, right } of flown) {
      pen.fillStyle = colors.bad;
      pen.fillRect(left, rows.flagTop(mark), right - left, height);
      const texts = [mark.number + " " + mark.code + " " + mark.name, mark.number + " " + mark.code, String(mark.number)];
      const text = texts.find((item) => D.textWidth(pen, item) <= right - left - 8);
      if (text) D.label(pen, text, left + 5, rows.flagTop(mark) + 12, right - left, colors["on-bad"], null);
    }
    pen.textAlign = "center";
    const chosen = model.marks[state.mark];
    if (!chosen || !seen.includes(chosen)) return;
    const left = Math.max(x(chosen.start), 0), right = Math.min(x(chosen.end), state.width);
    pen.strokeStyle = colors.link;
    pen.lineWidth = 2;
    pen.strokeRect(left + 1, rows.flagTop(chosen) + 1, Math.max(right - left - 2, 3), height - 2);
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
    const brush = D.Painter(ink, scale, model, words);
    const ranks = (rows.shown().length ? rows.shown() : model.ranks).slice(0, 3);
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
  function head() {
    const middle = (state.from + state.to) / 2;
    const step = words.stepOf(rows.lead(), middle);
    const all = state.from <= 0 && state.to >= model.length;
    part("step").textContent = all ? "Whole recording" : step ? "Step " + step[0] : "Between steps";
    const ms = (time) => fixed(Math.max(time, 0) / perMs, 1);
    part("span").textContent = ms(state.from) + " – " + fixed(Math.min(state.to, model.length) / perMs, 1) + NBSP + "ms: " + duration(state.to - state.from) + " of " + duration(model.length) + " shown";
  }

  return { resize, recolor, redraw, x, timeAt };
};
