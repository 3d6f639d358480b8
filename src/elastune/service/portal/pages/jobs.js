// The jobs of the tenant, live.

import { get, watch } from "../api.js";
import { h, keyed, replace, setText } from "../dom.js";
import { brief, bytes, duration, money } from "../format.js";
import { age, bestText, cells, liveMark, miniBar, pill, showAges, table } from "../parts.js";
import { refresher } from "../refresh.js";

const FILTERS = {
  all: () => true,
  open: (job) => job.ended_at === null,
  succeeded: (job) => job.state === "succeeded",
  failed: (job) => job.state === "failed",
  cancelled: (job) => job.state === "cancelled",
};
let filter = "all"; // stays while other pages are looked at

export function jobsPage() {
  const live = liveMark();
  const buttons = Object.keys(FILTERS).map((name) => h("button", { type: "button", class: "chip", onclick: () => choose(name) }));
  const list = table("Jobs, the newest first", ["Job", "State", ">Best", "Progress", ">Trials", ">Cost", ">Time", ">Age"], "stack jobs");
  const none = h("div", { class: "empty", hidden: true });
  const more = h("button", { type: "button", class: "quiet", hidden: true, onclick: loadOlder }, "Show older jobs");
  const used = h("dl", { class: "used" });
  const jobs = new Map(); // by number
  let next = null;
  let older = false;

  function draw() {
    const all = [...jobs.values()].sort((a, b) => b.number - a.number);
    Object.keys(FILTERS).forEach((name, index) => {
      replace(buttons[index], name, h("span", { class: "count" }, String(all.filter(FILTERS[name]).length)));
      buttons[index].setAttribute("aria-pressed", String(name === filter));
    });
    const chosen = all.filter(FILTERS[filter]);
    keyed(list.body, chosen, (job) => job.id, row);
    list.element.hidden = !chosen.length;
    none.hidden = chosen.length > 0;
    replace(none, ...(all.length ? [`No job is ${filter}.`] : [h("strong", null, "No jobs yet."), " Submit one: ", h("code", null, "elastune submit exp.yaml")]));
    more.hidden = next === null;
    showAges(list.body);
  }

  function choose(name) {
    filter = name;
    draw();
  }

  function take(page) {
    for (const job of page.jobs) jobs.set(job.number, job);
    if (!older) {
      // What has been deleted goes.
      const there = new Set(page.jobs.map((job) => job.number));
      for (const number of jobs.keys()) if (!there.has(number)) jobs.delete(number);
      next = page.next;
    }
    draw();
    usage.ask();
  }

  async function loadOlder() {
    const page = await get(`/overview?limit=100&before=${next}`);
    older = true;
    for (const job of page.jobs) jobs.set(job.number, job);
    next = page.next;
    draw();
  }

  const usage = refresher(async () => showUsage(used, (await get("/me"))), 10_000);
  const close = watch("/jobs/events", { jobs: take }, live.update);
  const clock = setInterval(() => showAges(list.body), 5000);
  draw();
  setText(none, "Loading…");
  return {
    element: h("div", { class: "page" },
      h("div", { class: "head" }, h("h1", null, "Jobs"), live.element),
      used,
      h("div", { class: "chips", role: "group", "aria-label": "Show" }, buttons),
      list.element, none, more),
    close() { close(); clearInterval(clock); usage.close(); },
  };
}

function row(job) {
  const name = h("a", { href: `#/jobs/${job.id}` }, job.name);
  const experiment = job.experiment && h("a", { class: "sub", href: `#/experiments/${job.experiment}` }, `experiment ${job.experiment}`);
  const reason = ["queued", "failed"].includes(job.state) && job.reason ? h("span", { class: "sub reason" }, brief(job.reason)) : null;
  return h("tr", { "data-state": job.state }, cells(
    { label: "Job", value: [name, h("span", { class: "sub id" }, job.id), experiment, reason].filter(Boolean), head: true },
    { label: "State", value: pill(job.state) },
    { label: "Best", value: best(job.now), num: true },
    { label: "Progress", value: miniBar(job.now.fraction) },
    { label: "Trials", value: job.now.trials || "–", num: true },
    { label: "Cost", value: job.now.trials ? money(job.now.cost_usd) : "–", num: true },
    { label: "Time", value: job.now.seconds ? duration(job.now.seconds) : "–", num: true },
    { label: "Age", value: age(job.created_at), num: true },
  ));
}

const best = (now) => (now.metric && now.best_value !== null ? [h("strong", null, bestText(now)), h("span", { class: "sub" }, now.metric)] : "–");

function showUsage(element, { tenant, usage }) {
  const of = (value, limit, format) => (limit === null ? format(value) : `${format(value)} of ${format(limit)}`);
  const parts = [
    ["Running", of(usage.running, tenant.max_running, String)],
    ["Devices", of(usage.devices, tenant.max_devices, String)],
    ["Spent this month", of(usage.usd_this_month, tenant.max_usd_per_month, money)],
    ["Stored", of(usage.stored_bytes, tenant.max_storage_bytes, bytes)],
  ];
  replace(element, parts.map(([name, text]) => h("div", null, h("dt", null, name), h("dd", null, text))));
}
