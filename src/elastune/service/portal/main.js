// Which page is shown, for whom. The address after # says which: #/jobs/NAME.

import { call, get } from "./api.js";
import { h, replace } from "./dom.js";
import { experimentPage } from "./pages/experiment.js";
import { jobPage } from "./pages/job.js";
import { jobsPage } from "./pages/jobs.js";
import { loginPage } from "./pages/login.js";
import { tenantsPage } from "./pages/tenants.js";
import { problem } from "./parts.js";

const ID = "([A-Za-z0-9_.-]+)";
const PAGES = [
  [/^#?\/?$/, jobsPage, "Jobs"],
  [new RegExp(`^#/jobs/${ID}(?:/trials/${ID})?$`), jobPage],
  [new RegExp(`^#/experiments/${ID}$`), experimentPage],
  [/^#\/tenants$/, tenantsPage, "Tenants"],
];
const main = document.getElementById("main");
const nav = document.getElementById("nav");
let me = null;
let shown = null; // a page: { element, close }

function show(page, title) {
  shown?.close?.();
  shown = page;
  document.title = title ? `${title} · Elastune` : "Elastune";
  replace(main, page.element);
  window.scrollTo(0, 0);
}

function route() {
  if (takeToken()) return;
  if (!me) return;
  mark();
  for (const [pattern, page, title] of PAGES) {
    const found = pattern.exec(location.hash);
    if (found) {
      const [, id, inside] = found;
      const stays = shown?.page === page && shown.id === id && shown.me === me;
      if (!stays) show({ ...page(me, id), page, id, me }, title ?? id);
      shown.at?.(inside);
      return;
    }
  }
  const back = h("p", null, h("a", { href: "#/" }, "All jobs"));
  show({ element: h("div", { class: "page" }, problem(new Error("There is no such page.")), back) }, "Not found");
}

// #token=... logs in. It leaves the address at once: it must not stay in a history or be copied with a link.
function takeToken() {
  const given = /^#token=(.+)$/.exec(location.hash);
  if (!given) return false;
  history.replaceState(null, "", "#/");
  logIn(given[1]).catch((error) => askForToken(error.message));
  return true;
}

async function logIn(token) {
  await call("POST", "/session", { token });
  await enter();
}

async function enter() {
  me = await get("/me");
  const links = [["#/", "Jobs"], ...(me.role === "admin" ? [["#/tenants", "Tenants"]] : [])];
  replace(nav,
    links.map(([href, text]) => h("a", { href }, text)),
    h("span", { class: "who" }, me.tenant.id, h("small", null, me.role)),
    h("button", { type: "button", class: "quiet", onclick: logOut }, "Log out"));
  nav.hidden = false;
  route();
}

function mark() {
  for (const link of nav.querySelectorAll("a")) {
    const here = link.getAttribute("href") === (location.hash || "#/");
    if (here) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
}

async function logOut() {
  await call("DELETE", "/session").catch(() => {});
  askForToken();
}

function askForToken(message = "") {
  me = null;
  nav.hidden = true;
  show(loginPage(logIn, message), "Log in");
}

async function begin() {
  if (takeToken()) return;
  try {
    await enter();
  } catch (error) {
    askForToken(error.status === 401 ? "" : error.message);
  }
}

window.addEventListener("hashchange", route);
window.addEventListener("logged-out", () => { if (me) askForToken("This token is not valid any more."); });
document.getElementById("skip").addEventListener("click", () => main.focus());
begin();
