// Painting the timeline: lanes by busy share, single slices from 3 px on, names from 40 px on.
"use strict";
const TimelineDraw = (function () {
  const R = TimelineRead;
  const WIDE_PX = 3; // from here on a slice is drawn by itself
  const NAMED_PX = 40;
  const DIM = 0.22; // what a search does not find
  const FONT = '11.5px system-ui, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif';
  const BOLD = "600 " + FONT;
  const TOKENS = [
    "bg", "fg", "muted", "line", "grid", "link", "bad", "bad-tint", "compute", "comm", "copy", "host",
    "on-compute", "on-comm", "on-bad",
  ];

  // Colours and textures come from the style sheet, so that the canvas follows the theme.
  function palette(ctx, scale) {
    const style = getComputedStyle(document.documentElement);
    const colors = {};
    for (const token of TOKENS) colors[token] = style.getPropertyValue("--" + token).trim();
    colors.hostAlpha = parseFloat(style.getPropertyValue("--host-opacity")) || 1;
    colors.wait = stripes(ctx, colors, scale);
    colors.dots = dots(ctx, colors, scale);
    return colors;
  }
  function tile(size) {
    const canvas = document.createElement("canvas");
    canvas.width = canvas.height = size;
    return canvas;
  }
  function stripes(ctx, colors, scale) {
    const size = Math.max(8, Math.round(8 * scale));
    const canvas = tile(size);
    const pen = canvas.getContext("2d");
    pen.fillStyle = colors.bg;
    pen.fillRect(0, 0, size, size);
    pen.strokeStyle = colors.comm;
    pen.lineWidth = size * 0.24;
    for (const shift of [-size, 0, size]) {
      pen.beginPath();
      pen.moveTo(shift - 1, size + 1);
      pen.lineTo(shift + size + 1, -1);
      pen.stroke();
    }
    return ctx.createPattern(canvas, "repeat");
  }
  function dots(ctx, colors, scale) {
    const size = Math.round(4 * scale);
    const canvas = tile(size);
    const pen = canvas.getContext("2d");
    pen.fillStyle = colors.copy;
    pen.fillRect(0, 0, size, size);
    pen.fillStyle = colors.bg;
    pen.fillRect(size / 4, size / 4, size / 2, size / 2);
    return ctx.createPattern(canvas, "repeat");
  }

  const widths = new Map();
  function textWidth(ctx, text) {
    const key = ctx.font + "\n" + text;
    let width = widths.get(key);
    if (width === undefined) {
      if (widths.size > 20000) widths.clear();
      width = ctx.measureText(text).width;
      widths.set(key, width);
    }
    return width;
  }
  // The text cut in its middle until it fits; empty where fewer than four characters would be left.
  function fitted(ctx, text, room) {
    const width = textWidth(ctx, text);
    if (width <= room) return text;
    const letters = Math.floor((text.length * room) / width) - 1;
    if (letters < 4) return "";
    const head = Math.ceil((letters * 4) / 7);
    return text.slice(0, head) + "…" + text.slice(text.length - (letters - head));
  }
  function label(ctx, text, x, y, room, color, halo) {
    const shown = fitted(ctx, text, room);
    if (!shown) return;
    if (halo) {
      ctx.lineWidth = 4;
      ctx.lineJoin = "round";
      ctx.strokeStyle = halo;
      ctx.strokeText(shown, x, y);
    }
    ctx.fillStyle = color;
    ctx.fillText(shown, x, y);
  }

  // One lane. `view` has from, to and width in px; `scale` is device pixels a px.
  function Painter(ctx, scale, model, words) {
    let columns = 0;
    const shares = [];
    function buffers(count) {
      if (count !== columns) {
        columns = count;
        for (let i = 0; i < 4; i += 1) shares[i] = new Float32Array(count);
      }
    }

    // Bars of device pixels from `floor` upwards; `lifted` px are taken already in each column.
    function bars(share, y, height, floor, paint, lifted) {
      const top = Math.round(y * scale), full = Math.round(height * scale);
      ctx.save();
      ctx.setTransform(1, 0, 0, 1, 0, 0);
      ctx.fillStyle = paint;
      let start = 0, size = 0, under = 0;
      for (let column = 0; column <= columns; column += 1) {
        let own = 0, base = 0;
        if (column < columns) {
          const part = share[column];
          base = lifted ? lifted[column] : 0;
          if (part > 0) own = Math.min(Math.max(Math.round(part * full), floor), full - base);
        }
        if (own !== size || base !== under) {
          if (size) ctx.fillRect(start, top + full - under - size, column - start, size);
          start = column;
          size = own;
          under = base;
        }
        if (lifted) lifted[column] += own;
      }
      ctx.restore();
    }

    // Textures are made of device pixels: they are not scaled again.
    function textured(texture, x, y, width, height) {
      ctx.save();
      ctx.setTransform(1, 0, 0, 1, 0, 0);
      ctx.fillStyle = texture;
      ctx.fillRect(x * scale, Math.round(y * scale), width * scale, Math.round(height * scale));
      ctx.restore();
    }

    function covered(lane, cls, sums, view, out) {
      return R.coverage(lane, cls, sums[cls], view.from, (view.to - view.from) / columns, columns, out);
    }

    // Everything of a lane at its busy share, one class on top of the other.
    function shaded(lane, sums, view, y, height, colors) {
      buffers(Math.round(view.width * scale));
      const lifted = shares[3].fill(0);
      const floor = Math.max(1, Math.round(scale));
      const layers = [
        [R.COMPUTE, colors.compute, floor], [R.COPY, colors.copy, floor],
        [R.TRANSFER, colors.comm, 3 * floor], [R.WAIT, colors.wait, 2 * floor],
      ];
      for (const [cls, paint, least] of layers) {
        if (covered(lane, cls, sums, view, shares[0])) bars(shares[0], y, height, least, paint, lifted);
      }
      if (covered(lane, R.HOST, sums, view, shares[0])) {
        const before = ctx.globalAlpha;
        ctx.globalAlpha = before * colors.hostAlpha;
        bars(shares[0], y, height, floor, colors.host, lifted);
        ctx.globalAlpha = before;
      }
    }

    function mean(lanes, cls, view, y, height, paint) {
      buffers(Math.round(view.width * scale));
      const total = shares[1].fill(0);
      let any = false;
      let members = 0;
      for (const own of lanes) {
        const best = shares[2].fill(0);
        for (const lane of own) {
          if (!covered(lane, cls, lane.sums, view, shares[0])) continue;
          any = true;
          for (let i = 0; i < columns; i += 1) if (shares[0][i] > best[i]) best[i] = shares[0][i];
        }
        members += 1;
        for (let i = 0; i < columns; i += 1) total[i] += best[i];
      }
      if (!any) return;
      for (let i = 0; i < columns; i += 1) total[i] /= members;
      bars(total, y, height, Math.max(1, Math.round(scale)), paint, null);
    }

    // Slices of 3 px and more, each by itself: edges, textures, names.
    function single(lane, view, y, height, colors, wanted) {
      const perPx = (view.to - view.from) / view.width;
      const left = (time) => Math.max((time - view.from) / perPx, -2);
      const right = (time) => Math.min((time - view.from) / perPx, view.width + 2);
      const middle = y + height / 2 + 4;
      R.eachWide(lane, view.from, view.to, WIDE_PX * perPx, (i) => {
        const x = left(lane.start[i]), end = right(lane.end[i]);
        const type = lane.type[i];
        const joined = type >= R.TOGETHER;
        const kind = R.kindOf(type, model.types.kind);
        const touches = i + 1 < lane.slices && lane.start[i + 1] - lane.end[i] < perPx;
        const width = end - x - (touches ? 1 : 0);
        ctx.globalAlpha = wanted && !wanted[type] ? DIM : 1;
        if (joined) {
          if (width >= 2 * NAMED_PX && kind !== R.RANGE) {
            note(lane.joined.get(i).count + " slices", x, width, middle, colors);
          }
        } else if (kind === R.TRANSFER) collective(lane, i, x, end, perPx, y, height, colors, touches);
        else if (kind === R.RANGE || kind === R.BLOCKED) box(type, kind, x, width, y, height, colors);
        else {
          if (touches) {
            ctx.fillStyle = colors.bg;
            ctx.fillRect(end - 1, y, 1, height);
          }
          if (kind === R.COPY) textured(colors.dots, x, y, width, height);
          const paint = { [R.COMPUTE]: colors["on-compute"], [R.HOST]: colors.bg }[kind];
          if (paint && width >= NAMED_PX && height >= 13) {
            ctx.font = FONT;
            label(ctx, words.shown(type), (x + end - 1) / 2, middle, width - 8, paint, null);
          } else if (kind === R.COPY && width >= NAMED_PX) {
            note(words.shown(type), x, width, middle, colors);
          }
        }
      });
      ctx.globalAlpha = 1;
    }
    function note(text, x, width, y, colors) {
      ctx.font = BOLD;
      label(ctx, text, x + width / 2, y, width - 8, colors.fg, colors.bg);
    }
    function box(type, kind, x, width, y, height, colors) {
      ctx.strokeStyle = colors.host;
      ctx.lineWidth = 1;
      ctx.fillStyle = colors.bg;
      ctx.fillRect(x, y, width, height);
      ctx.setLineDash(kind === R.BLOCKED ? [3, 2] : []);
      ctx.strokeRect(x + 0.5, y + 0.5, Math.max(width - 1, 1), height - 1);
      ctx.setLineDash([]);
      if (width < NAMED_PX) return;
      ctx.font = FONT;
      const name = words.shown(type);
      const blocked = kind === R.BLOCKED;
      const text = blocked && textWidth(ctx, name + ": blocked") <= width - 8 ? name + ": blocked" : blocked ? "blocked" : name;
      label(ctx, text, x + width / 2, y + height / 2 + 4, width - 8, colors.fg, null);
    }
    function collective(lane, i, x, end, perPx, y, height, colors, touches) {
      const waits = Math.max(lane.wait[i], 0);
      const turn = Math.min(Math.max(x, end - (lane.end[i] - lane.start[i] - waits) / perPx), end);
      const stop = touches ? end - 1 : end;
      ctx.fillStyle = colors.bg;
      ctx.fillRect(x, y, end - x, height);
      const told = words.collective(lane, i);
      if (turn > x + 0.5) {
        textured(colors.wait, x, y, turn - x, height);
        ctx.strokeStyle = colors.comm;
        ctx.lineWidth = 1;
        ctx.strokeRect(x + 0.5, y + 0.5, Math.max(turn - x - 1, 0.5), height - 1);
      }
      ctx.fillStyle = colors.comm;
      ctx.fillRect(turn, y, Math.max(stop - turn, 1), height);
      ctx.font = BOLD;
      const middle = y + height / 2 + 4;
      const texts = (room, choices) => choices.find((text) => text && textWidth(ctx, text) <= room - 8);
      const waiting = texts(turn - x, [told.waitLong, told.wait]);
      if (waiting) label(ctx, waiting, (x + turn) / 2, middle, turn - x, colors.fg, colors.bg);
      const moving = texts(stop - turn, [told.moveLong, told.move, told.size]);
      if (moving) label(ctx, moving, (turn + stop) / 2, middle, stop - turn, colors["on-comm"], null);
    }

    // A lane at its share, then its wide slices; a search dims what it does not find.
    function lane(item, view, y, height, colors, search) {
      if (!search) {
        shaded(item, item.sums, view, y, height, colors);
        single(item, view, y, height, colors, null);
        return;
      }
      ctx.globalAlpha = DIM;
      shaded(item, item.sums, view, y, height, colors);
      ctx.globalAlpha = 1;
      shaded(item, R.matched(item, search.wanted, search), view, y, height, colors);
      single(item, view, y, height, colors, search.wanted);
    }

    return { lane, mean, shaded };
  }

  return { Painter, palette, label, fitted, textWidth, FONT, BOLD };
})();
