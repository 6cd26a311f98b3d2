// Puts the page together: one turn at a time, over a WebSocket or a call.

import { BrowserCall } from "./call.js";
import { CallClock } from "./call-clock.js";
import { chosenMode as mode, watchControls } from "./controls.js";
import { makeDecoder } from "./decode.js";
import { Player, RATE } from "./player.js";
import { Scope } from "./scope.js";
import { SpeechSocket } from "./speech-socket.js";
import { Transcript } from "./transcript.js";
import { watchEnrolment } from "./enrol.js";
import { showFigures } from "./figures.js";
import { Voices } from "./voices.js";
import { watchDrops } from "./watermark.js";
import { Paste, Typing, Writer } from "./writer.js";

const PAUSE_MS = 1500; // of typing, after which what was written so far is spoken to its end

const FRAME_MS = 30; // between two pictures
const AFTERGLOW_MS = 4000;

const at = (id) => document.getElementById(id);
const transcript = new Transcript(at("words"));
const scope = new Scope(at("waveform"), at("spectrogram"));
let player = null;
let connection = null; // SpeechSocket or BrowserCall
let turn = null;
const typing = new Typing();
const key = () => at("key").value;
const voices = new Voices(at("voice"), key);

// Read by tests and by whoever opens the console.
const state = (window.antiphon = {
  speaking: false, firstPacketMs: null, firstSoundMs: null, gaps: 0, played: 0, depth: 0,
  done: null, interruptedMs: null, silentMs: null, started: null, turns: 0, problem: "", call: null,
  stats: () => connection.stats(), sound: () => player.analyser,
});

async function connect() {
  const transport = at("transport").value;
  const microphone = transport === "call" && at("barge").checked;
  const wanted = `${transport} ${microphone}`;
  if (connection?.open && connection.wanted === wanted) return connection;
  connection?.close();
  connection = transport === "call"
    ? await BrowserCall.open(key(), { voice: voices.chosen.name, microphone })
    : await SpeechSocket.open(key());
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
  if (turn?.typed) {
    endTyping();
    return;
  }
  if (mode() === "type") {
    if (typing.sent === text) typing.skip("");
    await start(text);
    if (turn?.typed) endTyping();
  } else {
    await start(text);
  }
}

async function start(text) {
  if (turn) interrupt();
  problem("");
  turn = { connecting: true, call: at("transport").value === "call", ended: false };
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
  if (turn !== mine) return; // interrupted before it began
  mine.connecting = false;
  begin(mine, text);
}

async function openPlayer() {
  const opened = await Player.open();
  opened.addEventListener("started", () => sounded());
  opened.addEventListener("finished", () => turn && !turn.call && finish(false));
  draw(performance.now());
  return opened;
}

function configure() {
  const hop = Number(at("hop").value) || null;
  const { name, model } = voices.chosen;
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
  if (mine.call) mine.clock = new CallClock(player.context);
  else {
    mine.decoder = makeDecoder(at("format").value, RATE, (samples) => {
      if (turn === mine) player.push(samples);
    }, problem);
  }
  mine.startedAt = performance.now();
  at("interrupt").disabled = false;
  const end = () => connection.send("input.done");
  if (mode() === "type") {
    mine.typed = true;
    label("Finish");
    say(typing.take(at("text").value));
  } else if (mode() === "paste") mine.writer = new Paste(text, say, end);
  else mine.writer = new Writer(text, Number(at("pace").value), say, end);
}

function say(piece) {
  if (!piece) return;
  transcript.add(piece);
  connection.send("input.text", { text: piece });
}

// Each word is sent when the next one begins; a pause lets what was sent be spoken to its end.
function typed() {
  // While a finished turn is still heard, new words wait for its end.
  if (mode() !== "type" || turn?.connecting || (turn && !turn.typed)) return;
  if (!turn) {
    if (typing.peek(at("text").value).trim()) start();
    return;
  }
  say(typing.take(at("text").value));
  clearTimeout(turn.pause);
  turn.pause = setTimeout(() => turn?.typed && connection.send("input.flush"), PAUSE_MS);
}

function endTyping() {
  clearTimeout(turn.pause);
  turn.typed = false;
  label("Speak");
  say(typing.take(at("text").value, true));
  connection.send("input.done");
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
        connection.audio.muted = false;
        turn.clock?.begin();
        packet();
        sounded();
      }
      break;
    case "progress": // on a call, the end of what "progress.ahead" foretold
      if (turn && !turn.connecting && !turn.call) transcript.report(event);
      break;
    case "progress.ahead":
      if (turn && !turn.connecting) transcript.report(event);
      break;
    case "audio.played":
      turn?.clock?.sent(event.ms / 1000);
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
  if (!turn) return;
  if (turn.connecting) {
    turn = null;
    return;
  }
  const pressed = performance.now();
  turn.interrupted = true;
  turn.writer?.stop();
  typing.skip(at("text").value);
  // The sound stops here and now; the server learns of it on the way.
  const since = () => performance.now() - pressed + 1000 * player.outputLatency;
  state.interruptedMs = state.silentMs = null;
  if (turn.call) {
    connection.audio.muted = true;
    state.interruptedMs = since();
    // What still comes from the server is not heard, but its end is timed.
    player.whenSilent(() => (state.silentMs = since()));
  } else {
    player.clear();
    player.addEventListener("cleared", () => (state.interruptedMs = since()), { once: true });
  }
  if (!turn.ended && connection?.open) connection.send("input.cancel");
  finish(true);
}

function finish(interrupted) {
  state.speaking = false;
  state.turns += 1;
  turn?.decoder?.close();
  clearTimeout(turn?.pause);
  label("Speak");
  if (!interrupted) transcript.show(Infinity);
  transcript.finish(interrupted);
  turn = null;
  at("interrupt").disabled = true;
  showFigures(state);
  typed();
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
let lastDrawn = 0;
let lastSound = 0;

function draw(now) {
  requestAnimationFrame(draw);
  if (!player || now - lastDrawn < FRAME_MS) return;
  lastDrawn = now;
  if (turn) lastSound = now;
  // Nothing moves for long after the end of a turn, and drawing takes time from playing.
  if (now - lastSound < AFTERGLOW_MS) scope.draw(player.analyser);
  if (!turn?.startedAt) return;
  if (turn.call) pollCall();
  else {
    const { depth, gaps } = player.state;
    const { played } = player;
    Object.assign(state, { depth, played, gaps });
    // What the worklet has handed over is heard a little later.
    transcript.show(Math.max(0, played - player.outputLatency));
  }
  showFigures(state);
}

async function pollCall() {
  state.played = turn.clock.heard(state.depth + player.outputLatency);
  transcript.show(state.played);
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

function status(text) {
  at("status").textContent = text;
}

function problem(text) {
  state.problem = text;
  at("problem").textContent = text;
}

function label(text) {
  at("speak-label").textContent = text;
}

// Controls

function tryLoadVoices() {
  return voices.load().then(() => status("Ready")).catch((error) => status(error.message));
}

watchControls({
  speak, interrupt, typed, keyChanged: tryLoadVoices,
  modeChanged: () => typing.skip(at("text").value),
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
