// Progress, time against the deadline, spend against the budget.

import { h, replace } from "../dom.js";
import { duration, money, percent } from "../format.js";
import { bar } from "../parts.js";

export function metersCard() {
  const meters = ["Progress", "Time", "Spend", "Device time"].map(meter);
  const counts = h("p", { class: "counts" });
  const element = h("section", { class: "card meters", "aria-label": "How it stands" }, meters.map((each) => each.element), counts);

  function update(told) {
    const { plan } = told;
    const iterations = told.iterations_expected ? `${told.iterations} of ${told.iterations_expected} iterations` : `${told.iterations} iterations`;
    const running = told.ended_at === null;
    meters[0].update(percent(told.fraction), iterations, told.fraction, "");
    meters[1].update(duration(told.seconds), limit(told.deadline_s, "deadline", duration, running && plan ? `expected ${duration(plan.newest_finish_s)}` : ""),
      part(told.seconds, told.deadline_s));
    const priced = told.priced || told.budget_usd !== null || plan;
    meters[2].update(priced ? money(told.cost_usd) : "–", !priced ? "no price" : limit(told.budget_usd, "budget", money, running && plan ? `expected ${money(plan.newest_cost_usd)}` : ""),
      part(told.cost_usd, told.budget_usd));
    meters[3].element.hidden = told.budget_device_s === null;
    meters[3].update(duration(told.device_s), limit(told.budget_device_s, "budget", duration, ""), part(told.device_s, told.budget_device_s));
    const there = Object.entries(told.trials).filter(([, count]) => count);
    const all = there.reduce((sum, [, count]) => sum + count, 0);
    replace(counts, h("strong", null, told.trials_expected ? `${all} of ${told.trials_expected} trials started` : `${all} trials`),
      there.map(([status, count]) => h("span", { class: "dot", "data-status": status }, `${count} ${status}`)));
  }

  return { element, update };
}

const part = (value, most) => (most === null ? null : most ? value / most : 1);

function limit(most, name, format, more) {
  const text = most === null ? `no ${name}` : `${name} ${format(most)}`;
  return more ? `${text} · ${more}` : text;
}

function meter(name) {
  const value = h("strong");
  const note = h("span", { class: "muted" });
  const line = bar(name);
  return {
    element: h("div", { class: "meter-row" }, h("div", null, h("span", { class: "label" }, name), value), line.element, note),
    update(text, said, fraction, tone = fraction > 1 ? "over" : fraction > 0.9 ? "near" : "") {
      replace(value, text);
      replace(note, said);
      line.element.hidden = fraction === null;
      line.update(fraction, tone);
    },
  };
}
