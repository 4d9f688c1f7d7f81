// One table: what it is, what it is made of, what it looked like, and what happened to it.

import { html, useEffect, useMemo, useState } from "/console/vendor/preact.js";
import { get, post, tablePath } from "/console/api.js";
import { Badge, Card, Empty, Facts, Loaded, Problem, Rows, Tile, Tiles, Title, Value, bytes, count, moment, plural, short, useAction, useData, useGet } from "/console/parts.js";
import { GroupMap, SizeHistogram, TimeLine } from "/console/charts.js";
import { TableWork } from "/console/pages/maintenance.js";
import { ColumnWork, Options } from "/console/pages/change.js";
import { Quarantine } from "/console/pages/quarantine.js";

const TABS = [["", "Overview"], ["files", "Files"], ["time", "Time travel"], ["history", "History"], ["quarantine", "Quarantine"], ["options", "Options"]];
const REFRESH_S = 10;

export function Table({ path: [name = "", tab = ""], can }) {
  const at = `#/table/${encodeURIComponent(name)}`;
  const table = useGet(tablePath(name), null, REFRESH_S);
  const pages = { "": Overview, files: Files, time: TimeTravel, history: History, quarantine: Quarantine, options: Options };
  const Page = pages[tab];
  return html`<div class="stack" key=${name}>
    <${Title} aside=${html`<span class="row">${can.may("read", name) && html`<a href="#/sql" onClick=${() => sessionQuery(name)}>Query it</a>`}</span>`}>${name}<//>
    <nav class="tabs" aria-label="About this table">${TABS.map(([to, said]) => html`<a href=${to ? `${at}/${to}` : at} aria-current=${to === tab ? "page" : undefined}>${said}</a>`)}</nav>
    <${Loaded} from=${table}>${(data) => (Page ? html`<${Page} key=${tab} table=${data} name=${name} can=${can} again=${table.again} />` : html`<${Empty} title="There is no such page" />`)}<//>
  </div>`;
}

/** For the SQL page, in memory only. */
export const handed = { sql: null };
const sessionQuery = (name) => {
  handed.sql = `select *\nfrom ${name.split(".").map(quoted).join(".")}\nlimit 100`;
};
export const quoted = (name) => (/^[a-z_][a-z0-9_]*$/.test(name) ? name : `"${name.replaceAll('"', '""')}"`);

// -- overview

