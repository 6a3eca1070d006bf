// Where the timeline looks: zooming, panning, steps, findings, and the address that keeps it.
"use strict";
const TimelineLook = function (c) {
  const LEAST_NS = 200; // the closest look
  const KEEP_AFTER_MS = 400;
  const { model, state, words, rows, scene } = c;
  const { duration } = words;
  const perMs = 1e6 / model.unit_ns;

  let later = 0;
  function look(from, to) {
    const least = Math.max(LEAST_NS / model.unit_ns, 8), most = model.length * 1.02;
    const span = Math.min(Math.max(to - from, least), most);
    const edge = model.length * 0.01;
    const begin = (from + to - span) / 2;
    state.from = Math.min(Math.max(begin, -edge), Math.max(model.length + edge - span, -edge));
    state.to = state.from + span;
    scene.redraw();
    clearTimeout(later);
    later = setTimeout(remember, KEEP_AFTER_MS);
  }
  // A ticket can link to what is shown: #t=191.5-252.5&r=1, in ms.
  function address(from, to, rank) {
    const ms = (time) => String(+Math.max(time / perMs, 0).toFixed(4));
    return "#t=" + ms(from) + "-" + ms(to) + (rank === null ? "" : "&r=" + rank);
  }
  function remember() {
    const rank = state.picked ? state.picked.rank.rank : state.rank;
    try {
      history.replaceState(history.state, "", address(state.from, state.to, rank));
    } catch {
      // Some browsers refuse this for files: the view works, the address stays.
    }
  }
  function fromAddress() {
    const found = /^#t=([\d.]+)-([\d.]+)(?:&r=(\d+))?$/.exec(location.hash);
    if (!found || !(Number(found[2]) > Number(found[1]))) return;
    state.rank = found[3] === undefined ? null : Number(found[3]);
    if (state.rank !== null) rows.open(state.rank);
    look(Number(found[1]) * perMs, Number(found[2]) * perMs);
    c.root.closest("section").scrollIntoView({ block: "start" });
  }
  // A range with room on both sides, on a rank whose lanes are open.
  function show(from, to, rank) {
    state.rank = rank;
    rows.open(rank);
    const room = (to - from) * 0.12;
    look(from - room, to + room);
  }
  function zoom(factor, px) {
    const at = scene.timeAt(px);
    look(at - (at - state.from) * factor, at + (state.to - at) * factor);
  }
  function pan(share) {
    const by = (state.to - state.from) * share;
    look(state.from + by, state.to + by);
  }
  function everything() {
    look(0, model.length);
    c.say("Whole recording, " + duration(model.length));
  }
  function goStep(by) {
    const { steps } = rows.lead();
    if (!steps.length) return;
    const middle = (state.from + state.to) / 2;
    const all = state.from <= 0 && state.to >= model.length;
    // The step in the middle of the view; between and outside steps the next one in this direction.
    let next = all ? (by > 0 ? 0 : steps.length - 1) : steps.findIndex(([, begin, end]) => begin <= middle && middle < end);
    if (!all && next >= 0) next += by;
    else if (!all) {
      next = by > 0 ? steps.findIndex(([, begin]) => begin > middle) : steps.findLastIndex(([, , end]) => end <= middle);
      if (next < 0) next = by > 0 ? steps.length - 1 : 0;
    }
    const [number, begin, end] = steps[Math.min(Math.max(next, 0), steps.length - 1)];
    const spans = model.ranks.flatMap((rank) => rank.steps.filter((step) => step[0] === number));
    const from = Math.min(...spans.map((step) => step[1])), to = Math.max(...spans.map((step) => step[2]));
    look(from - (to - from) / 25, to + (to - from) / 25);
    c.say("Step " + number + ", " + duration(end - begin));
  }
  function goMark(by) {
    const count = model.marks.length;
    if (!count) c.say("No finding has a place in the timeline.");
    else toMark(state.mark < 0 && by < 0 ? count - 1 : (state.mark + by + count) % count);
  }
  function toMark(at) {
    state.mark = at;
    const mark = model.marks[at];
    show(mark.start, mark.end, mark.rank);
    c.tell(mark);
  }

  return { look, fromAddress, address, zoom, pan, everything, goStep, goMark, toMark };
};
