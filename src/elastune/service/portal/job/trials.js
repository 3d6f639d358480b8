// Parallel coordinates and the table of trials.

import { get } from "../api.js";
import { h, keyed, setText } from "../dom.js";
import { brief, duration, figure, flat, value } from "../format.js";
import { parallel } from "../parallel.js";
import { card, cells, pill, table } from "../parts.js";

const DRAWN = 200;
const PAGE = 25;
const PARAMS = 8; // of a trial in its row: it opens with all of them
const NOTE = "A line for each trial. Its colour is its value; a click opens it.";

export function parametersCard(job, open) {
  const picture = parallel("Parameters and values of the trials", open);
  const note = h("p", { class: "muted" }, NOTE);
  return {
    element: card("Parameters", picture.element, note),
    async load({ metric, mode, ended_at }) {
      const { trials } = await get(`/jobs/${job}/trials?limit=${DRAWN}`);
      const judged = trials.filter((trial) => trial.why);
      picture.update({ trials: trials.filter((trial) => !trial.why), metric, mode, over: ended_at !== null });
      setText(note, NOTE + judged.map((trial) => ` ${trial.trial} is left out: its value is ${trial.why}.`).join(""));
    },
  };
}

export function trialsCard(job, open) {
  const sort = h("select", { id: "sort", onchange: () => { offset = 0; load(); } },
    h("option", { value: "value" }, "the best first"),
    h("option", { value: "number" }, "in their order"),
    h("option", { value: "newest" }, "the newest first"));
  const list = table("Trials", ["Trial", "Status", ">Best", ">Last", ">Iterations", ">Time on devices", "Configuration"], "stack trials");
  const where = h("span", { class: "muted" });
  const back = h("button", { type: "button", class: "quiet", onclick: () => turn(-PAGE) }, "Previous");
  const on = h("button", { type: "button", class: "quiet", onclick: () => turn(PAGE) }, "Next");
  const element = card("Trials",
    h("div", { class: "tools" }, h("label", { for: "sort" }, "Show"), sort),
    list.element,
    h("div", { class: "tools" }, back, where, on));
  let offset = 0;
  let over = false;

  function turn(by) {
    offset = Math.max(0, offset + by);
    load();
  }

  async function load(told = {}) {
    over ||= Boolean(told.ended_at);
    const order = sort.value === "newest" ? "sort=number&descending=true" : `sort=${sort.value}`;
    const page = await get(`/jobs/${job}/trials?${order}&offset=${offset}&limit=${PAGE}`);
    keyed(list.body, page.trials, (trial) => trial.trial, row);
    setText(where, page.total ? `${offset + 1} to ${offset + page.trials.length} of ${page.total}` : over ? "No trial was started." : "No trial yet");
    back.disabled = offset === 0;
    on.disabled = offset + PAGE >= page.total;
    back.hidden = on.hidden = page.total <= PAGE;
  }

  function row(trial) {
    const all = flat(trial.params);
    const params = all.slice(0, PARAMS).map(([name, given]) => h("span", { class: "param" }, h("span", null, name), ` ${value(given)}`));
    if (all.length > PARAMS) params.push(h("span", { class: "muted" }, `and ${all.length - PARAMS} more`));
    return h("tr", null, cells(
      { label: "Trial", value: h("button", { type: "button", class: "link", onclick: () => open(trial.trial) }, trial.trial), head: true },
      { label: "Status", value: [pill(trial.status), trial.error ? h("span", { class: "sub reason" }, brief(trial.error)) : null].filter(Boolean) },
      { label: "Best", value: [h("strong", null, figure(trial.best_value)), trial.why ? h("span", { class: "sub why" }, trial.why) : null].filter(Boolean), num: true },
      { label: "Last", value: figure(trial.value), num: true },
      { label: "Iterations", value: String(trial.iteration), num: true },
      { label: "Time on devices", value: duration(trial.seconds), num: true },
      { label: "Configuration", value: params, wide: true },
    ));
  }

  return { element, load };
}
