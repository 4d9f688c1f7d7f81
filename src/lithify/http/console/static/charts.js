// Pictures as SVG, by hand: each with a text that says the same.

import { html } from "/console/vendor/preact.js";
import { bytes, count, plural, short } from "/console/parts.js";

const FILLS = ["f1", "f2", "f3", "f4", "f5", "f6"];
/** The same origin has the same colour in all pictures of a table. */
export const fills = (names) => Object.fromEntries([...names].map((name, number) => [name, FILLS[number % FILLS.length]]));
export const Legend = ({ of }) => html`<div class="legend">${of.map(([fill, name]) => html`<span><i class=${fill}></i>${name}</span>`)}</div>`;

const POWERS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];
const power = (size) => {
  const exponent = Math.round(Math.log2(size));
  return `${2 ** (exponent % 10)} ${POWERS[Math.floor(exponent / 10)]}`;
};

/** How many files there are of each size, by what wrote them. `sizes` as in /files. */
export function SizeHistogram({ sizes }) {
  const name = (each) => (each.log === "changes" ? "pending changes" : each.origin);
  const names = [...new Set(sizes.map(name))];
  const fill = fills(names);
  const exponents = sizes.map((each) => Math.round(Math.log2(each.bytes_min)));
  const first = Math.min(...exponents);
  const last = Math.max(...exponents, first + 7);
  const stacks = new Map();
  for (const each of sizes) {
    const at = Math.round(Math.log2(each.bytes_min));
    stacks.set(at, [...(stacks.get(at) ?? []), each]);
  }
  const highest = Math.max(...[...stacks.values()].map((parts) => parts.reduce((sum, each) => sum + each.files, 0)));
  const [width, height, left, bottom, top] = [640, 190, 44, 24, 12];
  const slot = (width - left) / (last - first + 1);
  const y = (files) => ((height - top - bottom) * files) / highest;
  const total = sizes.reduce((sum, each) => sum + each.files, 0);
  const said = `${plural(total, "file")} with ${bytes(sizes.reduce((sum, each) => sum + each.bytes, 0))}: ${names.map((each) => `${count(sizes.filter((size) => name(size) === each).reduce((sum, size) => sum + size.files, 0))} of ${each}`).join(", ")}`;
  return html`<div class="stack tight"><svg class="chart" viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${`Files by size. ${said}`}>
      ${ticks(highest).map((value) => html`<line class="grid" x1=${left} x2=${width} y1=${height - bottom - y(value)} y2=${height - bottom - y(value)} /><text x=${left - 6} y=${height - bottom - y(value) + 4} text-anchor="end">${short(value)}</text>`)}
      ${[...stacks].map(([at, parts]) => {
        let base = height - bottom;
        return parts.map((part) => {
          const size = y(part.files);
          base -= size;
          return html`<rect class=${fill[name(part)]} x=${left + (at - first) * slot + 2} y=${base} width=${Math.max(slot - 4, 1)} height=${Math.max(size, 1)} rx="1.5"><title>${`${name(part)}: ${plural(part.files, "file")} from ${power(part.bytes_min)} to ${power(part.bytes_min * 2)}, ${bytes(part.bytes)} in all`}</title></rect>`;
        });
      })}
      <line class="axis" x1=${left} x2=${width} y1=${height - bottom} y2=${height - bottom} />
      ${Array.from({ length: last - first + 1 }, (_, number) => first + number).filter((at) => (at - first) % Math.ceil((last - first + 1) / 9) === 0).map((at) => html`<text x=${left + (at - first) * slot} y=${height - 6}>${power(2 ** at)}</text>`)}
    </svg><div class="row apart"><${Legend} of=${names.map((each) => [fill[each], each])} /><span class="muted">${plural(total, "file")}</span></div></div>`;
}

export function ticks(highest) {
  const step = 10 ** Math.floor(Math.log10(Math.max(highest, 1)));
  const size = highest / step >= 5 ? step * 2 : highest / step >= 2 ? step : Math.max(step / 2, 1);
  const found = [];
  for (let value = 0; value <= highest; value += size) found.push(value);
  return found;
}

