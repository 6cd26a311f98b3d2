// The page's side of the audio clock: a worklet that plays, and taps for the pictures.

export const RATE = 24000;
const QUIET = 0.005;
const LAST = 256; // samples: 11 ms

export class Player extends EventTarget {
  constructor(context, node, analyser) {
    super();
    this.context = context;
    this.node = node;
    this.analyser = analyser;
    this.state = { depth: 0, played: 0, gaps: 0, target: 0, playing: false, time: 0 };
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

  // Seconds of the turn that left the worklet. It reports now and then; its clock goes on between.
  get played() {
    const { played, playing, depth, time } = this.state;
    return playing ? played + Math.min(depth, this.context.currentTime - time) : played;
  }

  // Seconds between a sample leaving the worklet and being heard.
  get outputLatency() {
    return (this.context.baseLatency || 0) + (this.context.outputLatency || 0);
  }

  begin() {
    Object.assign(this.state, { played: 0, gaps: 0, playing: false });
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

  // Calls back once a call's sound has ended. It ends at the server, so no message says when.
  whenSilent(callback) {
    const samples = new Float32Array(this.analyser.fftSize);
    const timer = setInterval(() => {
      this.analyser.getFloatTimeDomainData(samples);
      if (samples.subarray(-LAST).some((sample) => Math.abs(sample) > QUIET)) return;
      clearInterval(timer);
      callback();
    }, 5);
  }

  // A call's audio is played by an audio element; the pictures listen to it as well.
  watch(stream) {
    const source = this.context.createMediaStreamSource(stream);
    source.connect(this.analyser);
    return () => source.disconnect();
  }
}
