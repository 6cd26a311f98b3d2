// The same messages over the data channel of a WebRTC call; the audio plays by itself.

const GATHERING_MS = 2000;
const JITTER_BUFFER_MS = 40; // rides out a late packet; the browser's own choice is 25 and more

export class BrowserCall extends EventTarget {
  constructor(peer, channel, audio) {
    super();
    this.peer = peer;
    this.channel = channel;
    this.audio = audio;
    this.location = "";
    channel.onmessage = ({ data }) => {
      if (typeof data === "string") {
        this.dispatchEvent(new CustomEvent("message", { detail: JSON.parse(data) }));
      }
    };
    channel.onclose = () => this.dispatchEvent(new CustomEvent("lost", { detail: "the call ended" }));
  }

  static async open(key, { voice, microphone }) {
    const headers = key ? { Authorization: `Bearer ${key}` } : {};
    const ice = await (await fetch("v1/rtc/ice", { headers })).json();
    const peer = new RTCPeerConnection(ice.iceServers ? ice : {});
    const audio = new Audio();
    audio.autoplay = true;
    const call = new BrowserCall(peer, peer.createDataChannel("tts"), audio);
    peer.ontrack = ({ streams, track, receiver }) => {
      if ("jitterBufferTarget" in receiver) receiver.jitterBufferTarget = JITTER_BUFFER_MS;
      audio.srcObject = streams[0] ?? new MediaStream([track]);
      call.dispatchEvent(new CustomEvent("stream", { detail: audio.srcObject }));
    };
    if (microphone) {
      call.microphone = await navigator.mediaDevices.getUserMedia({
        audio: { echoCancellation: true, noiseSuppression: true },
      });
      peer.addTrack(call.microphone.getAudioTracks()[0], call.microphone);
    } else {
      peer.addTransceiver("audio", { direction: "recvonly" });
    }
    await call.negotiate(headers, voice);
    await call.connected();
    return call;
  }

  async negotiate(headers, voice) {
    await this.peer.setLocalDescription();
    await gathered(this.peer);
    const query = voice ? `?voice=${encodeURIComponent(voice)}` : "";
    const answer = await fetch(`v1/rtc${query}`, {
      method: "POST",
      headers: { ...headers, "Content-Type": "application/sdp" },
      body: this.peer.localDescription.sdp,
    });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    this.location = answer.headers.get("Location");
    await this.peer.setRemoteDescription({ type: "answer", sdp: await answer.text() });
  }

  connected() {
    return new Promise((resolve, reject) => {
      this.channel.onopen = resolve;
      this.peer.onconnectionstatechange = () => {
        if (this.peer.connectionState === "failed") reject(new Error("The call did not connect."));
      };
    });
  }

  get open() {
    return this.channel.readyState === "open";
  }

  send(type, fields = {}) {
    this.channel.send(JSON.stringify({ type, ...fields }));
  }

  // What the browser's own jitter buffer does.
  async stats() {
    for (const report of (await this.peer.getStats()).values()) {
      if (report.type === "inbound-rtp" && report.kind === "audio") return report;
    }
    return null;
  }

  close() {
    this.channel.onclose = null;
    this.microphone?.getTracks().forEach((track) => track.stop());
    this.audio.srcObject = null;
    this.peer.close();
  }
}

function gathered(peer) {
  if (peer.iceGatheringState === "complete") return Promise.resolve();
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, GATHERING_MS);
    peer.onicegatheringstatechange = () => {
      if (peer.iceGatheringState !== "complete") return;
      clearTimeout(timer);
      resolve();
    };
  });
}
