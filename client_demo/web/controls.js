// Buttons, keys and choices, and what they set off.

import { choices } from "./choices.js";
import { watchTheme } from "./theme.js";

const at = (id) => document.getElementById(id);

export function watchControls({ speak, interrupt, typed, keyChanged, modeChanged }) {
  at("speak").addEventListener("click", speak);
  at("interrupt").addEventListener("click", interrupt);
  at("text").addEventListener("input", typed);
  at("key").addEventListener("change", keyChanged);
  at("access").addEventListener("submit", (event) => event.preventDefault());
  at("pace").addEventListener("input", () => {
    at("pace-out").textContent = `${at("pace").value} words/s`;
  });
  at("mode").addEventListener("change", () => {
    at("pace-row").hidden = choices.mode !== "llm";
    modeChanged();
  });
  at("transport").addEventListener("change", () => {
    at("format").disabled = choices.onCall;
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") interrupt();
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) speak();
  });
  watchTheme(at("theme"));
}
