// The timeline's columns: unpacking, sums for shading, search. timeline_columns.py writes them.
"use strict";
const TimelineRead = (function () {
  const COMPUTE = 0, TRANSFER = 1, COPY = 2, HOST = 3, RANGE = 4, BLOCKED = 5, WAIT = 6;
  const CLASSES = 7;
  const TOGETHER = 0xff00;
  const STREAM_LANE = 2;
  const BLOCK = 64; // slices whose longest is known, so that wide ones are found quickly
  const DELAY_STEPS = 12;

  async function inflated(text) {
    const packed = atob(text);
    const bytes = new Uint8Array(packed.length);
    for (let i = 0; i < packed.length; i += 1) bytes[i] = packed.charCodeAt(i);
    const reader = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate")).getReader();
    const chunks = [];
    let size = 0;
    for (let next = await reader.read(); !next.done; next = await reader.read()) {
      chunks.push(next.value);
      size += next.value.length;
    }
    const whole = new Uint8Array(size);
    size = 0;
    for (const chunk of chunks) {
      whole.set(chunk, size);
      size += chunk.length;
    }
    return whole;
  }

  // A column of `count` numbers in `width` planes of bytes; returns the numbers and moves on.
  function planes(bytes, cursor, count, width) {
    const from = cursor.at;
    cursor.at += count * width;
    if (width === 1) return bytes.subarray(from, from + count);
    const out = width === 2 ? new Uint16Array(count) : new Int32Array(count);
    for (let plane = 0; plane < width; plane += 1) {
      const base = from + plane * count;
      const shift = 8 * plane;
      for (let i = 0; i < count; i += 1) {
        if (bytes[base + i]) out[i] |= bytes[base + i] << shift;
      }
    }
    return out;
  }

  async function read(text) {
    const bytes = await inflated(text);
    const size = new DataView(bytes.buffer).getUint32(0, true);
    const model = JSON.parse(new TextDecoder().decode(bytes.subarray(4, 4 + size)));
    const lanes = model.ranks.flatMap((rank) => rank.lanes);
    const total = (pick) => lanes.reduce((sum, lane) => sum + pick(lane), 0);
    const cursor = { at: 4 + size };
    const slices = total((lane) => lane.slices);
    const gap = planes(bytes, cursor, slices, 4);
    const length = planes(bytes, cursor, slices, 4);
    const type = planes(bytes, cursor, slices, 2);
    const delay = planes(bytes, cursor, total((lane) => (lane.kind >= STREAM_LANE ? lane.slices : 0)), 1);
    const wait = planes(bytes, cursor, total((lane) => lane.comm), 4);
    const joined = total((lane) => lane.together);
    const at = planes(bytes, cursor, joined, 4);
    const busy = planes(bytes, cursor, joined, 4);
    const count = planes(bytes, cursor, joined, 4);
    let s = 0, d = 0, w = 0, j = 0;
    for (const lane of lanes) {
      const n = lane.slices;
      lane.start = gap.subarray(s, s + n);
      lane.end = length.subarray(s, s + n);
      lane.type = type.subarray(s, s + n);
      lane.delay = lane.kind >= STREAM_LANE ? delay.subarray(d, d + n) : null;
      lane.joined = new Map();
      for (let i = 0, row = 0; i < lane.together; i += 1) {
        row += at[j + i];
        lane.joined.set(row, { busy: busy[j + i], count: count[j + i] });
      }
      lane.wait = lane.comm ? new Int32Array(n).fill(-1) : null;
      w = finish(lane, model.types.kind, wait, w);
      s += n;
      d += lane.delay ? n : 0;
      j += lane.together;
    }
    model.slices = slices;
    return model;
  }

  // Turn gaps and lengths into starts and ends, and add up what every class keeps busy.
  function finish(lane, kinds, wait, w) {
    const n = lane.slices;
    lane.sums = new Array(CLASSES).fill(null);
    lane.longest = new Int32Array(Math.ceil(n / BLOCK));
    const sum = (cls) => (lane.sums[cls] ??= new Int32Array(n + 1));
    const running = new Array(CLASSES).fill(0);
    let end = 0;
    for (let i = 0; i < n; i += 1) {
      const begin = end + lane.start[i];
      const long = lane.end[i];
      end = begin + long;
      lane.start[i] = begin;
      lane.end[i] = end;
      if (long > lane.longest[(i / BLOCK) | 0]) lane.longest[(i / BLOCK) | 0] = long;
      const kind = kindOf(lane.type[i], kinds);
      const joined = lane.together ? lane.joined.get(i) : undefined;
      const busy = joined ? joined.busy : long;
      if (kind === TRANSFER) {
        const waits = wait[w] - 1;
        w += 1;
        lane.wait[i] = waits;
        const part = Math.min(Math.max(waits, 0), busy);
        running[WAIT] += part;
        running[TRANSFER] += busy - part;
        sum(WAIT)[i + 1] = running[WAIT];
        sum(TRANSFER)[i + 1] = running[TRANSFER];
      } else {
        running[kind] += busy;
        sum(kind)[i + 1] = running[kind];
      }
    }
    // A class that some slices do not belong to: carry its sum over them.
    for (const totals of lane.sums) {
      if (totals) for (let i = 1; i <= n; i += 1) if (totals[i] < totals[i - 1]) totals[i] = totals[i - 1];
    }
    return w;
  }

  function kindOf(type, kinds) {
    return type >= TOGETHER ? type - TOGETHER : kinds[type];
  }

  // The last slice that starts at or before a time, at or after `from`; from - 1 where there is none.
  function lastBefore(start, time, from) {
    let low = from, step = 1, high = from;
    while (high < start.length && start[high] <= time) {
      low = high + 1;
      high += step;
      step *= 2;
    }
    high = Math.min(high, start.length);
    while (low < high) {
      const middle = (low + high) >> 1;
      if (start[middle] <= time) low = middle + 1;
      else high = middle;
    }
    return low - 1;
  }

  // What a class keeps busy before a time; `i` is the last slice that starts before it.
  function busyBefore(lane, cls, sums, i, time) {
    if (i < 0) return 0;
    const own = sums[i + 1] - sums[i];
    if (!own) return sums[i];
    const begin = lane.start[i], end = lane.end[i];
    if (time >= end) return sums[i] + own;
    const inside = time - begin;
    if (lane.together && lane.joined.has(i)) return sums[i] + (own * inside) / Math.max(end - begin, 1);
    if (cls === WAIT) return sums[i] + Math.min(inside, own);
    if (cls === TRANSFER) return sums[i] + Math.max(0, inside - Math.max(lane.wait[i], 0));
    return sums[i] + inside;
  }

  // The share of each column that a class keeps busy; false where it keeps none.
  function coverage(lane, cls, sums, from, perColumn, columns, out) {
    if (!sums || !lane.slices) return false;
    let i = lastBefore(lane.start, from, 0);
    let before = busyBefore(lane, cls, sums, i, from);
    const first = before;
    for (let column = 0; column < columns; column += 1) {
      const time = from + (column + 1) * perColumn;
      i = lastBefore(lane.start, time, i < 0 ? 0 : i);
      const now = busyBefore(lane, cls, sums, i, time);
      out[column] = (now - before) / perColumn;
      before = now;
    }
    return before > first;
  }

  // Call back for every slice of at least `least` units that is seen in [from, to).
  function eachWide(lane, from, to, least, callback) {
    let i = Math.max(lastBefore(lane.start, from, 0), 0);
    while (i < lane.slices && lane.start[i] < to) {
      if (i % BLOCK === 0 && lane.longest[i / BLOCK] < least) {
        i += BLOCK;
        continue;
      }
      if (lane.end[i] - lane.start[i] >= least && lane.end[i] > from) callback(i);
      i += 1;
    }
  }

  // The slice at a time, or the nearest within `near` units; -1 where there is none.
  function sliceAt(lane, time, near) {
    const i = lastBefore(lane.start, time, 0);
    if (i >= 0 && time < lane.end[i]) return i;
    const left = i >= 0 ? time - lane.end[i] : Infinity;
    const right = i + 1 < lane.slices ? lane.start[i + 1] - time : Infinity;
    if (Math.min(left, right) > near) return -1;
    return left <= right ? i : i + 1;
  }

  // Sums of the slices whose type is wanted; the lane keeps them until the next search.
  function matched(lane, wanted, search) {
    if (lane.matchOf === search) return lane.match;
    lane.matchOf = search;
    lane.match = new Array(CLASSES).fill(null);
    lane.sums.forEach((sums, cls) => {
      if (!sums) return;
      const out = new Int32Array(lane.slices + 1);
      for (let i = 0; i < lane.slices; i += 1) {
        out[i + 1] = out[i] + (wanted[lane.type[i]] ? sums[i + 1] - sums[i] : 0);
      }
      lane.match[cls] = out;
    });
    return lane.match;
  }

  function delayUs(code) {
    return code ? 2 ** ((code - 1) / DELAY_STEPS) - 1 : null;
  }

  return {
    COMPUTE, TRANSFER, COPY, HOST, RANGE, BLOCKED, WAIT, TOGETHER,
    read, kindOf, lastBefore, coverage, eachWide, sliceAt, matched, delayUs,
  };
})();