function Overview({ table, name, can, again }) {
  const upkeep = useGet("/v1/maintenance/stats", { table: name, limit: 1, age_s_max: 60 }, REFRESH_S);
  const state = upkeep.data?.tables[0];
  const pin = useAction(() => post("/v1/query/cache/pin", { table: name }));
  return html`<${Tiles}>
      <${Tile} name="Rows in base" value=${short(table.base.rows)} under=${count(table.base.rows)} />
      <${Tile} name="Base" value=${bytes(table.base.bytes)} under=${plural(table.base.files, "file")} />
      <${Tile} name="Pending changes" value=${short(table.pending.rows)} under=${`${plural(table.pending.files, "file")}, ${bytes(table.pending.bytes)}`} />
      <${Tile} name="Read overhead" value=${state && !state.error ? `${state.read_overhead.toFixed(2)}×` : "–"} under="of a folded table" tone=${state?.read_overhead >= 3 ? "bad" : state?.read_overhead >= 1.5 ? "warn" : ""} />
      <${Tile} name="seq" value=${count(table.seq)} under=${`base holds up to ${count(table.watermark)}`} />
      <${Tile} name="Reclaimable" value=${state ? bytes(state.reclaimable_bytes) : "–"} under="by the next vacuum" />
    <//>
    <div class="two">
      <${Card} title="Columns" flush sub=${plural(table.columns.length, "column")}><${Rows} tall caption="Columns" columns=${columnsOf(table)} rows=${table.columns} keyOf=${(column) => column.name} />${can.may("admin", name) && html`<${ColumnWork} table=${table} name=${name} onDone=${again} />`}<//>
      <div class="stack">
        <${Card} title="Table"><${Facts} of=${[
          ["Key", table.key.join(", ") || html`<span class="muted">none: it takes appends</span>`],
          ["Order by", [table.order_by ?? []].flat().join(", ") || "–"],
          ["Time column", table.time ?? "–"],
          ["Partitions", table.partition_by.join(", ") || (table.time ? `days of ${table.time}` : "–")],
          ["Fingerprint", html`<code>${table.schema_fingerprint}</code>`],
        ]} /><//>
        <${Card} title="Maintenance"><div class="stack tight">
          ${state?.error && html`<p class="bad">${state.error}</p>`}
          ${state && !state.error && html`<${Facts} of=${[
            ["Due", state.due.length ? state.due.map((each) => html`<div>${each}</div>`) : "nothing"],
            ["To compact", state.debt.files ? `${plural(state.debt.files, "file")}, ${bytes(state.debt.bytes)}` : "nothing"],
            ["Kept for the past", `${plural(state.removed_files, "file")}, ${bytes(state.removed_bytes)}`],
            ["Write amplification", state.write_amplification === null ? "–" : `${state.write_amplification.toFixed(2)}×`],
            ["Last job", state.last_job ? `${state.last_job.kind} ${state.last_job.outcome}, ${moment(state.last_job.ended_ms)}` : "none"],
            ...(state.waiting.length ? [["Failed, waits", state.waiting.map((each) => html`<div class="bad">${each.kind}: ${each.reason}</div>`)]] : []),
          ]} />`}
          ${can.may("maintain", name) && html`<${TableWork} name=${name} onDone=${() => { again(); upkeep.again(); }} />
            <div class="row"><button onClick=${() => pin.run()} disabled=${pin.busy}>${pin.busy ? "Loading …" : "Pin in memory"}</button>${pin.done && html`<span class="muted" role="status">${plural(pin.done.rows, "row")} in ${bytes(pin.done.bytes)}</span>`}</div>
            ${pin.error && html`<${Problem} error=${pin.error} />`}`}
        </div><//>
      </div>
    </div>`;
}