const LANES = 14;
const PENDING_LANES = 12;

/** Which part of the column's range each row group covers: one box per row group, in as many lanes as overlap. */
export function GroupMap({ data }) {
  const origins = [...new Set(data.groups.map((group) => group.origin))];
  const fill = fills(origins);
  const ends = [];
  const boxes = [];
  let deepest = 0;
  for (const group of data.groups) {
    if (group.place === null) continue;
    const [from, to] = group.place;
    // The first lane that is free again. Bounds that only touch are not counted as an overlap of more than one row.
    let lane = ends.findIndex((end) => end < from || (end === from && to > from));
    if (lane < 0) lane = ends.length;
    ends[lane] = to;
    deepest = Math.max(deepest, lane + 1);
    boxes.push({ group, from, to, lane: Math.min(lane, LANES - 1) });
  }
  const lanes = Math.max(1, Math.min(deepest, LANES));
  const placed = data.pending.filter((change) => change.place !== null);
  const ticksOf = new Map(placed.map((change, number) => [change, number % PENDING_LANES]));
  const [width, line, tick] = [640, 14, 4];
  const bottom = 28 + Math.min(placed.length, PENDING_LANES) * tick;
  const height = lanes * line + bottom + 4;
  const inner = width - 2;
  const low = edge(data, (span) => span.place[0], "low", (a, b) => a < b);
  const high = edge(data, (span) => span.place[1], "high", (a, b) => a > b);
  const said = `${plural(boxes.length, "row group")} by ${data.column}; ${deepest > 1 ? `at the most crowded place ${count(deepest)} overlap` : "none overlaps another"}; ${plural(placed.length, "file")} of pending changes.`;
  const unplaced = data.groups.length - boxes.length + data.pending.length - placed.length;
  return html`<div class="stack tight"><svg class="chart" viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${`Row groups by key range. ${said}`}>
      ${boxes.map(({ group, from, to, lane }) => html`<rect class=${fill[group.origin]} x=${1 + from * inner} y=${lane * line + 2} width=${Math.max((to - from) * inner - 1, 2)} height=${line - 3} rx="2"><title>${`${group.origin}: ${plural(group.rows, "row")}, ${bytes(group.bytes)}\n${group.low} to ${group.high}`}</title></rect>`)}
      <line class="axis" x1="0" x2=${width} y1=${lanes * line + 4} y2=${lanes * line + 4} />
      ${placed.map((change) => html`<rect class="f2" x=${1 + change.place[0] * inner - 1} y=${lanes * line + 8 + ticksOf.get(change) * tick} width=${Math.max((change.place[1] - change.place[0]) * inner, 2)} height=${tick - 1.5}><title>${`pending, seq ${change.seq}: ${plural(change.rows, "row")}\n${change.low} to ${change.high}`}</title></rect>`)}
      <text x="0" y=${height - 6}>${cut(low)}</text><text x=${width} y=${height - 6} text-anchor="end">${cut(high)}</text>
      <text x=${width / 2} y=${height - 6} text-anchor="middle">${data.column}${data.linear ? "" : ", by rank"}</text>
    </svg>
    <${Legend} of=${[...origins.map((origin) => [fill[origin], origin]), ...(placed.length ? [["f2", "pending changes, below the line"]] : [])]} />
    <p class="muted">${said}${deepest > LANES ? ` Only ${LANES} lanes are drawn.` : ""}${unplaced ? ` Of ${plural(unplaced, "other", "others")} no range is known.` : ""}${data.groups_total > data.groups.length ? ` Of ${count(data.groups_total)} row groups the first ${count(data.groups.length)} are shown.` : ""}</p></div>`;
}

const cut = (value) => (value.length > 26 ? `${value.slice(0, 25)}…` : value);

function edge(data, place, name, better) {
  let found = null;
  for (const span of [...data.groups, ...data.pending]) {
    if (span.place !== null && (found === null || better(place(span), place(found)))) found = span;
  }
  return found === null ? "" : String(found[name]);
}

