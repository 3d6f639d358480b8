// Elements from plain values. Text only ever becomes a text node: nothing that a user wrote is read as HTML.

const SVG = "http://www.w3.org/2000/svg";

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

export const h = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
export const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

// Changes nothing if it is so already: what a reader has selected stays selected.
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

export function replace(element, ...children) {
  element.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined));
}

// A row for each item. A row whose item has not changed stays as it is, and so does the focus.
export function keyed(body, items, key, make) {
  const before = new Map([...body.children].map((row) => [row.dataset.key, row]));
  const focused = document.activeElement?.closest("[data-key]")?.dataset.key;
  const rows = items.map((item) => {
    const [name, text] = [key(item), JSON.stringify(item)];
    const old = before.get(name);
    if (old?.shows === text) return old;
    const row = make(item);
    row.dataset.key = name;
    row.shows = text;
    return row;
  });
  const same = rows.length === body.children.length && rows.every((row, index) => row === body.children[index]);
  if (same) return;
  const inside = body.contains(document.activeElement);
  body.replaceChildren(...rows);
  if (inside) rows.find((row) => row.dataset.key === focused)?.querySelector("a, button")?.focus({ preventScroll: true });
}

// For those who hear the page.
export function say(text) {
  setText(document.getElementById("said"), text);
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Without https a browser may keep its clipboard to itself.
    const area = h("textarea", { readonly: true, class: "visually-hidden" });
    area.value = text;
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
  say("Copied");
}

export function ask(title, text, yes, no) {
  return new Promise((answer) => {
    const done = (value) => { window.removeEventListener("hashchange", leave); dialog.close(); dialog.remove(); answer(value); };
    const leave = () => done(false); // it asks about a page that is not there any more
    const dialog = h("dialog", { class: "ask", "aria-labelledby": "ask-title" },
      h("h2", { id: "ask-title" }, title),
      h("p", null, text),
      h("div", { class: "actions" },
        h("button", { type: "button", class: "quiet", onclick: () => done(false) }, no),
        h("button", { type: "button", class: "danger", onclick: () => done(true) }, yes)));
    dialog.addEventListener("cancel", (event) => { event.preventDefault(); done(false); });
    window.addEventListener("hashchange", leave);
    document.body.append(dialog);
    dialog.showModal();
  });
}
