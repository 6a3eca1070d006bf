// What the timeline says: times, sizes, names, and the fields of a slice that is looked at.
"use strict";
const TimelineWords = function (model) {
  const R = TimelineRead;
  const NBSP = "\u00a0";
  const unit = model.unit_ns;
  const perMs = 1e6 / unit;

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
  function shown(type) {
    const operation = detailOf(type).operation;
    if (operation) return OPERATIONS[operation] || operation;
    const name = model.types.name[type];
    return model.short[name] || model.names[name] || "(no name)";
  }
  function bandwidth(lane, i) {
    const type = lane.type[i];
    const factor = detailOf(type).factor, bytes = model.types.bytes[type];
    const moved = (lane.end[i] - lane.start[i] - lane.wait[i]) * unit;
    return factor && bytes > 0 && lane.wait[i] >= 0 && moved > 0 ? (factor * bytes) / moved : null;
  }
  const rate = (value) => (value >= 10 ? fixed(value, 0) : fixed(value, 1)) + NBSP + "GB/s";
  function collective(lane, i) {
    const type = lane.type[i], bytes = model.types.bytes[type];
    const weight = bytes >= 0 ? size(bytes) : "";
    const waits = lane.wait[i], moves = duration(lane.end[i] - lane.start[i] - Math.max(waits, 0));
    const fast = bandwidth(lane, i);
    const named = [shown(type), weight].filter(Boolean).join(" ");
    return {
      wait: waits > 0 ? "wait " + duration(waits) : "",
      waitLong: waits > 0 ? named + " · wait " + duration(waits) : "",
      move: [weight, moves].filter(Boolean).join(" · "),
      moveLong: [waits < 0 ? named : weight, moves, fast ? rate(fast) : ""].filter(Boolean).join(" · "),
      size: weight,
    };
  }

  function stepOf(rank, time) {
    return rank.steps.find(([, begin, end]) => begin <= time && time < end);
  }
  // A launch delay is kept to 3 %: two digits are true.
  function delay(us) {
    const [value, name] = us >= 1e6 ? [us / 1e6, "s"] : us >= 1e3 ? [us / 1e3, "ms"] : [us, "µs"];
    return (value >= 10 ? fixed(Number(value.toPrecision(2)), 0) : fixed(value, 1)) + NBSP + name;
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
    found.name = shown(type);
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
    if (detail.shape) found.shape = detail.shape + (stream ? " · " + stream[0] : "");
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
      found.launched = us === null ? "unknown" : "≈" + NBSP + delay(us) + " before start";
    }
    return found;
  }

  function describeMark(mark) {
    return {
      name: "Finding " + mark.number + ": " + mark.code + " " + mark.name,
      where: ["rank " + mark.rank, mark.label].filter(Boolean).join(" · "),
      time: fixed(mark.start / perMs, 3) + NBSP + "ms for " + duration(mark.end - mark.start),
      anchor: mark.anchor,
    };
  }

  return { fixed, duration, shown, collective, stepOf, describe, describeMark };
};