const columnsOf = (table) => [
  { head: "column", label: true, show: (column) => html`${column.name} ${table.key.includes(column.name) && html`<${Badge} tone="on">key<//>`} ${table.time === column.name && html`<${Badge}>time<//>`}` },
  { head: "type", show: (column) => html`<code>${column.type}</code>` },
  { head: "null", show: (column) => (column.nullable && !table.key.includes(column.name) ? "may be" : html`<span class="muted">never</span>`) },
  ...(Object.keys(table.merge_rules).length ? [{ head: "merge rule", show: (column) => table.merge_rules[column.name] ?? "" }] : []),
];

// -- files

function Files({ table, name }) {
  const files = useGet(`${tablePath(name)}/files`, { limit: 200 });
  const [column, setColumn] = useState(table.key[0] ?? table.time ?? table.columns[0].name);
  const groups = useGet(`${tablePath(name)}/groups`, { column, limit: 2000 });
  return html`<div class="two">
      <${Card} title="Files by size" sub="in powers of two, by what wrote them"><${Loaded} from=${files}>${(data) => (data.sizes.length ? html`<${SizeHistogram} sizes=${data.sizes} />` : html`<${Empty} title="There is no file yet">The first write makes one.<//>`)}<//><//>
      <${Card} title="Row groups by range" aside=${html`<label><span class="hidden">Column</span><select value=${column} onChange=${(event) => setColumn(event.target.value)}>${table.columns.map((each) => html`<option>${each.name}</option>`)}</select></label>`}>
        <${Loaded} from=${groups}>${(data) => (data.groups_total + data.pending_total ? html`<${GroupMap} data=${data} />` : html`<${Empty} title="There is no row group yet" />`)}<//><//>
    </div>
    <${Loaded} from=${files}>${(data) => html`<${Card} title="Files" flush sub=${data.more ? `the first ${count(data.files.length)}` : plural(data.files.length, "file")}>
      <${Rows} tall caption="Files" columns=${FILES} rows=${data.files} keyOf=${(file) => file.path} empty=${html`<${Empty} title="There is no file yet" />`} /><//>`}<//>`;
}

const FILES = [
  { head: "file", label: true, wrap: true, show: (file) => file.path },
  { head: "of", show: (file) => (file.log === "changes" ? html`${file.operation} <span class="muted">seq ${count(file.seq)}</span>` : file.origin) },
  { head: "partition", show: (file) => Object.entries(file.partition).map(([key, value]) => `${key}=${value}`).join(", ") },
  { head: "rows", num: true, show: (file) => count(file.rows) },
  { head: "size", num: true, show: (file) => bytes(file.bytes) },
  { head: "committed (UTC)", show: (file) => html`<span class="nowrap">${moment(file.time_ms)}</span>` },
];

// -- time travel

const ROWS = 50;

function TimeTravel({ table, name }) {
  const history = useGet(`${tablePath(name)}/history`, { limit: 500 });
  return html`<${Loaded} from=${history}>${(data) => html`<${Travel} table=${table} name=${name} history=${data.history} />`}<//>`;
}

function Travel({ table, name, history }) {
  const seqs = useMemo(() => [...new Set(history.filter((entry) => entry.log === "changes" && entry.seq !== null).map((entry) => entry.seq))].sort((a, b) => a - b), [history]);
  const [now, setNow] = useState(null);
  const [from, setFrom] = useState(null);
  if (!seqs.length) return html`<${Card}><${Empty} title="Nothing was written yet">Each write is a position to go back to.<//><//>`;
  const at = now ?? seqs.at(-1);
  const since = from !== null && from < at ? from : (seqs[seqs.indexOf(at) - 1] ?? 0);
  const said = history.find((entry) => entry.log === "changes" && entry.seq === at);
  return html`<${Card} title="Position" sub=${said ? `${said.operation} by ${said.actor ?? "somebody"}, ${moment(said.time)} UTC` : ""}>
      <div class="stack tight"><${TimeLine} history=${history} at=${at} onPick=${setNow} />
        <input type="range" aria-label="Position" min="0" max=${seqs.length - 1} value=${seqs.indexOf(at)} aria-valuetext=${`seq ${at}`} onInput=${(event) => setNow(seqs[Number(event.target.value)])} />
        <div class="row apart"><span>Rows as of seq <strong>${count(at)}</strong></span>
          <label>Differences since seq <select value=${since} onChange=${(event) => setFrom(Number(event.target.value))}>${[...new Set([0, ...seqs])].filter((seq) => seq < at || seq === since).map((seq) => html`<option value=${seq}>${count(seq)}</option>`)}</select></label></div>
      </div><//>
    <${Diff} name=${name} table=${table} since=${Math.min(since, at)} until=${at} />
    <${AsOf} name=${name} at=${at} />`;
}

/** Asks a little after the last move of the slider. */
function useSettled(value) {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), 200);
    return () => clearTimeout(timer);
  }, [value]);
  return settled;
}

function AsOf({ name, at }) {
  const settled = useSettled(at);
  const rows = useGet(`${tablePath(name)}/rows`, { as_of: settled, limit: ROWS });
  return html`<${Card} title=${`Rows as of seq ${count(settled)}`} sub=${`some of them, at most ${ROWS}`} flush><${Loaded} from=${rows}>${(data) => html`<${Grid} data=${data} caption="Rows" />`}<//><//>`;
}

