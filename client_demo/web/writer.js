// Stands for an LLM: hands out a text word by word at a steady pace.

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
