// What is known of the present or last turn, in figures.

export function showFigures(state) {
  const ms = (value) => (value === null ? "–" : `${Math.round(value)} ms`);
  const long = (seconds) => (seconds < 1 ? ms(1000 * seconds) : `${seconds.toFixed(1)} s`);
  const rtf = state.done?.rtf;
  const texts = {
    "first-packet": ms(state.firstPacketMs),
    "first-sound": ms(state.firstSoundMs),
    depth: long(state.depth),
    gaps: String(state.gaps),
    heard: `${state.played.toFixed(1)} s`,
    rtf: rtf === undefined || rtf === null ? "–" : rtf.toFixed(3),
  };
  for (const [id, text] of Object.entries(texts)) {
    const figure = document.getElementById(id);
    if (figure.textContent !== text) figure.textContent = text;
  }
}
