// Which states the job went through, and why.

import { h, replace } from "../dom.js";
import { brief, clock, duration } from "../format.js";
import { card, pill } from "../parts.js";

export function historyCard() {
  const list = h("ol", { class: "history" });
  const element = card("History", list);

  function update(steps) {
    replace(list, steps.map((step, index) => h("li", null,
      h("time", { datetime: new Date(step.at * 1000).toISOString() }, clock(step.at)),
      pill(step.state),
      h("span", { class: "muted" }, index ? `after ${duration(step.at - steps[index - 1].at)}` : ""),
      h("span", null, brief(step.reason)))));
  }

  return { element, update };
}
