// Plays samples on the audio clock. Between two render quanta nothing is decided by timers, so
// pieces join without seams. A small jitter buffer is filled before a turn starts; it grows after
// a gap and shrinks again while nothing happens.

const LEAST_S = 0.04;
const MOST_S = 0.5;
const FADE_S = 0.005;
const REPORT_EVERY = 12; // quanta: 64 ms at 24 kHz

class PlayerProcessor extends AudioWorkletProcessor {
  constructor() {
    super();
    this.queue = [];
    this.offset = 0; // into queue[0]
    this.depth = 0; // samples waiting
    this.target = LEAST_S * sampleRate;
    this.playing = false; // the buffer was full enough once
    this.ended = true; // no more samples of this turn will come
    this.played = 0;
    this.gaps = 0;
    this.fading = 0; // samples left of the fade after an interruption
    this.level = 0; // last sample, from which the fade goes down
    this.quanta = 0;
    this.port.onmessage = (message) => this.receive(message.data);
  }

  receive(message) {
    if (message.type === "begin") {
      this.drop();
      Object.assign(this, { played: 0, gaps: 0, ended: false, playing: false });
    } else if (message.type === "samples") {
      this.queue.push(message.samples);
      this.depth += message.samples.length;
    } else if (message.type === "end") {
      this.ended = true;
    } else if (message.type === "clear") {
      this.drop();
      this.ended = true;
      this.playing = false;
      this.fading = Math.round(FADE_S * sampleRate);
      this.report("cleared");
    }
  }

  drop() {
    this.queue = [];
    this.offset = 0;
    this.depth = 0;
  }

  process(_inputs, outputs) {
    const out = outputs[0][0];
    let written = 0;
    if (!this.playing && this.depth > 0 && (this.depth >= this.target || this.ended)) {
      this.playing = true;
      if (this.played === 0) this.report("started");
    }
    if (this.playing) {
      written = this.take(out);
      this.played += written;
      if (written < out.length) this.ranDry();
      else this.target = Math.max(LEAST_S * sampleRate, this.target * 0.9999);
    }
    this.fill(out, written);
    if (++this.quanta % REPORT_EVERY === 0) this.report("state");
    return true;
  }

  take(out) {
    let written = 0;
    while (written < out.length && this.queue.length > 0) {
      const piece = this.queue[0];
      const count = Math.min(out.length - written, piece.length - this.offset);
      out.set(piece.subarray(this.offset, this.offset + count), written);
      written += count;
      this.offset += count;
      if (this.offset === piece.length) {
        this.queue.shift();
        this.offset = 0;
      }
    }
    this.depth -= written;
    if (written > 0) this.level = out[written - 1];
    return written;
  }

  ranDry() {
    this.playing = false;
    if (this.ended) {
      this.report("finished");
      return;
    }
    this.gaps += 1;
    this.target = Math.min(MOST_S * sampleRate, this.target * 2);
    this.fading = Math.round(FADE_S * sampleRate);
    this.report("state");
  }

  // Silence, reached by a short slope instead of a step.
  fill(out, from) {
    const whole = Math.round(FADE_S * sampleRate);
    for (let i = from; i < out.length; i++) {
      if (this.fading > 0) this.fading -= 1;
      out[i] = this.level * (this.fading / whole);
    }
    if (this.fading === 0 && from < out.length) this.level = 0;
  }

  report(type) {
    this.port.postMessage({
      type,
      depth: this.depth / sampleRate,
      target: this.target / sampleRate,
      played: this.played / sampleRate,
      gaps: this.gaps,
      playing: this.playing,
      time: currentTime,
    });
  }
}

registerProcessor("player", PlayerProcessor);
