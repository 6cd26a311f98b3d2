// Puts the page together: one turn at a time, over a WebSocket or a call.

import { BrowserCall } from "./call.js";
import { makeDecoder } from "./decode.js";
import { Player, RATE } from "./player.js";
import { Scope } from "./scope.js";
import { SpeechSocket } from "./speech-socket.js";
import { Transcript } from "./transcript.js";
import { watchEnrolment } from "./enrol.js";
import { watchDrops } from "./watermark.js";
import { Writer } from "./writer.js";

const at = (id) => document.getElementById(id);
const transcript = new Transcript(at("words"));
const scope = new Scope(at("waveform"), at("spectrogram"));
let player = null;
let connection = null; // SpeechSocket or BrowserCall
let turn = null;

// Read by tests and by whoever opens the console.
const state = (window.antiphon = {
  speaking: false, firstPacketMs: null, firstSoundMs: null, gaps: 0, played: 0, depth: 0,
  done: null, interruptedMs: null, started: null, turns: 0, problem: "", call: null,
  stats: () => connection.stats(),
});

async function connect() {
  const transport = at("transport").value;
  const microphone = transport === "call" && at("barge").checked;
  const wanted = `${transport} ${microphone}`;
  if (connection?.open && connection.wanted === wanted) return connection;
  connection?.close();
  const key = at("key").value;
  connection = transport === "call"
    ? await BrowserCall.open(key, { voice: voice().name, microphone })
    : await SpeechSocket.open(key);
  connection.wanted = wanted;
  connection.addEventListener("message", ({ detail }) => receive(detail));
  connection.addEventListener("audio", ({ detail }) => hear(detail));
  connection.addEventListener("lost", ({ detail }) => lost(detail));
  if (connection.audio?.srcObject) connection.unwatch = player.watch(connection.audio.srcObject);
  return connection;
}

async function speak() {
  const text = at("text").value;
  if (!text.trim() || turn?.connecting) return;
  if (turn) interrupt();
  problem("");
  turn = { connecting: true, call: at("transport").value === "call", heard: 0, ended: false };
  const mine = turn;
  try {
    player ??= await openPlayer();
    await connect();
    await configure();
  } catch (error) {
    if (turn === mine) turn = null;
    problem(error.message);
    return;
  }
  mine.connecting = false;
  begin(mine, text);
}

async function openPlayer() {
  const opened = await Player.open();
  opened.addEventListener("started", () => sounded());
  opened.addEventListener("finished", () => turn && !turn.call && finish(false));
  draw();
  return opened;
}

function configure() {
  const hop = Number(at("hop").value) || null;
  const { name, model } = voice();
  const fields = { voice: name, model, response_format: at("format").value, sample_rate: RATE };
  if (hop) fields.first_hop = hop;
  return new Promise((resolve, reject) => {
    turn.configured = { resolve, reject };
    connection.send("session.config", fields);
  });
}

function begin(mine, text) {
  Object.assign(state, {
    speaking: true, firstPacketMs: null, firstSoundMs: null, gaps: 0, played: 0, done: null,
    interruptedMs: null,
  });
  transcript.begin();
  player.begin();
  if (!mine.call) {
    mine.decoder = makeDecoder(at("format").value, RATE, (samples) => {
      if (turn === mine) player.push(samples);
    }, problem);
  }
  mine.startedAt = performance.now();
  at("interrupt").disabled = false;
  mine.writer = new Writer(
    text,
    Number(at("pace").value),
    (piece) => {
      transcript.add(piece);
      connection.send("input.text", { text: piece });
    },
    () => connection.send("input.done"),
  );
}

function receive(event) {
  switch (event.type) {
    case "session.started":
      state.started = event;
      status(`${event.model}, voice ${event.voice}, watermark ${event.watermark}`);
      turn?.configured?.resolve();
      break;
    case "audio.start":
      if (turn?.call) {
        packet();
        sounded();
      }
      break;
    case "progress":
      if (turn && !turn.connecting) transcript.report(event);
      break;
    case "audio.played":
      if (turn?.call) turn.heard = event.ms / 1000;
      break;
    case "caller.speech_started":
      if (at("barge").checked) interrupt();
      break;
    case "session.done":
      ended(event);
      break;
    case "error":
      problem(event.message);
      turn?.configured?.reject(new Error(event.message));
      break;
    case "call.ended":
      lost(event.reason);
  }
}

function hear(data) {
  if (!turn?.decoder) return;
  packet();
  turn.decoder.push(data);
}

function packet() {
  if (state.firstPacketMs !== null || !turn?.startedAt) return;
  state.firstPacketMs = performance.now() - turn.startedAt;
}

function sounded() {
  if (state.firstSoundMs !== null || !turn?.startedAt) return;
  const later = turn.call ? 0 : 1000 * player.outputLatency;
  state.firstSoundMs = performance.now() - turn.startedAt + later;
}

