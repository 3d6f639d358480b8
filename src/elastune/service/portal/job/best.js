// The best configuration so far, big, to be copied.

import { copy, h, replace, setText } from "../dom.js";
import { flat, number, value } from "../format.js";

export function bestCard(job, open) {
  const title = h("h2", null, "Best configuration so far");
  const inside = h("div");
  const element = h("section", { class: "card hero", "aria-label": "Best configuration" }, title, inside);
  let shown = "";

  function update(progress) {
    setText(title, progress.ended_at === null ? "Best configuration so far" : "Best configuration");
    const text = JSON.stringify([progress.best, progress.metric, progress.checkpoint_iteration, progress.ended_at !== null]);
    if (text === shown) return; // a selection in it stays
    shown = text;
    replace(inside, ...(progress.best ? found(progress) : [waiting(progress)]));
  }

  function found({ best, metric, mode, checkpoint_iteration: kept }) {
    const json = JSON.stringify(best.params, null, 2);
    const button = h("button", { type: "button", onclick: copied }, "Copy as JSON");
    async function copied() {
      await copy(json);
      setText(button, "Copied");
      setTimeout(() => setText(button, "Copy as JSON"), 2000);
    }
    return [
      h("p", { class: "big" }, h("span", { class: "metric" }, metric), h("span", { title: String(best.value) }, number(best.value)),
        best.why ? null : h("span", { class: "sub" }, mode === "max" ? "highest" : "lowest")),
      best.why ? h("p", { class: "muted" }, `As the algorithm judges: ${best.why}.`) : null,
      h("dl", { class: "params" }, flat(best.params).map(([name, given]) =>
        h("div", null, h("dt", null, name), h("dd", { title: String(given) }, value(given))))),
      h("div", { class: "actions" }, button,
        kept === null ? null : h("button", {
          type: "button", class: "quiet", title: "The checkpoint kept nearest to the best value", onclick: (event) => download(job, event.target),
        }, `Download checkpoint (iteration ${kept})`),
        h("button", { type: "button", class: "link", onclick: () => open(best.trial) },
          `${best.trial}${best.iteration === null ? "" : `, iteration ${best.iteration}`}`)),
    ];
  }

  const waiting = (progress) =>
    h("p", { class: "muted" }, progress.ended_at === null ? "Shown as soon as a trial has reported." : "No trial has reported a finite value.");

  return { element, update };
}

// Whether there is one is known when the answer begins; only then does the browser take it as a file.
async function download(job, button) {
  const url = `/api/v1/jobs/${job}/download`;
  const stop = new AbortController();
  const response = await fetch(url, { signal: stop.signal }).catch(() => null);
  stop.abort();
  if (response?.ok) location.assign(url);
  else replace(button, response?.status === 404 ? "No checkpoint was kept" : "The service cannot be reached");
}
