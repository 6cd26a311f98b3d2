// Messages of one format to float samples at 24 kHz.

const ULAW = Float32Array.from({ length: 256 }, (_, byte) => {
  const code = byte ^ 0xff;
  const size = ((((code & 15) << 3) + 0x84) << ((code >> 4) & 7)) - 0x84;
  return (code & 0x80 ? -size : size) / 32768;
});

export function fromPcm(data) {
  const values = new Int16Array(data);
  const samples = new Float32Array(values.length);
  for (let i = 0; i < values.length; i++) samples[i] = values[i] / 32768;
  return samples;
}

export function fromUlaw(data) {
  return Float32Array.from(new Uint8Array(data), (byte) => ULAW[byte]);
}

// Calls `onSamples` for each piece, in order. `finish` resolves once all of them are through.
export function makeDecoder(format, rate, onSamples, onError) {
  if (format === "pcm") return plain((data) => onSamples(fromPcm(data)));
  if (format === "ulaw") return plain((data) => onSamples(fromUlaw(data)));
  return opusDecoder(rate, onSamples, onError);
}

function plain(push) {
  return { push, finish: async () => {}, close: () => {} };
}

function opusDecoder(rate, onSamples, onError) {
  if (!("AudioDecoder" in window)) throw new Error("This browser cannot decode Opus; choose PCM.");
  let at = 0;
  const decoder = new AudioDecoder({
    output: (data) => {
      const samples = new Float32Array(data.numberOfFrames);
      const from = data.sampleRate;
      data.copyTo(samples, { planeIndex: 0, format: "f32-planar" });
      data.close();
      onSamples(toRate(samples, from, rate));
    },
    error: (error) => onError(error.message),
  });
  decoder.configure({ codec: "opus", sampleRate: 48000, numberOfChannels: 1 });
  return {
    push(data) {
      decoder.decode(new EncodedAudioChunk({ type: "key", timestamp: at, duration: 20000, data }));
      at += 20000;
    },
    finish: () => decoder.flush(),
    close: () => decoder.state !== "closed" && decoder.close(),
  };
}

// The decoder answers at 48 kHz. Speech made at 24 kHz has nothing above 12 kHz, so every second
// sample holds all of it.
function toRate(samples, from, to) {
  if (from === to) return samples;
  const step = from / to;
  return Float32Array.from({ length: Math.floor(samples.length / step) }, (_, i) => samples[i * step]);
}
