// The timeline a reader zooms into: keys, pointer, buttons, links. The static picture stays for
// paper, and for browsers that cannot unpack the columns.
"use strict";
(function () {
  const root = document.querySelector(".timeline");
  const source = document.getElementById("timeline-data");
  if (!root || !source) return;
  const part = (name) => root.querySelector("[data-tl=" + name + "]");
  function standIn(why) {
    part("problem").textContent = why + " The picture below stands in.";
    part("problem").hidden = false;
  }
  if (typeof DecompressionStream === "undefined") {
    standIn("This browser cannot unpack the timeline to zoom into: it lacks DecompressionStream, which browsers have since 2023.");
    return;
  }
  TimelineRead.read(JSON.parse(source.textContent)).then(start).catch((error) => standIn("The timeline to zoom into could not be unpacked (" + error + ")."));

  function start(model) {
    const canvas = part("canvas"), strip = part("strip");
    const state = {
      from: model.view[0], to: model.view[1], width: 0, height: 0, scale: 1, rows: [], cut: false,
      colors: null, painter: null, inner: false, picked: null, told: null, rank: null, mark: -1, search: null,
    };
    const c = { root, model, state, part, canvas, strip, side: part("labels"), words: TimelineWords(model) };
    c.rows = TimelineRows(c);
    c.scene = TimelineScene(c);
    c.look = TimelineLook(c);
    c.pick = TimelinePick(c);
    c.say = c.pick.say;
    c.tell = c.pick.tell;
    c.arranged = () => { c.rows.arrange(); c.scene.resize(); };
    const { scene, look, pick } = c;

    // Keys, while the timeline has the focus
    const closer = () => look.zoom(1 / 1.5, state.width / 2), wider = () => look.zoom(1.5, state.width / 2);
    const KEYS = {
      w: closer, "+": closer, "=": closer, s: wider, "-": wider,
      a: () => look.pan(-0.25), d: () => look.pan(0.25),
      arrowup: () => pick.moveLane(-1), arrowdown: () => pick.moveLane(1),
      arrowleft: () => pick.moveSlice(-1), arrowright: () => pick.moveSlice(1),
      n: () => look.goMark(1), p: () => look.goMark(-1), "[": () => look.goStep(-1), "]": () => look.goStep(1),
      "/": () => part("search").focus(), escape: look.everything,
      enter: () => { if (!part("more").hidden) part("more").open = !part("more").open; },
    };
    canvas.addEventListener("keydown", function (event) {
      const act = event.ctrlKey || event.metaKey || event.altKey ? null : KEYS[event.key.toLowerCase()];
      if (!act) return;
      event.preventDefault();
      act();
    });
    part("search").addEventListener("input", () => pick.search(part("search").value));
    part("search").addEventListener("keydown", function (event) {
      if (event.key === "Enter") pick.nextFound(event.shiftKey ? -1 : 1);
      else if (event.key === "Escape") {
        part("search").value = "";
        pick.search("");
        canvas.focus({ preventScroll: true });
      } else return;
      event.preventDefault();
    });

    // Pointer: drag pans, two fingers zoom, a click picks; the wheel zooms with Ctrl only
    const fingers = new Map();
    let moved = false, pinch = null;
    const place = (event) => {
      const box = canvas.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    };
    canvas.addEventListener("pointerdown", function (event) {
      if (event.button) return;
      fingers.set(event.pointerId, place(event));
      moved = fingers.size > 1;
      pinch = null;
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", function (event) {
      const [px, py] = place(event);
      const last = fingers.get(event.pointerId);
      if (!last) {
        if (event.pointerType === "touch") return;
        const item = pick.under(px, py);
        canvas.style.cursor = item || pick.flagUnder(px, py) >= 0 ? "pointer" : "grab";
        pick.hover(item);
        return;
      }
      if (fingers.size > 1) {
        fingers.set(event.pointerId, [px, py]);
        const [one, two] = [...fingers.values()];
        const middle = (one[0] + two[0]) / 2, wide = Math.max(Math.abs(one[0] - two[0]), 10);
        if (pinch) {
          look.zoom(pinch.wide / wide, middle);
          look.pan((pinch.middle - middle) / state.width);
        }
        pinch = { middle, wide };
      } else if (moved || Math.abs(px - last[0]) >= 4) {
        moved = true;
        fingers.set(event.pointerId, [px, py]);
        look.pan((last[0] - px) / state.width);
      }
    });
    function lift(event) {
      const known = fingers.delete(event.pointerId);
      pinch = null;
      if (!known || moved || event.type !== "pointerup") return;
      const mark = pick.flagUnder(...place(event));
      if (mark >= 0) look.toMark(mark);
      else pick.pick(pick.under(...place(event)), false);
    }
    canvas.addEventListener("pointerup", lift);
    canvas.addEventListener("pointercancel", lift);
    canvas.addEventListener("pointerleave", () => pick.subject());
    canvas.addEventListener("dblclick", function (event) {
      const item = pick.under(...place(event));
      if (!item) return;
      const begin = item.lane.start[item.at], end = item.lane.end[item.at];
      look.look(2 * begin - end, 2 * end - begin);
    });
    canvas.addEventListener("wheel", function (event) {
      const zooms = event.ctrlKey || event.metaKey;
      if (!zooms && Math.abs(event.deltaX) <= Math.abs(event.deltaY)) return;
      event.preventDefault();
      if (zooms) look.zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.01), place(event)[0]);
      else look.pan(event.deltaX / state.width);
    }, { passive: false });
    function onStrip(event) {
      if (!(event.buttons & 1)) return;
      const box = strip.getBoundingClientRect();
      const middle = ((event.clientX - box.left) / box.width) * model.length;
      const now = state.to - state.from;
      const half = (now < model.length * 0.9 ? now : model.length / 5) / 2;
      look.look(middle - half, middle + half);
    }
    strip.addEventListener("pointerdown", function (event) {
      strip.setPointerCapture(event.pointerId);
      onStrip(event);
    });
    strip.addEventListener("pointermove", onStrip);

    // Buttons, and links from findings
    const press = (name, act, shown) => {
      part(name).addEventListener("click", act);
      part(name).hidden = !shown;
    };
    const steps = model.ranks.some((rank) => rank.steps.length);
    press("back", () => look.goStep(-1), steps);
    press("on", () => look.goStep(1), steps);
    press("next", () => look.goMark(1), model.marks.length);
    press("in", closer, true);
    press("out", wider, true);
    press("all", look.everything, true);
    press("inner", function () {
      state.inner = !state.inner;
      part("inner").setAttribute("aria-pressed", String(state.inner));
      c.arranged();
    }, model.ranks.some((rank) => rank.lanes.some((lane) => lane.level)));
    document.addEventListener("click", function (event) {
      const link = event.target.closest ? event.target.closest("a[data-t]") : null;
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
      event.preventDefault();
      const [from, to] = link.dataset.t.split("-").map((ms) => (Number(ms) * 1e6) / model.unit_ns);
      const room = (to - from) * 0.12;
      const wanted = look.address(from - room, to + room, Number(link.dataset.r));
      if (location.hash === wanted) look.fromAddress();
      else location.hash = wanted;
      canvas.focus({ preventScroll: true });
    });
    window.addEventListener("hashchange", look.fromAddress);

    // The page's theme and width
    window.matchMedia("(prefers-color-scheme: dark)").addEventListener("change", scene.recolor);
    new MutationObserver(scene.recolor).observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
    new ResizeObserver(function () {
      const width = canvas.parentElement.clientWidth;
      if (width && width !== state.width) scene.resize();
    }).observe(canvas.parentElement);

    const many = model.ranks.length === 1 ? " rank, " : " ranks, ";
    canvas.setAttribute("aria-label", "Timeline of " + model.ranks.length + many + c.words.duration(model.length) + ". Arrow keys select slices, W and S zoom.");
    part("said").textContent = model.said;
    root.classList.add("live");
    part("live").hidden = false;
    part("tools").hidden = false;
    c.arranged();
    pick.subject();
    look.fromAddress();
    requestAnimationFrame(() => performance.mark("timeline-ready"));
  }
})();
