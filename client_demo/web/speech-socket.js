// The native protocol over a WebSocket. Events: "audio" (ArrayBuffer), "message" (JSON), "lost".

export class SpeechSocket extends EventTarget {
  constructor(socket) {
    super();
    this.socket = socket;
    socket.binaryType = "arraybuffer";
    socket.onmessage = ({ data }) => {
      const type = typeof data === "string" ? "message" : "audio";
      const detail = type === "message" ? JSON.parse(data) : data;
      this.dispatchEvent(new CustomEvent(type, { detail }));
    };
    socket.onclose = (event) => {
      this.dispatchEvent(new CustomEvent("lost", { detail: event.reason || `code ${event.code}` }));
    };
  }

  static open(key) {
    const url = new URL("v1/audio/speech/stream", location.href);
    url.protocol = url.protocol.replace("http", "ws");
    const socket = new WebSocket(url, key ? ["token", key] : []);
    return new Promise((resolve, reject) => {
      socket.onopen = () => resolve(new SpeechSocket(socket));
      socket.onerror = () => reject(new Error("The server refused the connection."));
    });
  }

  get open() {
    return this.socket.readyState === WebSocket.OPEN;
  }

  send(type, fields = {}) {
    this.socket.send(JSON.stringify({ type, ...fields }));
  }

  close() {
    this.socket.onclose = null;
    this.socket.close();
  }
}
