// One trial: its curve, its configuration and its log, over the page of its job.

import { get } from "../api.js";
import { chart } from "../chart.js";
import { copy, h, replace } from "../dom.js";
import { duration, flat, number, value } from "../format.js";
import { folded, pair, pill, problem } from "../parts.js";

export function openTrial(job, trial, closed) {
  const inside = h("div", null, h("p", { class: "muted" }, "Loading…"));
  const close = () => dialog.close();
  const dialog = h("dialog", { class: "trial", "aria-labelledby": "trial-title" },
    h("div", { class: "head" }, h("h2", { id: "trial-title" }, trial), h("button", { type: "button", class: "quiet", onclick: close }, "Close")),
    inside);
  dialog.addEventListener("close", () => { dialog.remove(); closed(dialog); });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) close(); });
  document.body.append(dialog);
  dialog.showModal();
  get(`/jobs/${job}/trials/${trial}`).then((found) => show(inside, found), (error) => replace(inside, problem(error)));
  return dialog;
}

function show(inside, trial) {
  const names = [...new Set(trial.reports.flatMap((report) => Object.keys(report.metrics)))];
  const numeric = names.filter((name) => trial.reports.some((report) => typeof report.metrics[name] === "number"));
  const json = JSON.stringify(trial.params, null, 2);
  const log = h("pre", { class: "log", tabindex: 0, "aria-label": "Log" }, trial.log_cut ? "… there is more before this …\n" : "", trial.log);
  replace(inside,
    h("p", null, pill(trial.status), " ", trial.error === trial.reason ? "" : folded(trial.reason)),
    h("dl", { class: "facts" }, [
      ["Best", trial.best_value === null ? "–" : `${number(trial.best_value)} at iteration ${trial.best_iteration}${trial.why ? ` (${trial.why})` : ""}`],
      ["Iterations", String(trial.iteration)],
      ["Time on devices", duration(trial.seconds)],
      ...(trial.failures ? [["Failed", trial.failures === 1 ? "once" : `${trial.failures} times`]] : []),
    ].map(pair)),
    trial.error ? h("div", { class: "banner failed" }, h("strong", null, folded(trial.error)), trial.traceback ? h("pre", { class: "log", tabindex: 0, "aria-label": "Traceback" }, trial.traceback) : null) : null,
    h("h3", null, "Configuration"),
    h("dl", { class: "facts" }, flat(trial.params).map(([name, given]) => pair([name, value(given)]))),
    h("div", { class: "actions" }, h("button", { type: "button", class: "quiet", onclick: () => copy(json) }, "Copy as JSON")),
    numeric.map((name) => curve(name, trial.reports)),
    h("h3", null, "Log"),
    trial.log ? log : h("p", { class: "muted" }, "It has written nothing."));
  log.scrollTop = log.scrollHeight;
}

function curve(name, reports) {
  const picture = chart({ label: name, xTitle: "iteration", xKind: "count", height: 180 });
  const points = reports.filter((report) => typeof report.metrics[name] === "number").map((report) => [report.iteration, report.metrics[name]]);
  picture.update([{ name, kind: "best", points }]);
  return h("div", null, h("h3", null, name), picture.element);
}