/** Pending rows and folds along the seqs of a table, oldest first. */
export function TimeLine({ history, at, onPick }) {
  const writes = history.filter((entry) => entry.log === "changes" && entry.seq !== null).slice().reverse();
  const folds = history.filter((entry) => entry.log === "base" && entry.seq !== null);
  if (!writes.length) return null;
  const [width, height, bottom] = [1160, 96, 20];
  const first = writes[0].seq;
  const last = Math.max(writes.at(-1).seq, first + 1);
  const x = (seq) => 4 + ((width - 8) * (seq - first)) / (last - first);
  const highest = Math.max(1, ...writes.map((entry) => entry.rows ?? 0));
  const size = (rows) => 3 + (height - bottom - 14) * Math.sqrt((rows ?? 0) / highest);
  const slot = Math.max(2, Math.min(14, (width - 8) / Math.max(last - first, 1) - 2));
  return html`<svg class="chart" viewBox=${`0 0 ${width} ${height}`} role="img" aria-label=${`${plural(writes.length, "write")} from seq ${count(first)} to ${count(last)}, ${plural(folds.length, "commit")} to base among them`}>
    ${folds.filter((fold) => fold.seq >= first).map((fold) => html`<line class="axis" x1=${x(fold.seq)} x2=${x(fold.seq)} y1="4" y2=${height - bottom} stroke-dasharray="3 3"><title>${`${fold.operation}: base holds everything up to seq ${count(fold.seq)}`}</title></line>`)}
    ${writes.map((entry) => html`<rect class=${/delete/.test(entry.operation) ? "f6" : "f1"} x=${x(entry.seq) - slot / 2} y=${height - bottom - size(entry.rows)} width=${slot} height=${size(entry.rows)} rx="1" onClick=${() => onPick?.(entry.seq)}><title>${`seq ${count(entry.seq)}: ${entry.operation}, ${plural(entry.rows ?? 0, "row")}`}</title></rect>`)}
    <line class="axis" x1="0" x2=${width} y1=${height - bottom} y2=${height - bottom} />
    ${at !== undefined && at !== null && html`<path d=${`M ${x(Math.max(at, first))} ${height - bottom + 1} l 6 9 h -12 z`} class="f2" />`}
    <text x="16" y=${height - 6}>seq ${count(first)}</text><text x=${width - 16} y=${height - 6} text-anchor="end">seq ${count(last)}</text>
  </svg>`;
}

/** What a query reads of one table: a cell per row group, up to a number that can be looked at. */
export function GroupCells({ table }) {
  const shown = Math.min(table.groups_total, 1200);
  const scale = table.groups_total ? shown / table.groups_total : 0;
  const conditions = table.conditions.filter((condition) => condition.groups_ruled_out > 0);
  // A row group may be ruled out by several conditions: each is coloured by the first one that is left in the count.
  let left = table.groups_total - table.groups_read;
  const parts = [];
  for (const [number, condition] of conditions.entries()) {
    const taken = Math.min(left, condition.groups_ruled_out);
    if (taken > 0) parts.push([FILLS[(number + 1) % FILLS.length], condition.text, taken]);
    left -= taken;
  }
  if (left > 0) parts.push(["f4", "bloom filters or partition values", left]);
  const cells = [...Array(Math.ceil(table.groups_read * scale)).fill("f1"), ...parts.flatMap(([fill, , groups]) => Array(Math.round(groups * scale)).fill(fill))];
  return html`<div class="stack tight"><div class="cells" role="img" aria-label=${`${count(table.groups_read)} of ${plural(table.groups_total, "row group")} would be read`}>${cells.map((fill) => html`<i class=${fill}></i>`)}</div>
    <${Legend} of=${[["f1", `read (${count(table.groups_read)})`], ...parts.map(([fill, text, groups]) => [fill, `ruled out by ${text} (${count(groups)})`])]} />
    ${scale < 1 && shown > 0 && html`<p class="muted">Each cell stands for ${(1 / scale).toFixed(1)} row groups.</p>`}</div>`;
}
