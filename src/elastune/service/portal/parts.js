// Small pieces that several pages have.

import { now } from "./api.js";
import { h, replace, setText } from "./dom.js";
import { brief, clock, duration, figure, percent } from "./format.js";

export const pill = (state) => h("span", { class: "pill", "data-state": state }, state);

// A long text is cut until somebody wants all of it.
export function folded(text) {
  const short = brief(text);
  const shown = h("span", { class: "text" }, short);
  if (short === text.trim()) return shown;
  const button = h("button", { type: "button", class: "link", "aria-expanded": "false", onclick: toggle }, "show all");
  function toggle() {
    const open = button.getAttribute("aria-expanded") === "false";
    button.setAttribute("aria-expanded", String(open));
    setText(button, open ? "show less" : "show all");
    setText(shown, open ? text.trim() : short);
  }
  return h("span", null, shown, " ", button);
}

export const pair = ([name, text]) => h("div", null, h("dt", null, name), h("dd", null, text));

export function bar(label) {
  const inner = h("div", { class: "bar-inner" });
  const element = h("div", { class: "meter", role: "progressbar", "aria-label": label, "aria-valuemin": 0, "aria-valuemax": 100 }, inner);
  return {
    element,
    update(fraction, tone = "") {
      const known = fraction !== null && fraction !== undefined;
      const shown = known ? Math.min(1, Math.max(0, fraction)) : 0;
      inner.style.width = `${shown * 100}%`;
      element.dataset.tone = tone;
      if (known) element.setAttribute("aria-valuenow", String(Math.round(shown * 100)));
      else element.removeAttribute("aria-valuenow");
    },
  };
}

export function miniBar(fraction) {
  if (fraction === null || fraction === undefined) return h("span", { class: "muted" }, "–");
  const { element, update } = bar("Progress");
  update(fraction);
  return h("span", { class: "mini" }, element, h("span", { class: "num" }, percent(fraction)));
}

export function bestText(now) {
  return now.best_value === null ? "–" : figure(now.best_value);
}

// How long ago, as `showAges` fills it in.
export function age(unix) {
  return h("time", { "data-at": unix, datetime: new Date(unix * 1000).toISOString(), title: clock(unix) });
}

export function showAges(element) {
  for (const each of element.querySelectorAll("time[data-at]")) {
    const seconds = Math.max(0, now() - Number(each.dataset.at));
    setText(each, seconds < 60 ? "just now" : duration(seconds));
  }
}

export function card(title, ...children) {
  return h("section", { class: "card" }, h("h2", null, title), ...children);
}

export function problem(error) {
  return h("div", { class: "banner failed", role: "alert" }, h("p", null, error.message));
}

export function liveMark() {
  const element = h("span", { class: "live", "data-live": "wait" }, "connecting");
  return {
    element,
    update(on) { // null: there is nothing more to come
      element.dataset.live = on === null ? "over" : on ? "on" : "off";
      setText(element, on === null ? "" : on ? "live" : "reconnecting");
    },
  };
}

export function table(caption, columns, className = "") {
  const body = h("tbody");
  const head = h("tr", null, columns.map((column) =>
    column instanceof Node ? column : h("th", { scope: "col", class: column.startsWith(">") ? "num" : null }, column.replace(/^>/, ""))));
  const element = h("div", { class: `scroll ${className}` },
    h("table", null, h("caption", { class: "visually-hidden" }, caption), h("thead", null, head), body));
  return { element, body, rows: (rows) => replace(body, rows) };
}

export function cells(...values) {
  return values.map((given) => {
    const { label, value, num, wide, head } = given;
    const tag = head ? "th" : "td";
    return h(tag, { class: [num && "num", wide && "wide"].filter(Boolean).join(" ") || null, "data-label": label, scope: head ? "row" : null }, value);
  });
}