function Diff({ name, table, since, until }) {
  const span = useSettled(`${since}-${until}`);
  const [first, last] = span.split("-");
  const feed = useData((signal) => (first === last ? { rows: [], columns: [], more: false } : get(`${tablePath(name)}/feed`, { since: first, until: last, before: true, limit: 500 }, signal)), [name, span]);
  return html`<${Card} title=${`What changed after seq ${count(Number(first))} up to ${count(Number(last))}`} flush><${Loaded} from=${feed}>${(data) => html`<${Differences} data=${data} />`}<//><//>`;
}

function Differences({ data }) {
  const names = data.columns.map((column) => column.name);
  const kindAt = names.indexOf("_kind");
  const shown = names.map((_, number) => number).filter((number) => !names[number].startsWith("_"));
  const lines = [];
  for (const row of data.rows.slice(0, 1000)) {
    const kind = row[kindAt];
    if (kind === "update_before") lines.push({ kind: "update", before: row, row: null });
    else if (kind === "update_after" && lines.at(-1)?.row === null) lines.at(-1).row = row;
    else lines.push({ kind, row, before: null });
  }
  if (!lines.length) return html`<${Empty} title="Nothing changed between them" />`;
  const same = (a, b) => JSON.stringify(a) === JSON.stringify(b);
  return html`<div class="scroll tall" tabindex="0" role="group" aria-label="Differences"><table><caption class="hidden">Differences between two positions</caption>
    <thead><tr><th scope="col">change</th><th scope="col" class="num">seq</th>${shown.map((number) => html`<th scope="col">${names[number]}</th>`)}</tr></thead>
    <tbody>${lines.slice(0, 300).map(({ kind, row, before }) => html`<tr class=${kind}><td><${Badge} tone=${{ insert: "good", delete: "bad", update: "warn" }[kind]}>${kind}<//></td><td class="num">${count((row ?? before)[names.indexOf("_seq")])}</td>
      ${shown.map((number) => {
        const changed = before !== null && row !== null && !same(before[number], row[number]);
        return html`<td class=${`value ${changed ? "changed" : ""}`}>${changed && html`<span class="was"><${Value} of=${before[number]} /></span>`}<${Value} of=${(row ?? before)[number]} /></td>`;
      })}</tr>`)}</tbody></table></div>
    ${(data.more || lines.length > 300) && html`<p class="muted body">There are more than are shown.</p>`}`;
}

/** Rows of an answer: always text. */
export function Grid({ data, caption }) {
  const columns = data.columns.map((column, number) => ({
    head: html`${column.name} <span class="muted">${column.type}</span>`,
    num: /^(u?int|float|decimal)/.test(column.type),
    value: true,
    show: (row) => html`<${Value} of=${row[number]} />`,
  }));
  return html`<${Rows} tall caption=${caption} columns=${columns} rows=${data.rows} empty=${html`<${Empty} title="No row" />`} />`;
}

// -- history

function History({ name }) {
  const history = useGet(`${tablePath(name)}/history`, { limit: 300 }, REFRESH_S);
  return html`<${Loaded} from=${history}>${(data) => html`<${Card} title="History" sub="newest first" flush><${Rows} caption="History" columns=${HISTORY} rows=${data.history} empty=${html`<${Empty} title="Nothing happened yet" />`} /><//>`}<//>`;
}

const HISTORY = [
  { head: "time (UTC)", show: (entry) => html`<span class="nowrap">${moment(entry.time)}</span>` },
  { head: "operation", label: true, show: (entry) => html`${entry.operation} ${entry.log === "base" && html`<${Badge}>base<//>`}` },
  { head: "seq", num: true, show: (entry) => count(entry.seq) },
  { head: "rows", num: true, show: (entry) => count(entry.rows) },
  { head: "by", show: (entry) => entry.actor ?? "" },
  { head: "why", wrap: true, show: (entry) => [entry.reason, entry.detail].filter(Boolean).join(" · ") },
  { head: "batch", wrap: true, show: (entry) => entry.batch_id ?? "" },
];
