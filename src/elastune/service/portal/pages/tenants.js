// For administrators: every tenant, its quota, and what is used of it.

import { get } from "../api.js";
import { h, replace } from "../dom.js";
import { bytes, money, number } from "../format.js";
import { bar, cells, problem, table } from "../parts.js";

export function tenantsPage() {
  const list = table("Tenants", ["Tenant", ">Share", "Running jobs", "Devices", "Spent this month", "Stored"], "stack");
  const element = h("div", { class: "page" }, h("div", { class: "head" }, h("h1", null, "Tenants")), list.element,
    h("p", { class: "muted" }, "To change a quota: ", h("code", null, "elastune tenant quota"), "."));

  get("/usage").then(
    (tenants) => list.rows(tenants.map(row)),
    (error) => replace(element, problem(error)));
  return { element };
}

function row({ tenant, usage }) {
  return h("tr", null, cells(
    { label: "Tenant", value: tenant.id, head: true },
    { label: "Share", value: number(tenant.share), num: true },
    { label: "Running jobs", value: used("Running jobs", usage.running, tenant.max_running, String) },
    { label: "Devices", value: used("Devices", usage.devices, tenant.max_devices, String) },
    { label: "Spent this month", value: used("Spent this month", usage.usd_this_month, tenant.max_usd_per_month, money) },
    { label: "Stored", value: used("Stored", usage.stored_bytes, tenant.max_storage_bytes, bytes) },
  ));
}

function used(label, value, limit, format) {
  if (limit === null) return h("span", null, format(value), h("span", { class: "sub" }, "no limit"));
  const meter = bar(label);
  meter.update(limit ? value / limit : 1, value >= limit ? "over" : "");
  return h("span", { class: "quota" }, `${format(value)} of ${format(limit)}`, meter.element);
}
