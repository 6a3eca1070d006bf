// The slice that is looked at: picking by pointer and keys, its fields, what is spoken, search.
"use strict";
const TimelinePick = function (c) {
  const NEAR_PX = 3, SAY_EVERY_MS = 500;
  const FIELDS = ["name", "where", "time", "size", "shape", "wait", "bus", "launched"];
  const EMPTY = { where: "Point at a slice, tap it, or use the arrow keys." };
  const R = TimelineRead;
  const { model, state, part, words, rows, scene } = c;

  // Fields of a slice, of a finding's mark, or of nothing.
  function show(found) {
    for (const field of FIELDS) part(field).textContent = found[field] || "–";
    part("full").textContent = [found.full, ...(found.more || [])].filter(Boolean).join("\n");
    part("more").hidden = !found.full;
    part("finding").hidden = !found.anchor;
    if (found.anchor) part("finding").href = "#" + found.anchor;
  }
  function subject() {
    if (state.picked) show(words.describe(state.picked));
    else show(state.told ? words.describeMark(state.told) : EMPTY);
  }
  let spoken = 0, waiting = 0;
  function say(text) {
    clearTimeout(waiting);
    waiting = setTimeout(() => {
      spoken = performance.now();
      part("told").textContent = text;
    }, Math.max(0, spoken + SAY_EVERY_MS - performance.now()));
  }
  function tell(mark) {
    state.picked = null;
    state.told = mark;
    subject();
    const { name, where } = words.describeMark(mark);
    say(name + ", " + where);
  }
  function pick(item, follow) {
    state.picked = item;
    state.told = null;
    subject();
    scene.redraw();
    if (!item) return;
    const begin = item.lane.start[item.at], end = item.lane.end[item.at];
    if (follow && (end < state.from || begin > state.to)) {
      const half = (state.to - state.from) / 2;
      c.look.look((begin + end) / 2 - half, (begin + end) / 2 + half);
    }
    const found = words.describe(item);
    say([found.name, found.where, found.time, found.wait === "–" ? "" : "wait and transfer " + found.wait].filter(Boolean).join(", "));
  }

  const filled = () => rows.lanes().filter((row) => row.lane.slices);
  const middle = () => (state.from + state.to) / 2;
  function nearest(row, time) {
    return { rank: row.rank, lane: row.lane, at: Math.max(R.sliceAt(row.lane, time, Infinity), 0) };
  }
  function moveSlice(by) {
    const item = state.picked;
    if (item && rows.lanes().some((row) => row.lane === item.lane)) {
      pick({ ...item, at: Math.min(Math.max(item.at + by, 0), item.lane.slices - 1) }, true);
      return;
    }
    const row = filled().find((each) => each.lane.kind >= 2) || filled()[0];
    if (row) pick(nearest(row, middle()), true);
  }
  function moveLane(by) {
    const choice = filled();
    if (!choice.length) return;
    const item = state.picked;
    const now = item ? choice.findIndex((row) => row.lane === item.lane) : by > 0 ? -1 : choice.length;
    const row = choice[Math.min(Math.max(now + by, 0), choice.length - 1)];
    const time = item ? (item.lane.start[item.at] + item.lane.end[item.at]) / 2 : middle();
    pick(nearest(row, Math.min(Math.max(time, state.from), state.to)), true);
  }
  function under(px, py) {
    const row = rows.lanes().find((each) => py >= each.y - 1 && py <= each.y + each.height + 1);
    if (!row) return null;
    const at = R.sliceAt(row.lane, scene.timeAt(px), (NEAR_PX / state.width) * (state.to - state.from));
    return at < 0 ? null : { rank: row.rank, lane: row.lane, at };
  }
  function flagUnder(px, py) {
    return model.marks.findIndex((mark) => {
      const top = rows.flagTop(mark), left = scene.x(mark.start);
      return py >= top && py < top + rows.FLAG_PX && px >= left - 2 && px <= Math.max(scene.x(mark.end), left + 6);
    });
  }
  function hover(item) {
    if (item) show(words.describe(item));
    else subject();
  }

  // Search: slices by name; what is not found is dimmed.
  const counts = new Float64Array(model.types.name.length);
  for (const lane of model.ranks.flatMap((rank) => rank.lanes)) {
    for (let i = 0; i < lane.slices; i += 1) if (lane.type[i] < R.TOGETHER) counts[lane.type[i]] += 1;
  }
  function search(text) {
    const wished = text.trim().toLowerCase();
    const has = (name) => Boolean(name) && name.toLowerCase().includes(wished);
    if (!wished) state.search = null;
    else {
      const byName = model.names.map((name, at) => has(name) || has(model.short[at]));
      const wanted = new Uint8Array(0x10000);
      model.types.name.forEach((name, type) => {
        wanted[type] = byName[name] || has(words.shown(type)) ? 1 : 0;
      });
      state.search = { wanted };
    }
    const count = state.search ? counts.reduce((sum, number, type) => sum + (state.search.wanted[type] ? number : 0), 0) : 0;
    part("found").textContent = state.search ? words.fixed(count, 0) + " of " + words.fixed(model.slices, 0) : "";
    scene.redraw();
  }
  // By time, and among slices that start together by row.
  function nextFound(by) {
    if (!state.search) return;
    const all = rows.lanes();
    const from = state.picked ? state.picked.lane.start[state.picked.at] : by > 0 ? state.from : state.to;
    const here = state.picked ? all.findIndex((row) => row.lane === state.picked.lane) : by > 0 ? -1 : all.length;
    let best = null;
    all.forEach(({ rank, lane }, row) => {
      const same = by * (row - here) > 0; // a row that comes after in this direction may start at the same time
      let i = R.lastBefore(lane.start, from - (by > 0 === same ? 1 : 0), 0) + (by > 0 ? 1 : 0);
      while (i >= 0 && i < lane.slices && !state.search.wanted[lane.type[i]]) i += by;
      if (i < 0 || i >= lane.slices) return;
      const earlier = best ? by * (lane.start[i] - best.lane.start[best.at]) : -1;
      if (earlier < 0 || (earlier === 0 && by < 0)) best = { rank, lane, at: i };
    });
    if (best) pick(best, true);
    else say("No further slice of this name in the lanes shown.");
  }

  return { say, tell, pick, subject, moveSlice, moveLane, under, flagUnder, hover, search, nextFound };
};
