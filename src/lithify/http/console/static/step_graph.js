// The steps of a pipeline as a picture: tables and files from left to right, an arrow for each step.

import { html } from "/console/vendor/preact.js";
import { count, plural } from "/console/parts.js";

const [BOX, GAP, LINE, HIGH] = [190, 120, 58, 34];
const cut = (text) => (text.length > 26 ? `${text.slice(0, 25)}…` : text);

/** Each thing one column to the right of the last one that it is made from. */
function columnsOf(steps) {
  const column = new Map();
  for (const step of steps) if (!column.has(step.source)) column.set(step.source, 0);
  // Steps stand in their order, so one pass is enough; a thing is never moved to the left.
  for (const step of steps) column.set(step.target, Math.max(column.get(step.target) ?? 0, (column.get(step.source) ?? 0) + 1));
  return column;
}

export function StepGraph({ steps }) {
  const column = columnsOf(steps);
  const rows = new Map();
  const place = new Map();
  for (const [name, at] of column) {
    const row = rows.get(at) ?? 0;
    rows.set(at, row + 1);
    place.set(name, { x: 2 + at * (BOX + GAP), y: 6 + row * LINE });
  }
  const width = Math.max(...column.values()) * (BOX + GAP) + BOX + 4;
  const height = Math.max(...rows.values()) * LINE + 4;
  const said = steps.map((step) => `${step.step} makes ${step.target} of ${step.source}${step.lag ? `, ${plural(step.lag, "seq")} behind` : ""}`).join("; ");
  const isTable = new Set(steps.flatMap((step) => [step.target, step.table]));
  return html`<div class="scroll" tabindex="0" role="group" aria-label="Steps as a picture"><svg class="chart graph" viewBox=${`0 0 ${width} ${height}`} width=${width} height=${height} role="img" aria-label=${`${plural(steps.length, "step")}: ${said}`}>
    ${steps.map((step) => {
      const from = place.get(step.source);
      const to = place.get(step.target);
      const [x1, y1, x2, y2] = [from.x + BOX, from.y + HIGH / 2, to.x - 6, to.y + HIGH / 2];
      const middle = (x1 + x2) / 2;
      return html`<path class=${step.idle ? "axis" : "axis late"} fill="none" d=${`M ${x1} ${y1} C ${middle} ${y1} ${middle} ${y2} ${x2} ${y2}`} /><path class="f0" d=${`M ${x2 + 6} ${y2} l -8 -4 v 8 z`} />
        <text x=${middle} y=${(y1 + y2) / 2 - 8} text-anchor="middle">${step.kind}${step.lag ? `, ${count(step.lag)} behind` : step.files ? `, ${plural(step.files, "file")}` : ""}</text>`;
    })}
    ${[...place].map(([name, { x, y }]) => html`<rect class=${isTable.has(name) ? "box" : "box files"} x=${x} y=${y} width=${BOX} height=${HIGH} rx="6"><title>${name}</title></rect><text class="strong" x=${x + BOX / 2} y=${y + HIGH / 2 + 4} text-anchor="middle">${cut(name)}</text>`)}
  </svg></div>`;
}
