// One turn at a time, over a WebSocket or a call: from its text to its end or interruption.

import { BrowserCall } from "./call.js";
import { CallClock } from "./call-clock.js";
import { choices } from "./choices.js";
import { makeDecoder } from "./decode.js";
import { Player, RATE } from "./player.js";
import { SpeechSocket } from "./speech-socket.js";
import { Paste, Typing, Writer } from "./writer.js";

const PAUSE_MS = 1500; // of typing, after which what was written so far is spoken to its end

// `state` is what the page says of the present or last turn. `show` takes what is to be seen:
// status(text), problem(text), label(text), interruptible(yes), playing(player) once, turnEnded().
export class Turns {
  constructor({ state, show, transcript, voices }) {
    Object.assign(this, { state, show, transcript, voices });
    this.player = null;
    this.connection = null; // SpeechSocket or BrowserCall
    this.turn = null;
    this.typing = new Typing();
  }

  // Speak what is written, or finish what is being typed.
  async speak() {
    const { text } = choices;
    if (!text.trim() || this.turn?.connecting) return;
    if (this.turn?.typed) {
      this.endTyping();
      return;
    }
    if (choices.mode === "type") {
      if (this.typing.sent === text) this.typing.skip("");
      await this.start(text);
      if (this.turn?.typed) this.endTyping();
    } else {
      await this.start(text);
    }
  }

  // Each word is sent when the next one begins; a pause lets what was sent be spoken to its end.
  typed() {
    const { turn } = this;
    // While a finished turn is still heard, new words wait for its end.
    if (choices.mode !== "type" || turn?.connecting || (turn && !turn.typed)) return;
    if (!turn) {
      if (this.typing.peek(choices.text).trim()) this.start();
      return;
    }
    this.say(this.typing.take(choices.text));
    clearTimeout(turn.pause);
    turn.pause = setTimeout(() => {
      if (this.turn?.typed) this.connection.send("input.flush");
    }, PAUSE_MS);
  }

  // What stands there already is not to be spoken as if it were typed now.
  modeChanged() {
    this.typing.skip(choices.text);
  }

  interrupt() {
    const { turn, state, player } = this;
    if (!turn) return;
    if (turn.connecting) {
      this.turn = null;
      return;
    }
    const pressed = performance.now();
    turn.interrupted = true;
    turn.writer?.stop();
    this.typing.skip(choices.text);
    // The sound stops here and now; the server learns of it on the way.
    const since = () => performance.now() - pressed + 1000 * player.outputLatency;
    state.interruptedMs = state.silentMs = null;
    if (turn.call) {
      this.connection.audio.muted = true;
      state.interruptedMs = since();
      // What still comes from the server is not heard, but its end is timed.
      player.whenSilent(() => (state.silentMs = since()));
    } else {
      player.clear();
      player.addEventListener("cleared", () => (state.interruptedMs = since()), { once: true });
    }
    if (!turn.ended && this.connection?.open) this.connection.send("input.cancel");
    this.finish(true);
  }

  // Beginning

  async start(text) {
    if (this.turn) this.interrupt();
    this.show.problem("");
    const mine = (this.turn = { connecting: true, call: choices.onCall, ended: false });
    try {
      this.player ??= await this.openPlayer();
      await this.connect();
      await this.configure();
    } catch (error) {
      if (this.turn === mine) this.turn = null;
      this.show.problem(error.message);
      return;
    }
    if (this.turn !== mine) return; // interrupted before it began
    mine.connecting = false;
    this.begin(mine, text);
  }

  async openPlayer() {
    const player = await Player.open();
    player.addEventListener("started", () => this.sounded());
    player.addEventListener("finished", () => this.turn && !this.turn.call && this.finish(false));
    this.show.playing(player);
    return player;
  }

  async connect() {
    const microphone = choices.onCall && choices.bargeIn;
    const wanted = `${choices.onCall} ${microphone}`;
    if (this.connection?.open && this.connection.wanted === wanted) return;
    this.connection?.close();
    const connection = choices.onCall
      ? await BrowserCall.open(choices.key, { voice: this.voices.chosen.name, microphone })
      : await SpeechSocket.open(choices.key);
    this.connection = connection;
    connection.wanted = wanted;
    connection.addEventListener("message", ({ detail }) => this.receive(detail));
    connection.addEventListener("audio", ({ detail }) => this.hear(detail));
    connection.addEventListener("lost", ({ detail }) => this.lost(detail));
    const stream = connection.audio?.srcObject;
    if (stream) connection.unwatch = this.player.watch(stream);
  }

