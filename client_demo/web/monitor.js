// While something sounds: pictures, figures, and the word that is heard, a few dozen times a second.

import { showFigures } from "./figures.js";

const FRAME_MS = 30; // between two pictures
const AFTERGLOW_MS = 4000;
const STATS_MS = 250; // between two looks at what the browser says of a call

export class Monitor {
  constructor({ turns, state, scope, transcript }) {
    Object.assign(this, { turns, state, scope, transcript });
    this.lastStats = this.lastDrawn = this.lastSound = 0;
  }

  // Watch from now on.
  start(player) {
    this.player = player;
    this.draw(performance.now());
  }

  draw(now) {
    requestAnimationFrame((next) => this.draw(next));
    const { player, state } = this;
    const { turn } = this.turns;
    if (now - this.lastDrawn < FRAME_MS) return;
    this.lastDrawn = now;
    if (turn) this.lastSound = now;
    // Nothing moves for long after the end of a turn, and drawing takes time from playing.
    if (now - this.lastSound < AFTERGLOW_MS) this.scope.draw(player.analyser);
    if (!turn?.startedAt) return;
    if (turn.call) this.pollCall(turn);
    else {
      const { depth, gaps } = player.state;
      const { played } = player;
      Object.assign(state, { depth, played, gaps });
      // What the worklet has handed over is heard a little later.
      this.transcript.show(Math.max(0, played - player.outputLatency));
    }
    showFigures(state);
  }

  async pollCall(turn) {
    const { state } = this;
    state.played = turn.clock.heard(state.depth + this.player.outputLatency);
    this.transcript.show(state.played);
    if (performance.now() - this.lastStats < STATS_MS) return;
    this.lastStats = performance.now();
    const report = await this.turns.connection.stats();
    if (!report) return;
    state.call = report;
    state.depth = report.jitterBufferEmittedCount
      ? report.jitterBufferDelay / report.jitterBufferEmittedCount
      : 0;
    state.gaps = report.concealmentEvents ?? 0;
  }
}
