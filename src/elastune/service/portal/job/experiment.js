// What was submitted.

import { copy, h, replace } from "../dom.js";
import { pair } from "../parts.js";

const FIRST = ["algorithm", "searcher", "seed"];

export function experimentCard() {
  const inside = h("div");
  const element = h("section", { class: "card" }, h("details", null, h("summary", null, "Experiment"), inside));

  function update({ spec, priority, code }) {
    const { space, ...rest } = spec;
    const facts = [
      ...FIRST.map((name) => [name, name in rest ? text(rest[name]) : "not given"]),
      ["priority", String(priority)],
      ["code", code ?? "none"],
      ...Object.entries(rest).filter(([name]) => !FIRST.includes(name)).map(([name, given]) => [name, text(given)]),
    ];
    replace(inside,
      h("dl", { class: "facts" }, facts.map(pair)),
      h("h3", null, "Space"),
      space ? h("dl", { class: "params spec" }, Object.entries(space).map(([name, given]) => pair([name, text(given)]))) : h("p", { class: "muted" }, "It has none."),
      h("div", { class: "actions" }, h("button", { type: "button", class: "quiet", onclick: () => copy(JSON.stringify(spec, null, 2)) }, "Copy as JSON")));
  }

  return { element, update };
}

// {"uniform": [0, 1]} as uniform [ 0, 1 ]
function text(given) {
  if (given === null || typeof given !== "object") return String(given);
  const parts = Array.isArray(given) ? [] : Object.entries(given);
  return parts.length === 1 ? `${parts[0][0]} ${spaced(parts[0][1])}` : spaced(given);
}

const spaced = (given) => (typeof given === "string" ? given : JSON.stringify(given, null, 1).replace(/\n\s*/g, " "));
