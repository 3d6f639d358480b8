// Asks for a token.

import { h, setText } from "../dom.js";

export function loginPage(logIn, message) {
  const wrong = h("p", { class: "wrong", id: "wrong", role: "alert" }, message);
  const field = h("input", {
    id: "token", type: "password", required: true, autocomplete: "current-password", spellcheck: "false",
    placeholder: "elt_…", "aria-describedby": "wrong hint",
  });
  const button = h("button", { type: "submit" }, "Log in");

  async function submit(event) {
    event.preventDefault();
    button.disabled = true;
    setText(wrong, "");
    try {
      await logIn(field.value.trim());
    } catch (error) {
      setText(wrong, error.message);
      button.disabled = false;
      field.select();
    }
  }

  const form = h("form", { class: "card login", onsubmit: submit },
    h("h1", null, "Log in to Elastune"),
    h("label", { for: "token" }, "Token"),
    field,
    wrong,
    button,
    h("p", { class: "muted", id: "hint" }, "An administrator gives you one. ", h("code", null, "elastune serve"), " prints the first, with a link that logs in."));
  return { element: form };
}
