// A job: its best configuration first, then how it stands, then everything there is to know.

import { call, get, watch } from "../api.js";
import { ask, h, replace, say, setText } from "../dom.js";
import { bestCard } from "../job/best.js";
import { bestsCard, curvesCard, machinesCard, spendCard } from "../job/charts.js";
import { experimentCard } from "../job/experiment.js";
import { historyCard } from "../job/history.js";
import { logsCard } from "../job/logs.js";
import { metersCard } from "../job/meters.js";
import { notesCard } from "../job/notes.js";
import { planCard } from "../job/plan.js";
import { openTrial } from "../job/trial.js";
import { parametersCard, trialsCard } from "../job/trials.js";
import { folded, liveMark, pill, problem } from "../parts.js";
import { refresher } from "../refresh.js";

export function jobPage(me, id) {
  const live = liveMark();
  const state = h("span");
  const title = h("h1", null, id);
  const about = h("p", { class: "muted about" });
  const actions = h("div", { class: "actions" });
  const banner = h("div");
  let dialog = null;
  const best = bestCard(id, open);
  const meters = metersCard();
  const notes = notesCard();
  const plan = planCard();
  const [curves, bests, machines, spend] = [curvesCard(id), bestsCard(), machinesCard(), spendCard()];
  const parameters = parametersCard(id, open);
  const trials = trialsCard(id, open);
  const logs = logsCard(id);
  const past = historyCard();
  const experiment = experimentCard();
  const element = h("div", { class: "page" },
    h("nav", { class: "crumbs", "aria-label": "Where" }, h("a", { href: "#/" }, "Jobs"), h("span", null, id)),
    h("div", { class: "head" }, title, state, live.element, actions),
    about, banner,
    h("div", { class: "first" }, best.element, meters.element),
    notes.element,
    h("div", { class: "grid" }, curves.element, parameters.element),
    h("div", { class: "grid three" }, bests.element, machines.element, spend.element),
    plan.element, trials.element, logs.element, experiment.element, past.element);
  let told = null;
  // Nothing is known before the first word of the service, and nothing is what is shown.
  const cards = [best, meters, notes, curves, parameters, bests, machines, spend, trials, logs, past, experiment];
  for (const part of cards) part.element.hidden = true;

  const run = refresher(() => Promise.all([curves.load(), parameters.load(told), trials.load(told)]));
  const record = refresher(async () => {
    const job = await get(`/jobs/${id}`);
    past.update(job.history);
    experiment.update(job);
    past.element.hidden = experiment.element.hidden = false;
    replace(about, `Submitted ${new Date(job.created_at * 1000).toLocaleString()}`,
      job.experiment ? [" as part of the experiment ", h("a", { href: `#/experiments/${job.experiment}` }, job.experiment)] : []);
    await logs.load();
  }, 500);

  function update(progress) {
    const before = told;
    told = progress;
    setText(title, progress.name);
    if (before?.state !== progress.state || before?.cancelling !== progress.cancelling) {
      replace(state, pill(progress.state));
      showActions(progress);
      if (before) say(`${progress.name} is ${progress.state}`);
      record.ask();
      if (progress.state === "failed" && !progress.best) {
        banner.after(logs.element); // what a reader looks for now
        logs.open();
      }
    }
    showBanner(banner, progress);
    for (const part of [best, meters, notes, bests, machines, spend, plan]) part.update(progress);
    const begun = progress.status !== null;
    for (const part of [meters, machines, spend, trials]) part.element.hidden = !begun;
    const hopeless = progress.ended_at !== null && !progress.best; // nothing will ever be drawn
    for (const part of [curves, parameters, bests]) part.element.hidden = !begun || hopeless;
    best.element.hidden = !begun && progress.ended_at !== null;
    logs.element.hidden = false;
    if (begun) run.ask();
  }

  function showActions(progress) {
    const mayChange = me.role !== "reader";
    const over = progress.ended_at !== null;
    const stops = progress.cancelling || progress.state === "finishing";
    replace(actions, ...(mayChange ? [
      ...(over ? [
        h("button", { type: "button", class: "quiet", onclick: again }, "Run again"),
        h("button", { type: "button", class: "danger", onclick: remove }, "Delete"),
      ] : [
        h("button", { type: "button", class: "danger", disabled: stops, onclick: cancel }, stops ? "Stopping…" : "Cancel job"),
      ]),
    ] : []));
  }

  async function cancel() {
    const text = `${told.name} stops in an orderly way. What it has found so far is kept.`;
    if (!(await ask("Cancel this job?", text, "Cancel job", "Keep it running"))) return;
    await attempt(() => call("POST", `/jobs/${id}/cancel`));
  }

  async function again() {
    const text = `Another job with the code, the configuration and the seed of ${told.name}.`;
    if (!(await ask("Run it again?", text, "Run again", "Not now"))) return;
    const job = await attempt(() => call("POST", `/jobs/${id}/rerun`));
    if (job) location.hash = `#/jobs/${job.id}`;
  }

  async function remove() {
    const text = `${told.name} is gone then, with its results, logs and checkpoints.`;
    if (!(await ask("Delete this job?", text, "Delete", "Keep it"))) return;
    if ((await attempt(() => call("DELETE", `/jobs/${id}`))) !== null) location.hash = "#/";
  }

  async function attempt(request) {
    try {
      return await request();
    } catch (error) {
      banner.prepend(problem(error));
      return null;
    }
  }

  // A trial has an address of its own, so that Back leads from it to its job.
  function open(trial) {
    history.pushState({ over: id }, "", `#/jobs/${id}/trials/${trial}`);
    at(trial);
  }

  function at(trial) {
    const before = dialog;
    dialog = null;
    before?.close();
    if (trial) dialog = openTrial(id, trial, left);
  }

  function left(closed) {
    if (closed !== dialog) return; // the address has changed before
    dialog = null;
    if (history.state?.over === id) history.back();
    else history.replaceState(null, "", `#/jobs/${id}`);
  }

  let close = () => {};
  let closed = false;
  get(`/jobs/${id}`).then(
    () => { if (!closed) close = watch(`/jobs/${id}/events`, { progress: update }, live.update); },
    (error) => replace(element, problem(error)));
  return {
    element,
    at,
    close() { closed = true; at(null); close(); run.close(); record.close(); },
  };
}

// Why it is not simply running: said where it is seen first.
function showBanner(element, progress) {
  const lines = [];
  if (progress.state === "failed") lines.push(["failed", "This job has failed", progress.reason]);
  else if (progress.state === "cancelled") lines.push(["quiet", "This job was cancelled", progress.reason]);
  else if (progress.cancelling) lines.push(["warning", "This job is being cancelled", "It ends in an orderly way."]);
  else if (progress.state !== "running" && progress.state !== "succeeded" && progress.reason) lines.push(["quiet", "", progress.reason]);
  const text = JSON.stringify(lines);
  if (element.dataset.shows === text) return;
  element.dataset.shows = text;
  replace(element, lines.map(([kind, head, body]) => h("div", { class: `banner ${kind}`, role: kind === "failed" ? "alert" : null },
    head ? h("strong", null, head) : null, body ? h("p", null, folded(body)) : null)));
}
