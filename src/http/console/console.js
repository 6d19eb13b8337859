// The only script of the console. The pages work without it: it adds rows for what happens while the page is open, shows the values of
// sliders, and lets rules be dragged.
"use strict";

for (const shown of document.querySelectorAll("output[data-value]")) {
  const slider = document.getElementById(shown.dataset.value);
  slider?.addEventListener("input", () => {
    shown.textContent = slider.value;
  });
}

(() => {
  const form = document.querySelector("form[data-dragged]");
  const rows = form ? [...form.querySelectorAll("tr[data-place]")] : [];
  if (rows.length < 2) return;
  let dragged = null;

  const mark = (row) => rows.forEach((other) => other.classList.toggle("over", other === row));

  /** The row under the pointer to which the dragged one can go. */
  const goal = (event) => {
    const row = dragged ? event.target.closest?.("tr[data-place]") : null;
    return row === dragged ? null : row;
  };

  for (const row of rows) row.draggable = true;
  for (const hint of form.querySelectorAll("[data-with-script]")) hint.hidden = false;
  form.addEventListener("dragstart", (event) => {
    dragged = event.target.closest?.("tr[data-place]") ?? null;
    event.dataTransfer.effectAllowed = "move";
  });
  form.addEventListener("dragover", (event) => {
    const row = goal(event);
    if (row) event.preventDefault();
    mark(row);
  });
  form.addEventListener("dragend", () => {
    dragged = null;
    mark(null);
  });
  form.addEventListener("drop", (event) => {
    const row = goal(event);
    if (!row) return;
    event.preventDefault();
    // The same as pressing a button of the row.
    const button = document.createElement("button");
    button.name = "do";
    button.value = `move-${dragged.dataset.place}-${row.dataset.place}`;
    button.hidden = true;
    form.append(button);
    form.requestSubmit(button);
  });
})();

(() => {
  /** Number of rows that stay in the table. */
  const ROWS = 200;
  /** How often a screen reader hears of new rows, in milliseconds. */
  const PAUSE = 3000;

  const box = document.querySelector("[data-stream]");
  const rows = document.querySelector("main tbody");
  if (!box || !rows || !window.EventSource) return;
  const texts = box.dataset;
  const button = box.querySelector("button");
  const status = box.querySelector("[role=status]");
  let source = null;
  let after = texts.after;
  let added = 0;
  let lost = 0;
  let timer = 0;

  /** Says how many rows are new. The rows themselves are not announced. */
  const tell = () => {
    timer = 0;
    const parts = [`${added} ${texts.new}`];
    if (lost > 0) parts.push(`${lost} ${texts.lost}`);
    status.textContent = parts.join(", ");
  };

  const tellLater = () => {
    timer ||= setTimeout(tell, PAUSE);
  };

  const add = (event) => {
    after = event.lastEventId || after;
    // A row of this service, with every text escaped as in the page.
    const template = document.createElement("template");
    template.innerHTML = event.data;
    rows.prepend(template.content);
    while (rows.rows.length > ROWS) rows.lastElementChild.remove();
    document.getElementById("nothing")?.remove();
    added += 1;
    tellLater();
  };

  const stop = (text) => {
    source?.close();
    source = null;
    clearTimeout(timer);
    timer = 0;
    status.textContent = text;
    button.setAttribute("aria-pressed", "false");
  };

  const start = () => {
    const address = new URL(texts.stream, location.href);
    address.searchParams.set("after", after);
    added = 0;
    lost = 0;
    status.textContent = texts.waiting;
    button.setAttribute("aria-pressed", "true");
    source = new EventSource(address);
    source.onmessage = add;
    source.addEventListener("lagged", (event) => {
      lost += JSON.parse(event.data).lost;
      tellLater();
    });
    source.onerror = () => {
      if (source?.readyState === EventSource.CLOSED) stop(texts.ended);
    };
  };

  button.addEventListener("click", () => (source ? stop(texts.paused) : start()));
  addEventListener("pagehide", () => source?.close());
  box.hidden = false;
})();
