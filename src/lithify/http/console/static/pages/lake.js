// The lake: what there is, what hurts, and what is due.

import { html, useEffect, useState } from "/console/vendor/preact.js";
import { get } from "/console/api.js";
import { Badge, Card, Empty, Loaded, Rows, Tile, Tiles, Title, bytes, count, moment, plural, short, useData, useGet } from "/console/parts.js";

const PAGE = 50;
// A service that has just begun opens each table for the first time: some of them are shown while it does the rest.
const FIRST = 12;
const REFRESH_S = 10;
// From here on a read takes so much longer than on a folded table that somebody should look.
const SLOW = 1.5;

export function Lake({ lake, can }) {
  const [find, setFind] = useState("");
  const [asked, setAsked] = useState("");
  const [starts, setStarts] = useState([]);
  useEffect(() => {
    const timer = setTimeout(() => {
      setAsked(find.trim());
      setStarts([]);
    }, 250);
    return () => clearTimeout(timer);
  }, [find]);
  const facts = useGet("/v1/lake", null, 60);
  const first = useGet("/v1/maintenance/stats", { limit: FIRST, age_s_max: 60 });
  const begun = Boolean(first.data ?? first.error);
  const wanted = { limit: PAGE, after: starts.at(-1), contains: asked, age_s_max: 60 };
  const whole = useData((signal) => (begun ? get("/v1/maintenance/stats", wanted, signal) : new Promise(() => {})), [begun, JSON.stringify(wanted)], REFRESH_S);
  const stats = whole.data || whole.error || wanted.after || asked ? whole : first;
  const now = facts.data ?? lake;
  return html`<div class="stack">
    <${Title} aside=${html`<span class="muted">Lithify ${now.version}, in a ${now.storage}</span>`}>${now.name}<//>
    <${Loaded} from=${stats}>${(data) => html`
      <${Sums} lake=${now} stats=${data} part=${data.more || starts.length > 0 || asked !== ""} />
      <${Card} title="Tables" flush sub=${part(data, starts, asked)}
        aside=${html`<label><span class="hidden">Find a table</span><input type="search" placeholder="Find a table" value=${find} onInput=${(event) => setFind(event.target.value)} /></label>`}>
        <${Rows} caption="Tables of the lake" columns=${COLUMNS} rows=${data.tables} keyOf=${(row) => row.table} empty=${nothing(asked, now, can)} />
        ${(starts.length > 0 || data.more) && html`<div class="row end">
          <button disabled=${!starts.length} onClick=${() => setStarts(starts.slice(0, -1))}>Before</button>
          <button disabled=${!data.more} onClick=${() => setStarts([...starts, data.tables.at(-1).table])}>Further</button></div>`}
      <//>`}<//>
  </div>`;
}

const part = (data, starts, asked) => {
  if (asked) return `${plural(data.tables.length, "table")}${data.more ? " and more" : ""} with this in the name`;
  return starts.length || data.more ? `${count(starts.length * PAGE + 1)} to ${count(starts.length * PAGE + data.tables.length)}` : "";
};

const nothing = (asked, lake, can) => {
  if (asked) return html`<${Empty} title="No table has that in its name" />`;
  return html`<${Empty} title=${lake.caller.tables.length ? "There is no table for this token" : "The lake is empty"}>
    ${can.has("write") ? html`<code>lithify create</code> makes a table, <code>lithify ingest</code> brings rows in.` : "Tables appear here when somebody creates one."}<//>`;
};

function Sums({ lake, stats, part }) {
  const sum = (of) => stats.tables.reduce((total, table) => total + of(table), 0);
  const slow = stats.tables.filter((table) => table.read_overhead >= SLOW).length;
  const broken = stats.tables.filter((table) => table.error).length;
  const shown = part ? "of those shown" : null;
  const free = lake.disk && lake.disk.free_bytes / lake.disk.bytes;
  return html`<${Tiles}>
    <${Tile} name="Tables" value=${count(stats.tables_total)} under=${broken ? plural(broken, "cannot be read", "cannot be read") : slow ? `${count(slow)} slow to read` : "all in order"} tone=${broken ? "bad" : ""} />
    <${Tile} name="Rows in base" value=${short(sum((table) => table.base_rows))} under=${shown} />
    <${Tile} name="Base" value=${bytes(stats.base_bytes)} under=${plural(stats.base_files, "file")} />
    <${Tile} name="Pending changes" value=${short(stats.pending_rows)} under=${plural(stats.pending_files, "file")} />
    <${Tile} name="To compact" value=${count(stats.debt.files)} under=${bytes(stats.debt.bytes)} />
    <${Tile} name="Reclaimable" value=${bytes(sum((table) => table.reclaimable_bytes))} under="by the next vacuum" />
    ${lake.disk && html`<${Tile} name="Free disk" value=${bytes(lake.disk.free_bytes)} under=${`${Math.round(100 * free)} % of ${bytes(lake.disk.bytes)}`} tone=${free < 0.05 ? "bad" : free < 0.15 ? "warn" : ""} />`}
  <//>`;
}

const overhead = (table) => html`<span class=${table.read_overhead >= 3 ? "bad" : table.read_overhead >= SLOW ? "warn" : ""}>${table.read_overhead.toFixed(2)}×</span>`;

function State({ of }) {
  if (of.error) return html`<span class="bad">${of.error}</span>`;
  if (of.waiting.length) return html`<${Badge} tone="bad">failed<//> <span class="muted">${of.waiting[0].reason ?? of.waiting[0].why ?? ""}</span>`;
  if (of.due.length) return html`<${Badge} tone="warn">due<//> <span class="muted">${of.due[0]}${of.due.length > 1 ? ` and ${of.due.length - 1} more` : ""}</span>`;
  if (of.last_job && of.last_job.outcome !== "done") return html`<${Badge} tone="warn">${of.last_job.kind} ${of.last_job.outcome}<//> <span class="muted">${moment(of.last_job.ended_ms)}</span>`;
  return html`<span class="muted">nothing is due</span>`;
}

const unless = (show) => (table) => (table.error ? "–" : show(table));
const COLUMNS = [
  { head: "table", label: true, show: (table) => html`<a href=${`#/table/${encodeURIComponent(table.table)}`}>${table.table}</a>` },
  { head: "rows in base", num: true, show: unless((table) => count(table.base_rows)) },
  { head: "base", num: true, show: unless((table) => bytes(table.base_bytes)) },
  { head: "files", num: true, show: unless((table) => count(table.base_files)) },
  { head: "pending rows", num: true, show: unless((table) => count(table.pending_rows)) },
  { head: "read overhead", num: true, show: unless(overhead) },
  { head: "state", wrap: true, show: (table) => html`<${State} of=${table} />` },
];
