// The text of a turn, lighting up as it is spoken.

export class Transcript {
  constructor(element) {
    this.element = element;
    this.begin();
  }

  begin() {
    this.element.replaceChildren();
    this.current = null; // the word that sounds
    this.words = []; // {node, from, to}, in characters of the turn's text
    this.text = "";
    this.length = 0;
    this.spans = []; // {from, to, start, end}: characters and seconds, as the server reports them
    this.reported = 0;
  }

  // A piece of text was sent.
  add(piece) {
    this.text += piece;
    for (const part of piece.match(/\s+|\S+/g) ?? []) {
      const node = document.createElement("span");
      node.textContent = part;
      this.element.append(node);
      this.words.push({ node, from: this.length, to: this.length + part.length });
      this.length += part.length;
    }
  }

  // The server said when a part of the text is spoken.
  report({ characters, start_ms: start, end_ms: end }) {
    // The space before a word does not sound.
    const space = this.text.slice(this.reported, characters).search(/\S|$/);
    const from = this.reported + space;
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
    if (current && lit < this.length) {
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
