// The same job with several seeds: mean and standard deviation, and a row for each.

import { get } from "../api.js";
import { h, keyed, replace } from "../dom.js";
import { duration, money, number } from "../format.js";
import { bestText, cells, miniBar, pill, problem, table } from "../parts.js";

export function experimentPage(me, id) {
  const head = h("div", { class: "group" });
  const list = table("A job for each seed", ["Job", ">Seed", "State", ">Best", "Progress", ">Trials", ">Cost", ">Time"], "stack");
  const element = h("div", { class: "page" }, head, list.element);
  let timer = 0;
  let closed = false;

  async function load() {
    try {
      const found = await get(`/experiments/${id}`);
      draw(found);
      if (closed || found.jobs.every((job) => job.ended_at !== null)) return;
    } catch (error) {
      if (error.status === 404) return replace(element, problem(error));
    }
    timer = setTimeout(load, 3000);
  }

  function draw(found) {
    const metric = found.metric ?? "value";
    const spread = found.std === null ? "" : ` ± ${number(Number(found.std.toPrecision(3)))}`;
    const open = found.jobs.filter((job) => job.ended_at === null).length;
    replace(head,
      h("nav", { class: "crumbs", "aria-label": "Where" }, h("a", { href: "#/" }, "Jobs"), h("span", null, found.id)),
      h("div", { class: "head" }, h("h1", null, found.name), h("span", { class: "muted" }, `experiment with ${found.jobs.length} seeds`)),
      h("section", { class: "card hero" },
        h("h2", null, `${metric}, mean ± standard deviation`),
        h("p", { class: "big" }, found.mean === null ? "–" : `${number(found.mean)}${spread}`),
        h("p", { class: "muted" }, `Of the ${found.count} of ${found.jobs.length} that have succeeded`, open ? `; ${open} are not over yet. ` : ". ",
          found.best === null ? "" : `The best is ${number(found.best)}.`)));
    keyed(list.body, found.jobs, (job) => job.id, (job) => h("tr", { class: job.now.best_value === found.best && found.best !== null ? "leader" : null }, cells(
      { label: "Job", value: h("a", { href: `#/jobs/${job.id}` }, job.id), head: true },
      { label: "Seed", value: job.seed ?? "–", num: true },
      { label: "State", value: pill(job.state) },
      { label: "Best", value: h("strong", null, bestText(job.now)), num: true },
      { label: "Progress", value: miniBar(job.now.fraction) },
      { label: "Trials", value: job.now.trials || "–", num: true },
      { label: "Cost", value: money(job.now.cost_usd), num: true },
      { label: "Time", value: duration(job.now.seconds), num: true },
    )));
  }

  load();
  return { element, close() { closed = true; clearTimeout(timer); } };
}
