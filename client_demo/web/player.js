// The page's side of the audio clock: a worklet that plays, and taps for the pictures.

export const RATE = 24000;

export class Player extends EventTarget {
  constructor(context, node, analyser) {
    super();
    this.context = context;
    this.node = node;
    this.analyser = analyser;
    this.state = { depth: 0, played: 0, gaps: 0, target: 0 };
    node.port.onmessage = (message) => {
      this.state = message.data;
      this.dispatchEvent(new CustomEvent(message.data.type, { detail: message.data }));
    };
  }

  // Browsers start audio only after a gesture, so this is called from a click or a key.
  static async open() {
    const context = new AudioContext({ sampleRate: RATE, latencyHint: "interactive" });
    await context.audioWorklet.addModule("player-worklet.js");
    const node = new AudioWorkletNode(context, "player", {
      numberOfInputs: 0,
      outputChannelCount: [1],
    });
    const analyser = context.createAnalyser();
    analyser.fftSize = 1024;
    analyser.smoothingTimeConstant = 0;
    node.connect(analyser);
    analyser.connect(context.destination);
    await context.resume();
    return new Player(context, node, analyser);
  }

  // Seconds between a sample leaving the worklet and being heard.
  get outputLatency() {
    return (this.context.baseLatency || 0) + (this.context.outputLatency || 0);
  }

  begin() {
    this.node.port.postMessage({ type: "begin" });
  }

  push(samples) {
    this.node.port.postMessage({ type: "samples", samples }, [samples.buffer]);
  }

  end() {
    this.node.port.postMessage({ type: "end" });
  }

  clear() {
    this.node.port.postMessage({ type: "clear" });
  }

  // A call's audio is played by an audio element; the pictures listen to it as well.
  watch(stream) {
    const source = this.context.createMediaStreamSource(stream);
    source.connect(this.analyser);
    return () => source.disconnect();
  }
}
