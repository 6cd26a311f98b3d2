// Drop a file, see whether this server made it.

export function watchDrops({ drop, input, verdict, spans, key }) {
  input.addEventListener("change", () => input.files[0] && check(input.files[0]));
  for (const type of ["dragenter", "dragover"]) {
    drop.addEventListener(type, (event) => {
      event.preventDefault();
      drop.classList.add("over");
    });
  }
  drop.addEventListener("dragleave", () => drop.classList.remove("over"));
  drop.addEventListener("drop", (event) => {
    event.preventDefault();
    drop.classList.remove("over");
    if (event.dataTransfer.files[0]) check(event.dataTransfer.files[0]);
  });

  async function check(file) {
    verdict.textContent = `Looking at ${file.name}`;
    spans.hidden = true;
    try {
      const headers = key() ? { Authorization: `Bearer ${key()}` } : {};
      const answer = await fetch("v1/watermark/detect", { method: "POST", headers, body: file });
      const result = await answer.json();
      if (!answer.ok) throw new Error(result.error.message);
      const score = result.score.toFixed(2);
      verdict.textContent = result.marked
        ? `${file.name} carries the watermark (score ${score}).`
        : `${file.name} carries no watermark (score ${score}).`;
      if (result.marked) paint(spans, result);
    } catch (error) {
      verdict.textContent = error.message;
    }
  }
}

function paint(canvas, { spans, seconds }) {
  canvas.hidden = false;
  canvas.width = canvas.clientWidth * devicePixelRatio;
  const context = canvas.getContext("2d");
  context.fillStyle = getComputedStyle(canvas).color;
  for (const [start, end] of spans) {
    const from = (start / seconds) * canvas.width;
    context.fillRect(from, 0, ((end - start) / seconds) * canvas.width, canvas.height);
  }
}
