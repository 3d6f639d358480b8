// Talks to the service. The token is in a cookie that this code cannot read.

const BASE = "/api/v1";
let behind_s = 0; // so much the clock of this computer is behind that of the service

export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const now = () => Date.now() / 1000 + behind_s;

export async function call(method, path, body) {
  const headers = { "X-Elastune": "1" };
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let response;
  try {
    response = await fetch(BASE + path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  } catch {
    throw new Refused(0, "The service cannot be reached.");
  }
  const date = Date.parse(response.headers.get("Date") ?? "");
  if (!Number.isNaN(date) && Math.abs(date - Date.now()) > 2000) behind_s = (date - Date.now()) / 1000;
  if (response.status === 204) return undefined;
  const answer = await response.json().catch(() => ({}));
  if (!response.ok) {
    const refused = new Refused(response.status, answer.error ?? `The service has answered ${response.status}.`);
    if (response.status === 401) window.dispatchEvent(new CustomEvent("logged-out"));
    throw refused;
  }
  return answer;
}

export const get = (path) => call("GET", path);

// Events of the service until `close`. `live` is told whether it is connected.
export function watch(path, handlers, live = () => {}) {
  let source = null;
  let closed = false;
  let timer = 0;
  const close = () => { closed = true; clearTimeout(timer); source?.close(); };
  const open = () => {
    source = new EventSource(BASE + path);
    source.onopen = () => live(true);
    source.onerror = () => {
      if (closed) return;
      live(false);
      if (source.readyState === EventSource.CLOSED) { // it was refused: is it the token, or does the service start?
        get("/me").catch(() => {});
        timer = setTimeout(open, 3000);
      }
    };
    for (const [name, handle] of Object.entries(handlers)) {
      source.addEventListener(name, (event) => handle(JSON.parse(event.data)));
    }
    source.addEventListener("end", () => { close(); live(null); });
  };
  open();
  return close;
}
