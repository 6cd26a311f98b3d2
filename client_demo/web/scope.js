// Waveform and spectrogram of what is being heard, scrolling together.

const STEP = 3; // device pixels a picture
const FLOOR_DB = -100;
const TOP_DB = -25;

export class Scope {
  constructor(waveform, spectrogram) {
    this.waveform = waveform.getContext("2d");
    this.spectrogram = spectrogram.getContext("2d", { willReadFrequently: true });
    this.resize();
    new ResizeObserver(() => this.resize()).observe(waveform);
  }

  resize() {
    for (const { canvas } of [this.waveform, this.spectrogram]) {
      canvas.width = Math.max(1, Math.round(canvas.clientWidth * devicePixelRatio));
      canvas.height = Math.round(Number(canvas.getAttribute("height")) * 1);
    }
    const { color, backgroundColor } = getComputedStyle(this.waveform.canvas);
    this.ink = color;
    this.ramp = colours(backgroundColor, color);
  }

  draw(analyser) {
    const samples = new Float32Array(analyser.fftSize);
    analyser.getFloatTimeDomainData(samples);
    const levels = new Float32Array(analyser.frequencyBinCount);
    analyser.getFloatFrequencyData(levels);
    scroll(this.waveform);
    scroll(this.spectrogram);
    this.drawWave(samples);
    this.drawColumn(levels);
  }

  drawWave(samples) {
    const { canvas } = this.waveform;
    let peak = 0;
    for (const sample of samples) peak = Math.max(peak, Math.abs(sample));
    const height = Math.max(1, Math.min(1, peak) * canvas.height);
    this.waveform.fillStyle = this.ink;
    this.waveform.fillRect(canvas.width - STEP, (canvas.height - height) / 2, STEP, height);
  }

  drawColumn(levels) {
    const { canvas } = this.spectrogram;
    const column = this.spectrogram.createImageData(STEP, canvas.height);
    for (let y = 0; y < canvas.height; y++) {
      const bin = Math.floor(((canvas.height - 1 - y) / canvas.height) * levels.length);
      const loud = (levels[bin] - FLOOR_DB) / (TOP_DB - FLOOR_DB);
      const colour = this.ramp[Math.round(255 * Math.min(1, Math.max(0, loud || 0)))];
      for (let x = 0; x < STEP; x++) column.data.set(colour, 4 * (y * STEP + x));
    }
    this.spectrogram.putImageData(column, canvas.width - STEP, 0);
  }
}

function scroll(context) {
  const { canvas } = context;
  context.globalCompositeOperation = "copy";
  context.drawImage(canvas, -STEP, 0);
  context.globalCompositeOperation = "source-over";
}

// From the ground through the accent to its opposite, 256 steps of [r, g, b, a].
function colours(ground, accent) {
  const strip = document.createElement("canvas");
  strip.width = 256;
  strip.height = 1;
  const paint = strip.getContext("2d");
  const gradient = paint.createLinearGradient(0, 0, 256, 0);
  gradient.addColorStop(0, ground);
  gradient.addColorStop(0.55, accent);
  gradient.addColorStop(1, "#ffe9a8");
  paint.fillStyle = gradient;
  paint.fillRect(0, 0, 256, 1);
  const { data } = paint.getImageData(0, 0, 256, 1);
  return Array.from({ length: 256 }, (_, i) => data.slice(4 * i, 4 * i + 4));
}
