// Lines over an axis, as SVG in the size of their place, with the values at hand under the pointer and the arrow keys.

import { h, replace, svg } from "./dom.js";
import { number } from "./format.js";
import { extent, scale, wantsLog } from "./scales.js";

const TOP = 12;
const RIGHT = 16;
const BOTTOM = 40;
const CHAR = 6.6;

// options: label, xTitle, xKind, xFormat, yFormat, yKind, height, zero (the y axis begins at 0)
// A series: { name, kind, points: [[x, y], ...], step, area, over }. `kind` is a class of the style sheet; the first is
// the main one.
export function chart(options) {
  const picture = svg("svg", { role: "img", tabindex: 0 });
  const tip = h("div", { class: "tip", hidden: true, role: "status" });
  const legend = h("div", { class: "legend" });
  const element = h("div", { class: "chart" }, picture, tip, legend);
  const state = { series: [], lines: new Map(), spots: [], shown: null, pointer: null, none: "" };

  function draw() {
    const width = Math.max(240, element.clientWidth || 600);
    const height = options.height ?? 230;
    const all = state.series.flatMap((each) => each.points);
    picture.setAttribute("viewBox", `0 0 ${width} ${height}`);
    picture.setAttribute("height", String(height));
    picture.setAttribute("aria-label", summary(all.length));
    if (!all.length) {
      state.spots = [];
      replace(picture, svg("text", { class: "none", x: width / 2, y: height / 2, "text-anchor": "middle" }, state.none));
      return;
    }
    const frame = axes(all, width, height);
    state.spots = [];
    // The main one is on top, but for what lies `over` it.
    const order = [...state.series.filter((each) => !each.over).reverse(), ...state.series.filter((each) => each.over)];
    state.lines = new Map(order.map((each) => [each, line(each, frame)]));
    replace(picture, frame.parts, [...state.lines.values()], svg("g", { class: "spot" }));
    if (state.pointer) point(state.pointer.x, state.pointer.y);
  }

  function axes(all, width, height) {
    const [xLow, xHigh] = extent(all.map(([x]) => x));
    let [low, high] = extent(all.map(([, y]) => y));
    const log = !options.zero && wantsLog(low, high);
    if (options.zero) low = Math.min(0, low);
    if (!log && high > low) {
      const pad = (high - low) * 0.04;
      [low, high] = [options.zero ? low : low - pad, high + pad];
    }
    const yFormat = options.yFormat ?? number;
    const bottom = height - BOTTOM;
    const y = scale(low, high, bottom, TOP, log ? "log" : options.yKind, 5);
    const left = 14 + CHAR * Math.max(...y.ticks.map((tick) => yFormat(tick).length));
    const x = scale(options.xKind === "count" ? xLow : Math.min(0, xLow), xHigh, left, width - RIGHT, options.xKind, Math.max(2, Math.floor((width - left) / 90)));
    const format = options.xFormat ?? number;
    const title = `${options.xTitle}${log ? " (values on a logarithmic axis)" : ""}`;
    const parts = [
      y.ticks.map((tick) => svg("g", { class: "tick" },
        svg("line", { x1: left, x2: width - RIGHT, y1: y.at(tick), y2: y.at(tick) }),
        svg("text", { x: left - 8, y: y.at(tick) + 4, "text-anchor": "end" }, yFormat(tick)))),
      x.ticks.map((tick) => svg("text", { class: "tick-x", x: x.at(tick), y: bottom + 17, "text-anchor": "middle" }, format(tick))),
      svg("line", { class: "axis", x1: left, x2: width - RIGHT, y1: bottom, y2: bottom }),
      svg("text", { class: "title", x: (left + width - RIGHT) / 2, y: height - 4, "text-anchor": "middle" }, title),
    ].flat();
    return { x, y, left, width, bottom, parts, format, yFormat };
  }

  function line(series, frame) {
    let before = null;
    let d = "";
    for (const [x, y] of series.points) {
      const [px, py] = [frame.x.at(x), frame.y.at(y)];
      state.spots.push({ px, py, x, y, series, frame });
      d += before === null ? `M${px.toFixed(1)} ${py.toFixed(1)}` : series.step ? `H${px.toFixed(1)}V${py.toFixed(1)}` : `L${px.toFixed(1)} ${py.toFixed(1)}`;
      before = [px, py];
    }
    const parts = [];
    if (series.area && before) parts.push(svg("path", { class: "area", d: `${d}L${before[0].toFixed(1)} ${frame.bottom}L${frame.x.at(series.points[0][0]).toFixed(1)} ${frame.bottom}Z` }));
    parts.push(svg("path", { class: "line", d }));
    if (series.points.length === 1) parts.push(svg("circle", { class: "dot", cx: before[0], cy: before[1], r: 3 }));
    return svg("g", { class: `series ${series.kind}` }, parts);
  }

  function show(spot) {
    state.shown = spot;
    const place = picture.querySelector(".spot");
    if (!place) return;
    picture.querySelectorAll(".series.near").forEach((each) => each.classList.remove("near"));
    tip.hidden = !spot;
    if (!spot) return replace(place);
    state.lines.get(spot.series)?.classList.add("near");
    replace(place, svg("circle", { cx: spot.px, cy: spot.py, r: 4.5 }));
    replace(tip, h("strong", null, spot.series.name), h("span", null, `${options.xTitle} ${spot.frame.format(spot.x)}`), h("span", { class: "num" }, spot.frame.yFormat(spot.y)));
    const room = element.clientWidth - tip.offsetWidth - 4;
    tip.style.left = `${Math.max(4, Math.min(room, spot.px + 12))}px`;
    tip.style.top = `${Math.max(0, spot.py - tip.offsetHeight - 10)}px`;
  }

  function point(x, y) {
    let near = null;
    let distance = Infinity;
    for (const spot of state.spots) {
      const d = (spot.px - x) ** 2 + (spot.py - y) ** 2;
      if (d < distance) [near, distance] = [spot, d];
    }
    show(near);
  }

  function summary(points) {
    if (!points) return `${options.label}: ${state.none}`;
    const main = state.series[0];
    const last = main.points[main.points.length - 1];
    return `${options.label}: ${state.series.length} ${state.series.length === 1 ? "line" : "lines"}; ${main.name} ends at ${(options.yFormat ?? number)(last[1])}. Arrow keys read the values.`;
  }

  picture.addEventListener("pointermove", (event) => {
    const box = picture.getBoundingClientRect();
    state.pointer = { x: event.clientX - box.left, y: event.clientY - box.top };
    point(state.pointer.x, state.pointer.y);
  });
  const leave = () => { state.pointer = null; show(null); };
  picture.addEventListener("pointerleave", leave);
  picture.addEventListener("blur", leave);
  picture.addEventListener("keydown", (event) => {
    const by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const spots = state.spots.filter((spot) => spot.series === (state.shown?.series ?? state.series[0]));
    if (!by || !spots.length) return;
    event.preventDefault();
    const at = spots.findIndex((spot) => spot.x === state.shown?.x);
    show(spots[Math.min(spots.length - 1, Math.max(0, at + by))]);
  });
  new ResizeObserver(draw).observe(element);

  return {
    element,
    update(series, names = [], none = "Nothing to show yet") {
      state.none = none;
      state.series = series.filter((each) => each.points.length);
      replace(legend, names.map(([kind, name]) => h("span", { class: `key ${kind}` }, h("i"), name)));
      draw();
    },
  };
}