  configure() {
    return new Promise((resolve, reject) => {
      this.turn.configured = { resolve, reject };
      this.connection.send("session.config", choices.session(this.voices.chosen));
    });
  }

  begin(mine, text) {
    const { player } = this;
    Object.assign(this.state, {
      speaking: true, firstPacketMs: null, firstSoundMs: null, gaps: 0, played: 0, done: null,
      interruptedMs: null,
    });
    this.transcript.begin();
    player.begin();
    if (mine.call) mine.clock = new CallClock(player.context);
    else {
      const play = (samples) => this.turn === mine && player.push(samples);
      mine.decoder = makeDecoder(choices.format, RATE, play, this.show.problem);
    }
    mine.startedAt = performance.now();
    this.show.interruptible(true);
    const say = (piece) => this.say(piece);
    const end = () => this.connection.send("input.done");
    if (choices.mode === "type") {
      mine.typed = true;
      this.show.label("Finish");
      this.say(this.typing.take(choices.text));
    } else if (choices.mode === "paste") mine.writer = new Paste(text, say, end);
    else mine.writer = new Writer(text, choices.pace, say, end);
  }

  say(piece) {
    if (!piece) return;
    this.transcript.add(piece);
    this.connection.send("input.text", { text: piece });
  }

  endTyping() {
    clearTimeout(this.turn.pause);
    this.turn.typed = false;
    this.show.label("Speak");
    this.say(this.typing.take(choices.text, true));
    this.connection.send("input.done");
  }

  // From the server

  receive(event) {
    const { turn } = this;
    switch (event.type) {
      case "session.started":
        this.state.started = event;
        this.show.status(`${event.model}, voice ${event.voice}, watermark ${event.watermark}`);
        turn?.configured?.resolve();
        break;
      case "audio.start":
        if (turn?.call) {
          this.connection.audio.muted = false;
          turn.clock?.begin();
          this.packet();
          this.sounded();
        }
        break;
      case "progress": // on a call, the end of what "progress.ahead" foretold
        if (turn && !turn.connecting && !turn.call) this.transcript.report(event);
        break;
      case "progress.ahead":
        if (turn && !turn.connecting) this.transcript.report(event);
        break;
      case "audio.played":
        turn?.clock?.sent(event.ms / 1000);
        break;
      case "caller.speech_started":
        if (choices.bargeIn) this.interrupt();
        break;
      case "session.done":
        this.done(event);
        break;
      case "error":
        this.show.problem(event.message);
        turn?.configured?.reject(new Error(event.message));
        break;
      case "call.ended":
        this.lost(event.reason);
    }
  }

  hear(data) {
    if (!this.turn?.decoder) return;
    this.packet();
    this.turn.decoder.push(data);
  }

  packet() {
    const { state, turn } = this;
    if (state.firstPacketMs !== null || !turn?.startedAt) return;
    state.firstPacketMs = performance.now() - turn.startedAt;
  }

  sounded() {
    const { state, turn } = this;
    if (state.firstSoundMs !== null || !turn?.startedAt) return;
    const later = turn.call ? 0 : 1000 * this.player.outputLatency;
    state.firstSoundMs = performance.now() - turn.startedAt + later;
  }

  // Ending

  async done(event) {
    const mine = this.turn;
    if (!mine?.startedAt || mine.interrupted) return; // the end of a turn that was interrupted
    this.state.done = event;
    mine.writer?.stop();
    if (mine.call) {
      this.finish(event.cancelled);
      return;
    }
    await mine.decoder?.finish();
    if (this.turn !== mine) return;
    mine.ended = true;
    this.player.end();
    if (event.samples === 0) this.finish(false);
  }

  finish(interrupted) {
    const { state, turn, transcript } = this;
    state.speaking = false;
    state.turns += 1;
    turn?.decoder?.close();
    clearTimeout(turn?.pause);
    this.show.label("Speak");
    if (!interrupted) transcript.show(Infinity);
    transcript.finish(interrupted);
    this.turn = null;
    this.show.interruptible(false);
    this.show.turnEnded();
    this.typed();
  }

  lost(reason) {
    this.show.status(`Disconnected: ${reason}`);
    if (!this.turn) return;
    this.show.problem(`The connection was lost: ${reason}.`);
    this.player?.clear();
    this.finish(true);
  }
}
