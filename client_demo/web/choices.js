// What is chosen and written on the page.

import { RATE } from "./player.js";

const at = (id) => document.getElementById(id);

export const choices = {
  get text() { return at("text").value; },
  get key() { return at("key").value; },
  get mode() { return at("mode").querySelector(":checked").value; },
  get pace() { return Number(at("pace").value); },
  get onCall() { return at("transport").value === "call"; },
  get bargeIn() { return at("barge").checked; },
  get format() { return at("format").value; },

  // How the next turn is to be spoken, in the server's words.
  session({ name, model }) {
    const fields = {
      voice: name, model, response_format: this.format, sample_rate: RATE,
    };
    const hop = Number(at("hop").value) || null;
    if (hop) fields.first_hop = hop;
    return fields;
  },
};