async function ended(event) {
  if (!turn?.startedAt || turn.interrupted) return; // the end of a turn that was interrupted
  state.done = event;
  turn.writer?.stop();
  const mine = turn;
  if (mine.call) {
    finish(event.cancelled);
    return;
  }
  await mine.decoder?.finish();
  if (turn !== mine) return;
  mine.ended = true;
  player.end();
  if (event.samples === 0) finish(false);
}

function interrupt() {
  if (!turn || turn.connecting) return;
  const pressed = performance.now();
  turn.interrupted = true;
  turn.writer?.stop();
  // The sound stops here and now; the server learns of it on the way.
  player.clear();
  player.addEventListener("cleared", () => {
    state.interruptedMs = performance.now() - pressed + 1000 * player.outputLatency;
  }, { once: true });
  if (!turn.ended && connection?.open) connection.send("input.cancel");
  finish(true);
}

function finish(interrupted) {
  state.speaking = false;
  state.turns += 1;
  turn?.decoder?.close();
  if (!interrupted) transcript.show(Infinity);
  transcript.finish(interrupted);
  turn = null;
  at("interrupt").disabled = true;
  figures();
}

function lost(reason) {
  status(`Disconnected: ${reason}`);
  if (turn) {
    problem(`The connection was lost: ${reason}.`);
    player?.clear();
    finish(true);
  }
}

// Figures and pictures

let lastStats = 0;

function draw() {
  requestAnimationFrame(draw);
  if (!player) return;
  scope.draw(player.analyser);
  if (!turn?.startedAt) return;
  if (turn.call) pollCall();
  else {
    const { depth, played, gaps } = player.state;
    Object.assign(state, { depth, played, gaps });
    // What the worklet has handed over is heard a little later.
    transcript.show(Math.max(0, played - player.outputLatency));
  }
  figures();
}

async function pollCall() {
  state.played = turn.heard;
  transcript.show(turn.heard + 0.2);
  if (performance.now() - lastStats < 250) return;
  lastStats = performance.now();
  const report = await connection.stats();
  if (!report) return;
  state.call = report;
  state.depth = report.jitterBufferEmittedCount
    ? report.jitterBufferDelay / report.jitterBufferEmittedCount
    : 0;
  state.gaps = report.concealmentEvents ?? 0;
}

function figures() {
  const ms = (value) => (value === null ? "–" : `${Math.round(value)} ms`);
  at("first-packet").textContent = ms(state.firstPacketMs);
  at("first-sound").textContent = ms(state.firstSoundMs);
  at("depth").textContent = ms(1000 * state.depth);
  at("gaps").textContent = String(state.gaps);
  at("heard").textContent = `${state.played.toFixed(1)} s`;
  const rtf = state.done?.rtf;
  at("rtf").textContent = rtf === undefined || rtf === null ? "–" : rtf.toFixed(3);
}

function status(text) {
  at("status").textContent = text;
}

function problem(text) {
  state.problem = text;
  at("problem").textContent = text;
}

// Controls

const voices = new Map();
const voice = () => voices.get(at("voice").value) ?? { name: null, model: null };

async function loadVoices() {
  const key = at("key").value;
  const headers = key ? { Authorization: `Bearer ${key}` } : {};
  const answer = await fetch("v1/voices", { headers });
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.error.message);
  voices.clear();
  at("voice").replaceChildren();
  const models = new Set(body.voices.map((each) => each.model));
  for (const each of body.voices) {
    const id = `${each.model}/${each.name}`;
    voices.set(id, each);
    const option = new Option(models.size > 1 ? `${each.name} (${each.model})` : each.name, id, each.default, each.default);
    option.title = each.description;
    at("voice").append(option);
  }
  status("Ready");
}

function tryLoadVoices() {
  return loadVoices().catch((error) => status(error.message));
}

at("speak").addEventListener("click", speak);
at("interrupt").addEventListener("click", interrupt);
at("key").addEventListener("change", tryLoadVoices);
at("access").addEventListener("submit", (event) => event.preventDefault());
at("pace").addEventListener("input", () => {
  at("pace-out").textContent = `${at("pace").value} words/s`;
});
at("transport").addEventListener("change", () => {
  at("format").disabled = at("transport").value === "call";
});
at("theme").addEventListener("click", () => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const root = document.documentElement;
  const now = root.dataset.theme ?? (dark ? "dark" : "light");
  root.dataset.theme = now === "dark" ? "light" : "dark";
  scope.resize();
});
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") interrupt();
  if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) speak();
});
watchDrops({
  drop: at("drop"), input: at("file"), verdict: at("verdict"), spans: at("spans"),
  key: () => at("key").value,
});
watchEnrolment({
  form: at("enrol"), record: at("record"), status: at("enrolled"), report: at("report"),
  key: () => at("key").value,
  async added({ name, model }) {
    await tryLoadVoices();
    at("voice").value = `${model}/${name}`;
  },
});
tryLoadVoices();
