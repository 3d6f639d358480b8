// What went wrong on the way, in one line that can be opened.

import { h, keyed, setText } from "../dom.js";
import { brief } from "../format.js";
import { folded } from "../parts.js";

export function notesCard() {
  const line = h("summary");
  const list = h("ul", { class: "notes" });
  const box = h("details", null, line, list);
  const element = h("section", { class: "banner warning", "aria-label": "Warnings" }, box);

  function update({ notes, trials, error }) {
    const warnings = notes.filter((note) => note.level !== "info").reverse();
    element.hidden = !warnings.length && !trials.failed;
    if (element.hidden) return;
    const all = Object.values(trials).reduce((sum, count) => sum + count, 0);
    setText(line, trials.failed
      ? `${trials.failed} of ${all} trials failed: ${brief(error ?? "")}`
      : `${warnings.length === 1 ? "A warning" : `${warnings.length} warnings`}: ${brief(warnings[0].text)}`);
    keyed(list, warnings.map((note, index) => ({ key: String(index), text: note.text })), (note) => note.key, (note) => h("li", null, folded(note.text)));
  }

  return { element, update };
}
