// What the build and the driver have written.

import { get } from "../api.js";
import { h, setText } from "../dom.js";

export function logsCard(job) {
  const logs = ["build", "driver"].map((of) => {
    const text = h("pre", { class: "log", tabindex: 0, "aria-label": `Log of the ${of}` });
    return { of, text, box: h("details", null, h("summary", null, `Log of the ${of}`), text) };
  });
  const element = h("section", { class: "card" }, h("h2", null, "Logs"), logs.map((each) => each.box));

  async function load() {
    await Promise.all(logs.map(async ({ of, text, box }) => {
      const log = await get(`/jobs/${job}/logs?of=${of}`);
      const atEnd = text.scrollTop + text.clientHeight >= text.scrollHeight - 8;
      setText(text, log.text ? (log.cut ? "… there is more before this …\n" : "") + log.text : "Nothing yet.");
      if (atEnd) text.scrollTop = text.scrollHeight;
      if (!log.text) box.open = false;
    }));
  }

  for (const { box } of logs) box.addEventListener("toggle", () => { if (box.open) load().catch(() => {}); });
  return {
    element,
    load,
    open() { for (const { box } of logs) box.open = true; },
  };
}
