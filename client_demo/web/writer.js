// How the text comes: at a pace, as an LLM's would; all at once; or as it is typed.

// Hands out a text word by word at a steady pace.
export class Writer {
  constructor(text, wordsPerSecond, onPiece, onEnd) {
    this.pieces = text.match(/\s*\S+\s*/g) ?? [];
    this.started = performance.now();
    this.interval = 1000 / wordsPerSecond;
    this.next = 0;
    this.onPiece = onPiece;
    this.onEnd = onEnd;
    this.step();
  }

  step() {
    // Against the start, so that late timers do not add up.
    while (this.next < this.pieces.length && this.due() <= 0) this.onPiece(this.pieces[this.next++]);
    if (this.next >= this.pieces.length) {
      this.timer = null;
      this.onEnd();
    } else {
      this.timer = setTimeout(() => this.step(), this.due());
    }
  }

  due() {
    return this.started + this.next * this.interval - performance.now();
  }

  stop() {
    clearTimeout(this.timer);
    this.next = this.pieces.length;
  }
}

export class Paste {
  constructor(text, onPiece, onEnd) {
    onPiece(text);
    onEnd();
  }

  stop() {}
}

// Follows a text that grows. A word is finished when a blank stands behind it.
export class Typing {
  constructor() {
    this.sent = "";
  }

  // What was finished since the last `take`; with `all` the unfinished word too.
  peek(value, all = false) {
    if (!value.startsWith(this.sent)) {
      // What was said cannot be unsaid: after a change inside it, all that stands there counts as
      // said. A text that begins differently is a new one.
      this.sent = value.length < 2 || value[0] !== this.sent[0] ? "" : value;
    }
    const rest = value.slice(this.sent.length);
    return rest.slice(0, all ? rest.length : rest.search(/\s\S*$/) + 1);
  }

  take(value, all = false) {
    const piece = this.peek(value, all);
    this.sent += piece;
    return piece;
  }

  // Leave out everything up to here.
  skip(value) {
    this.sent = value;
  }
}
