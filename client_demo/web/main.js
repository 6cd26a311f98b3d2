// Puts the page together.

import { choices } from "./choices.js";
import { watchControls } from "./controls.js";
import { watchEnrolment } from "./enrol.js";
import { showFigures } from "./figures.js";
import { Monitor } from "./monitor.js";
import { Scope } from "./scope.js";
import { Transcript } from "./transcript.js";
import { Turns } from "./turns.js";
import { Voices } from "./voices.js";
import { watchDrops } from "./watermark.js";

const at = (id) => document.getElementById(id);
const key = () => choices.key;
const voices = new Voices(at("voice"), key);
const transcript = new Transcript(at("words"));

// Read by tests and by whoever opens the console.
const state = (window.antiphon = {
  speaking: false, firstPacketMs: null, firstSoundMs: null, gaps: 0, played: 0, depth: 0,
  done: null, interruptedMs: null, silentMs: null, started: null, turns: 0, problem: "", call: null,
  stats: () => turns.connection.stats(), sound: () => turns.player.analyser,
});

const show = {
  status: (text) => (at("status").textContent = text),
  problem: (text) => (at("problem").textContent = state.problem = text),
  label: (text) => (at("speak-label").textContent = text),
  interruptible: (yes) => (at("interrupt").disabled = !yes),
  playing: (player) => monitor.start(player),
  turnEnded: () => showFigures(state),
};
const turns = new Turns({ state, show, transcript, voices });
const scope = new Scope(at("waveform"), at("spectrogram"));
const monitor = new Monitor({ turns, state, scope, transcript });

function tryLoadVoices() {
  return voices.load().then(() => show.status("Ready")).catch(({ message }) => show.status(message));
}

watchControls({
  speak: () => turns.speak(),
  interrupt: () => turns.interrupt(),
  typed: () => turns.typed(),
  keyChanged: tryLoadVoices,
  modeChanged: () => turns.modeChanged(),
});
watchDrops({
  drop: at("drop"), input: at("file"), verdict: at("verdict"), spans: at("spans"),
  key,
});
watchEnrolment({
  form: at("enrol"), record: at("record"), status: at("enrolled"), report: at("report"),
  key,
  async added({ name, model }) {
    await tryLoadVoices();
    at("voice").value = `${model}/${name}`;
  },
});
tryLoadVoices();
