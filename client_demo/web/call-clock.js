// How far a call's turn is heard. The server says now and then what it has sent; between two of
// its messages, and behind it by the jitter buffer, the audio clock goes on.

const FRAME_S = 0.02; // the frame that was sent last begins only now
const LONGEST_S = 0.4; // two of the server's reports: beyond, nothing more was sent

export class CallClock {
  constructor(context) {
    this.context = context;
    this.at = null;
    this.furthest = 0;
  }

  // The first frame was sent.
  begin() {
    this.sent(FRAME_S);
  }

  // So many seconds were sent.
  sent(seconds) {
    this.at = this.context.currentTime;
    this.seconds = seconds - FRAME_S;
  }

  // Seconds that are heard, `behind` seconds after they were sent.
  heard(behind) {
    if (this.at === null) return 0;
    const since = Math.min(LONGEST_S, this.context.currentTime - this.at);
    this.furthest = Math.max(this.furthest, this.seconds + since - behind);
    return this.furthest;
  }
}
