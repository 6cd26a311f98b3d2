// The text of a turn, lighting up as it is spoken.

export class Transcript {
  constructor(element) {
    this.element = element;
    this.begin();
  }

  begin() {
    this.element.replaceChildren();
    this.current = null; // the word that sounds
    // The server counts characters, of which JavaScript's own strings count some (emoji) twice.
    this.text = []; // the turn's text, a character each
    this.words = []; // {node, from, to}, in characters
    this.spans = []; // {from, to, start, end}: characters and seconds, as the server reports them
    this.reported = 0;
  }

  // A piece of text was sent.
  add(piece) {
    for (const part of piece.match(/\s+|\S+/g) ?? []) {
      const node = document.createElement("span");
      node.textContent = part;
      this.element.append(node);
      const from = this.text.length;
      for (const character of part) this.text.push(character);
      this.words.push({ node, from, to: this.text.length });
    }
  }

  // The server said when a part of the text is spoken.
  report({ characters, start_ms: start, end_ms: end }) {
    // The space before a word does not sound.
    let from = this.reported;
    while (from < characters && !this.text[from]?.trim()) from += 1;
    this.spans.push({ from, to: characters, start: start / 1000, end: end / 1000 });
    this.reported = characters;
  }

  // Light up to `seconds` of the turn's audio.
  show(seconds) {
    let lit = 0;
    for (const { from, to, start, end } of this.spans) {
      if (seconds < start) break;
      const share = end > start ? Math.min(1, (seconds - start) / (end - start)) : 1;
      lit = from + share * (to - from);
    }
    const current = this.words.findLast(({ node, from }) => from < lit && node.textContent.trim());
    if (current === this.current) return lit;
    for (const { node, from } of this.words) node.classList.toggle("spoken", from < lit);
    this.current?.node.classList.remove("now");
    this.current = current;
    if (current && lit < this.text.length) {
      current.node.classList.add("now");
      this.follow(current.node);
    }
    return lit;
  }

  // Scrolls the words and not the page.
  follow({ offsetTop, offsetHeight }) {
    const { clientHeight, scrollTop } = this.element;
    const below = offsetTop + 2 * offsetHeight - clientHeight;
    if (below > scrollTop || offsetTop < scrollTop) this.element.scrollTop = Math.max(0, below);
  }

  finish(interrupted) {
    this.current = null;
    for (const { node } of this.words) {
      node.classList.remove("now");
      if (!interrupted) node.classList.add("spoken");
      else if (!node.classList.contains("spoken")) node.classList.add("dropped");
    }
  }
}
