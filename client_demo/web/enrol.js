// A new voice: a recording, who agreed to it, and what the server thinks of it.

const LONGEST_MS = 30000;

export function watchEnrolment({ form, record, status, report, key, added }) {
  let recorded = null;
  let recorder = null;

  record.addEventListener("click", async () => {
    if (recorder) {
      recorder.stop();
      return;
    }
    try {
      const stream = await navigator.mediaDevices.getUserMedia({
        // What cleans up a call also changes a voice.
        audio: { echoCancellation: false, noiseSuppression: false, autoGainControl: false },
      });
      recorder = new MediaRecorder(stream);
      capture(stream);
    } catch (error) {
      status.textContent = `No microphone: ${error.message}`;
    }
  });

  function capture(stream) {
    const parts = [];
    const timer = setTimeout(() => recorder?.stop(), LONGEST_MS);
    recorder.ondataavailable = ({ data }) => parts.push(data);
    recorder.onstop = () => {
      clearTimeout(timer);
      stream.getTracks().forEach((track) => track.stop());
      recorded = new File(parts, "recording.webm", { type: recorder.mimeType });
      recorder = null;
      mark("Record again", false);
      status.textContent = "Recorded.";
    };
    recorder.start();
    mark("Stop recording", true);
    status.textContent = "Recording: read the words you wrote above.";
  }

  function mark(text, on) {
    record.querySelector("span").textContent = text;
    record.classList.toggle("on", on);
  }

  form.elements.audio.addEventListener("change", () => (recorded = null));

  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const fields = new FormData(form);
    if (recorded) fields.set("audio", recorded);
    if (!fields.get("audio")?.size) {
      status.textContent = "Record something or choose a file first.";
      return;
    }
    fields.set("consent_scope", "speech");
    status.textContent = "Listening to the recording";
    report.replaceChildren();
    try {
      const headers = key() ? { Authorization: `Bearer ${key()}` } : {};
      const answer = await fetch("v1/voices", { method: "POST", headers, body: fields });
      const result = await answer.json();
      if (result.report) show(result.report);
      if (!answer.ok) throw new Error(result.error.message);
      status.textContent = `${result.voice.name} can speak now.`;
      added(result.voice);
    } catch (error) {
      status.textContent = error.message;
    }
  });

  function show({ findings }) {
    for (const { measure, value, verdict, message } of findings) {
      const row = document.createElement("li");
      row.className = verdict;
      const figure = typeof value === "number" ? ` ${Number(value.toFixed(2))}` : "";
      row.textContent = message || `${measure.replaceAll("_", " ")}${figure}`;
      report.append(row);
    }
  }
}
