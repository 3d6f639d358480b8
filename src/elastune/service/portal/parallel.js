// Parallel coordinates: an axis for each parameter and one for the metric, a line for each trial in the colour of its value.

import { h, replace, svg } from "./dom.js";
import { flat, number, value as shown } from "./format.js";
import { colour, extent, scale, wantsLog } from "./scales.js";

const TOP = 34;
const BOTTOM = 12;
const HEIGHT = 300;
const CLOSE = 84; // pixels between two axes, if no name touches another
const LEAST = 112;
const LEFT = 80;
const RIGHT = 72;

export function parallel(label, open) {
  const picture = svg("svg", { role: "img" });
  const tip = h("div", { class: "tip", hidden: true });
  const ramp = h("div", { class: "ramp", "aria-hidden": "true" });
  const scroll = h("div", { class: "scroll", tabindex: 0, role: "group", "aria-label": label }, picture);
  const element = h("div", { class: "chart" }, scroll, tip, ramp);
  let data = { trials: [], metric: "", mode: "min", over: false };

  function draw(least = CLOSE) {
    const rows = data.trials.filter((trial) => trial.best_value !== null).map((trial) => ({ trial, params: new Map(flat(trial.params)) }));
    const names = [...new Set(rows.flatMap((row) => [...row.params.keys()]))];
    const varying = names.filter((name) => new Set(rows.map((row) => shown(row.params.get(name) ?? null))).size > 1);
    const width = Math.max(element.clientWidth || 600, LEFT + least * varying.length + RIGHT);
    picture.setAttribute("viewBox", `0 0 ${width} ${HEIGHT}`);
    picture.setAttribute("width", String(width));
    picture.setAttribute("height", String(HEIGHT));
    if (rows.length < 2 || !varying.length) {
      replace(picture, svg("text", { class: "none", x: width / 2, y: HEIGHT / 2, "text-anchor": "middle" }, nothing(rows.length)));
      replace(ramp);
      return;
    }
    const values = rows.map((row) => row.trial.best_value);
    const [low, high] = extent(values);
    const goodness = (v) => (high === low ? 1 : data.mode === "max" ? (v - low) / (high - low) : (high - v) / (high - low));
    const gap = (width - LEFT - RIGHT) / varying.length;
    const axes = varying.map((name, index) => axis(name, rows.map((row) => row.params.get(name)), LEFT + gap * index));
    axes.push(axis(data.metric, values, LEFT + gap * varying.length, true));
    const lines = rows.map((row) => line(row, axes, varying, goodness)).sort((a, b) => a.good - b.good).map((each) => each.element);
    const best = rows.reduce((a, b) => (goodness(b.trial.best_value) > goodness(a.trial.best_value) ? b : a));
    picture.setAttribute("aria-label", `${label}: ${rows.length} trials. The best, ${best.trial.trial}, has ${data.metric} ${number(best.trial.best_value)}.`);
    replace(picture, svg("g", { class: "lines" }, lines), axes.map((each) => each.element));
    const boxes = [...picture.querySelectorAll(".name")].map((each) => each.getBBox());
    if (least < LEAST && boxes.some((box, index) => index && box.x < boxes[index - 1].x + boxes[index - 1].width + 3)) return draw(LEAST);
    const [worst, top] = data.mode === "max" ? [low, high] : [high, low];
    replace(ramp, h("span", null, `worst ${number(worst)}`), gradient(), h("span", null, `best ${number(top)}`));
  }

  function nothing(reported) {
    if (reported > 1) return "The trials do not differ in their parameters";
    return data.over ? "Only one trial has reported" : "Shown as soon as two trials have reported";
  }

  function axis(name, given, x, metric = false) {
    const numeric = given.every((each) => typeof each === "number" || each === undefined || each === null);
    const numbers = given.filter((each) => typeof each === "number");
    const options = [...new Set(given.filter((each) => each !== undefined).map(shown))].sort();
    let at;
    let ticks;
    if (numeric && numbers.length) {
      const [low, high] = extent(numbers);
      const few = [...new Set(numbers)];
      const of = scale(low, high, HEIGHT - BOTTOM, TOP, wantsLog(low, high) ? "log" : "number", 4);
      at = (each) => (typeof each === "number" ? of.at(each) : null);
      ticks = (few.length <= 4 ? few : [...of.ticks.filter((tick) => Math.abs(of.at(tick) - of.at(low)) > 16 && Math.abs(of.at(tick) - of.at(high)) > 16), low, high])
        .map((each) => [of.at(each), number(Number(each.toPrecision(3)))]);
    } else {
      const place = (text) => HEIGHT - BOTTOM - ((options.indexOf(text) + 0.5) / options.length) * (HEIGHT - TOP - BOTTOM);
      at = (each) => (each === undefined ? null : place(shown(each)));
      ticks = options.slice(0, 16).map((each) => [place(each), short(each, 9)]);
    }
    const element = svg("g", { class: metric ? "axis-p metric" : "axis-p" },
      svg("line", { x1: x, x2: x, y1: TOP, y2: HEIGHT - BOTTOM }),
      svg("text", { class: "name", x, y: 15, "text-anchor": "middle" }, short(name, 12), svg("title", null, name)),
      ticks.map(([y, text]) => svg("text", { class: "halo", x: metric ? x + 7 : x - 7, y: y + 4, "text-anchor": metric ? "start" : "end" }, text)));
    return { x, at, element };
  }

  function line(row, axes, varying, goodness) {
    const good = goodness(row.trial.best_value);
    const points = axes.map((each, index) => [each.x, each.at(index < varying.length ? row.params.get(varying[index]) : row.trial.best_value)]).filter(([, y]) => y !== null);
    const d = points.map(([x, y], i) => `${i ? "L" : "M"}${x.toFixed(1)} ${y.toFixed(1)}`).join("");
    const element = svg("g", { class: good === 1 ? "pline top" : "pline", onclick: () => open(row.trial.trial) },
      svg("path", { class: "grip", d }), svg("path", { class: "line", d, stroke: colour(good) }));
    element.addEventListener("pointerenter", (event) => hover(element, row, event));
    element.addEventListener("pointermove", (event) => move(event));
    element.addEventListener("pointerleave", () => { tip.hidden = true; picture.classList.remove("hovering"); element.classList.remove("near"); });
    return { element, good };
  }

  function hover(element, row, event) {
    picture.classList.add("hovering");
    element.classList.add("near");
    element.parentNode.append(element); // on top
    replace(tip, h("strong", null, row.trial.trial), h("span", { class: "num" }, `${data.metric} ${number(row.trial.best_value)}`),
      [...row.params].map(([name, given]) => h("span", null, `${name}: ${shown(given)}`)));
    tip.hidden = false;
    move(event);
  }

  function move(event) {
    const box = element.getBoundingClientRect();
    tip.style.left = `${Math.max(4, Math.min(box.width - tip.offsetWidth - 4, event.clientX - box.left + 14))}px`;
    tip.style.top = `${Math.max(0, event.clientY - box.top - tip.offsetHeight - 12)}px`;
  }

  new ResizeObserver(() => draw()).observe(element);
  return {
    element,
    update(given) {
      const same = JSON.stringify(given) === JSON.stringify(data);
      data = given;
      if (!same) draw();
    },
  };
}

function gradient() {
  return svg("svg", { viewBox: "0 0 100 8", width: 140, height: 8, preserveAspectRatio: "none" },
    Array.from({ length: 25 }, (_, i) => svg("rect", { x: i * 4, y: 0, width: 4.2, height: 8, fill: colour(i / 24) })));
}

const short = (text, most) => (text.length > most ? `${text.slice(0, most - 1)}…` : text);
