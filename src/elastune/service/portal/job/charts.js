// Learning curves; the best value, machines and spend over time.

import { get } from "../api.js";
import { chart } from "../chart.js";
import { h, setText } from "../dom.js";
import { duration, money } from "../format.js";
import { card } from "../parts.js";

export function curvesCard(job) {
  const note = h("p", { class: "muted" });
  const picture = chart({ label: "Learning curves", xTitle: "iteration", xKind: "count", height: 300 });
  const element = card("Learning curves", picture.element, note);

  async function load() {
    const found = await get(`/jobs/${job}/curves`);
    const [best, ...others] = found.curves;
    const series = found.curves.map((curve) => ({
      name: curve.trial,
      kind: curve === best ? "best" : curve.status === "running" ? "running" : "other",
      points: curve.points.filter(([, y]) => y !== null),
    }));
    const kinds = new Set(series.map((each) => each.kind));
    const names = [["best", "best trial"], ["running", "still running"], ["other", "other good ones"]].filter(([kind]) => kinds.has(kind));
    picture.update(series, names);
    setText(note, `${found.metric ?? ""}${found.left_out ? ` of the best trials; ${found.left_out} others are not drawn` : others.length ? " of every trial" : ""}`);
  }

  return { element, load };
}

export function machinesCard() {
  const picture = chart({ label: "Machines over time", xTitle: "time", xKind: "time", xFormat: duration, yKind: "count", zero: true });
  return {
    element: card("Machines over time", picture.element),
    update({ machines, plan }) {
      const planned = plannedMachines(plan);
      const series = [{ name: "machines", kind: "best", points: machines, step: true, area: true }];
      if (planned.length) series.push({ name: "planned", kind: "planned", points: planned, step: true, over: true });
      picture.update(series, planned.length ? [["best", "machines"], ["planned", "as planned first"]] : []);
    },
  };
}

// Of several brackets that run at the same time there is no one line.
function plannedMachines(plan) {
  const stages = plan?.stages ?? [];
  if (stages.some((stage) => stage.bracket !== stages[0].bracket)) return [];
  return stages
    .map((stage) => [stage.begin_s ?? stage.actual_begin_s, stage.end_s ?? stage.actual_end_s, stage.machines])
    .filter(([begin, end]) => begin !== null && end !== null)
    .flatMap(([begin, end, count]) => [[begin, count], [end, count]]);
}

export function spendCard() {
  const picture = chart({ label: "Spend over time", xTitle: "time", xKind: "time", xFormat: duration, yFormat: money, zero: true });
  return {
    element: card("Spend over time", picture.element),
    update({ spend, priced, machines }) {
      const none = machines.some(([, count]) => count) ? "No price was given" : undefined;
      picture.update([{ name: "spent", kind: "best", points: priced ? spend : [], area: true }], [], none);
    },
  };
}

export function bestsCard() {
  const picture = chart({ label: "Best value over time", xTitle: "time", xKind: "time", xFormat: duration });
  return {
    element: card("Best value over time", picture.element),
    update({ bests, metric, seconds }) {
      const last = bests.length ? [[seconds, bests[bests.length - 1][1]]] : [];
      picture.update([{ name: `best ${metric ?? "value"}`, kind: "best", points: [...bests, ...last], step: true }]);
    },
  };
}
