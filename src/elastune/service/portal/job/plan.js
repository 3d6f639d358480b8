// What was planned, next to what came of it.

import { h, replace } from "../dom.js";
import { duration, money } from "../format.js";
import { card, cells, table } from "../parts.js";

export function planCard() {
  const ends = table("Forecast and actual", ["", ">Planned first", ">Expected now", ">Actual"], "stack");
  const stages = table("Stages", [">Stage", ">Trials planned", ">Trials that ran", ">Iterations", ">Machines planned", ">Machines at most", ">Ended after"], "stack");
  const note = h("p", { class: "muted" });
  const element = card("Plan against actual", ends.element, stages.element, note);
  element.hidden = true;

  function update({ plan, seconds, cost_usd }) {
    element.hidden = !plan;
    if (!plan) return;
    ends.rows([
      ["Time", plan.finish_s, plan.newest_finish_s, seconds, duration],
      ["Cost", plan.cost_usd, plan.newest_cost_usd, cost_usd, money],
    ].map(([name, first, newest, actual, format]) => h("tr", null, cells(
      { label: "", value: name, head: true },
      { label: "Planned first", value: format(first), num: true },
      { label: "Expected now", value: format(newest), num: true },
      { label: "Actual", value: h("strong", null, format(actual)), num: true },
    ))));
    stages.rows(plan.stages.map(row));
    const times = plan.plans === 1 ? "It was planned once." : `It was planned ${plan.plans} times.`;
    replace(note, plan.at_most ? "The plan says what is allowed at most. " : "", times);
  }

  return { element, update };
}

function row(stage, index) {
  const known = (value, format = String) => (value === null ? "–" : format(value));
  return h("tr", null, cells(
    { label: "Stage", value: stage.bracket ? `${index + 1} (bracket ${stage.bracket})` : String(index + 1), num: true },
    { label: "Trials planned", value: String(stage.trials), num: true },
    { label: "Trials that ran", value: known(stage.actual_trials), num: true },
    { label: "Iterations", value: known(stage.iterations), num: true },
    { label: "Machines planned", value: String(stage.machines), num: true },
    { label: "Machines at most", value: known(stage.actual_machines), num: true },
    { label: "Ended after", value: known(stage.actual_end_s ?? stage.end_s, duration), num: true },
  ));
}
