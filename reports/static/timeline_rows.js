// The rows of the timeline from top to bottom, and their labels and buttons beside the canvas.
"use strict";
const TimelineRows = function (c) {
  const HEIGHT = [14, 13, 24, 24], GAP = [1, 2, 4, 4]; // by kind of lane: ranges, host, stream, NCCL
  const MOST = [1, 4, 6, 4]; // lanes of a kind that are shown at first, the busiest ones
  const RANK_PX = 26, FOLDED_PX = 26, FLAG_PX = 17, FLAG_ROWS = 3, TOP_PX = 38;
  const TALLEST_PX = 4000;
  const { model, state, side } = c;
  const opened = new Set(model.opened);
  const unfolded = new Set(); // groups whose ranks are shown one by one
  const complete = new Set(); // ranks of which all lanes are shown

  const hosts = new Set(model.ranks.map((rank) => rank.host)).size;
  const codes = [];
  for (const mark of model.marks) if (!codes.includes(mark.number)) codes.push(mark.number);
  const flagRows = Math.min(codes.length, FLAG_ROWS);
  const flagTop = (mark) => TOP_PX + Math.min(codes.indexOf(mark.number), FLAG_ROWS - 1) * FLAG_PX;

  const work = (lane) => lane.sums.reduce((sum, totals) => sum + (totals ? totals[lane.slices] : 0), 0);
  // The lanes of a rank that are shown: of many streams or threads only the busiest.
  function lanesOf(rank) {
    if (complete.has(rank.rank)) return rank.lanes.filter((lane) => state.inner || lane.level === 0);
    const kept = new Set();
    MOST.forEach((most, kind) => {
      const lanes = rank.lanes.filter((lane) => lane.kind === kind && lane.level === 0);
      lanes.sort((a, b) => work(b) - work(a)).slice(0, most).forEach((lane) => kept.add(kind + lane.label));
    });
    return rank.lanes.filter((lane) => kept.has(lane.kind + lane.label) && (state.inner || lane.level === 0));
  }
  function folds() {
    const rows = [];
    const one = (rank) => rows.push({ name: "Rank " + rank, members: [rank] });
    for (const [name, members] of model.folded) {
      const closed = members.filter((rank) => !opened.has(rank));
      if (closed.length > 1 && !unfolded.has(name)) rows.push({ name, members: closed });
      else closed.forEach(one);
    }
    model.opened.filter((rank) => !opened.has(rank)).forEach(one);
    return rows.sort((a, b) => a.members[0] - b.members[0]);
  }
  function arrange() {
    const rows = [];
    let y = TOP_PX + flagRows * FLAG_PX + 4;
    const add = (row, height, gap) => {
      rows.push({ ...row, y, height });
      y += height + gap;
    };
    for (const rank of model.ranks) {
      if (!opened.has(rank.rank)) continue;
      add({ what: "rank", rank, open: true }, RANK_PX, 0);
      const lanes = lanesOf(rank);
      for (const lane of lanes) add({ what: "lane", rank, lane }, HEIGHT[lane.kind], GAP[lane.kind]);
      const hidden = rank.lanes.filter((lane) => lane.level === 0).length - lanes.filter((lane) => lane.level === 0).length;
      if (hidden) add({ what: "more", rank, hidden }, RANK_PX, 0);
      y += 6;
    }
    for (const fold of folds()) add({ what: "fold", ...fold }, FOLDED_PX, 2);
    state.rows = rows;
    state.height = Math.min(y + 4, TALLEST_PX);
    state.cut = y + 4 > TALLEST_PX;
    labels();
  }

  function element(tag, text, cls) {
    const node = document.createElement(tag);
    node.textContent = text;
    if (cls) node.className = cls;
    return node;
  }
  function labels() {
    side.replaceChildren();
    side.style.height = state.height + "px";
    for (const row of state.rows) {
      if (row.y > state.height) break;
      const node = row.what === "lane" ? laneLabel(row.lane) : button(row);
      node.style.top = row.y + (row.what === "lane" ? row.height / 2 - 8 : 1) + "px";
      side.append(node);
    }
  }
  function laneLabel(lane) {
    const text = lane.level ? "↳ inside" : lane.label.replace(/^(host · )thread \d+ \((.+)\)$/, "$1$2");
    const node = element("span", text, lane.level ? "tl-lane quiet" : "tl-lane");
    node.title = lane.label;
    return node;
  }
  function button(row) {
    const node = element("button", "", "tl-rank");
    node.type = "button";
    if (row.what === "more") {
      node.textContent = "+ " + row.hidden + (row.hidden === 1 ? " lane" : " lanes");
      node.addEventListener("click", () => { complete.add(row.rank.rank); c.arranged(); });
      return node;
    }
    const members = row.open ? [row.rank.rank] : row.members;
    const guilty = members.some((rank) => model.blamed.includes(rank));
    const name = (row.open ? "Rank " + row.rank.rank : row.name) + (guilty ? " ▲" : "");
    node.setAttribute("aria-expanded", String(Boolean(row.open)));
    node.append(element("span", row.open ? "▾ " : "▸ ", "quiet"));
    node.append(element(row.open ? "strong" : "span", name, guilty ? "blamed" : ""));
    if (row.open) node.append(element("span", " " + [row.rank.gpu, hosts > 1 ? row.rank.host : ""].filter(Boolean).join(" · "), "quiet"));
    node.addEventListener("click", () => toggle(row, members));
    return node;
  }
  function toggle(row, members) {
    if (row.open) opened.delete(members[0]);
    else if (members.length > 1) unfolded.add(row.name);
    else opened.add(members[0]);
    c.arranged();
    if (state.cut) c.say("The timeline is as high as it can be: close a rank to see more.");
    // The button was made again: the keyboard stays on it.
    const at = state.rows.filter((item) => item.what !== "lane")
      .findIndex((item) => (item.rank ? item.rank.rank === members[0] : item.members.includes(members[0])));
    const again = side.querySelectorAll("button")[at];
    if (again) again.focus({ preventScroll: true });
  }
  function open(rank) {
    if (opened.has(rank) || !model.ranks.some((item) => item.rank === rank)) return;
    opened.add(rank);
    c.arranged();
  }
  const lanes = () => state.rows.filter((row) => row.what === "lane");
  const shown = () => model.ranks.filter((rank) => opened.has(rank.rank));
  const lead = () => shown()[0] || model.ranks[0];

  return { FLAG_PX, flagTop, arrange, open, shown, lead, lanes };
};
