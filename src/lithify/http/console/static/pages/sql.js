// SQL: an editor, the rows of an answer, and what a query reads.

import { html, useEffect, useRef, useState } from "/console/vendor/preact.js";
import { download, get, post } from "/console/api.js";
import { Badge, Card, Empty, Facts, Problem, Title, bytes, count, plural, seconds, useData } from "/console/parts.js";
import { GroupCells } from "/console/charts.js";
import { Grid, handed, quoted } from "/console/pages/table.js";

const ROWS_MAX = 1000;
const FORMATS = { CSV: ["text/csv", "csv"], NDJSON: ["application/x-ndjson", "ndjson"], Arrow: ["application/vnd.apache.arrow.stream", "arrows"] };
// What was typed and answered last, while the page is open: not in the address, and not in any storage.
const kept = { sql: "", asOf: "", answer: null, plan: null };

export function Sql() {
  if (handed.sql !== null) {
    Object.assign(kept, { sql: handed.sql, answer: null, plan: null });
    handed.sql = null;
  }
  const [sql, setSql] = useState(kept.sql);
  // Counts what was put into the editor from outside of it.
  const [put, setPut] = useState(0);
  const pick = (text) => {
    setSql(text);
    setPut((before) => before + 1);
  };
  const [asOf, setAsOf] = useState(kept.asOf);
  const [state, setState] = useState({ busy: null, error: null, answer: kept.answer, plan: kept.plan });
  const running = useRef(null);
  // Of many tables the columns of some and the names of all: to know columns, a table has to be opened.
  const schema = useData(async (signal) => {
    const [known, { tables: names }] = await Promise.all([get("/v1/schema", { limit: 100 }, signal), get("/v1/tables", null, signal)]);
    const columns = new Map(known.tables.map((table) => [table.table, table.columns]));
    return { tables: names.map((table) => ({ table, columns: columns.get(table) ?? [] })) };
  }, []);
  kept.sql = sql;
  kept.asOf = asOf;
  useEffect(() => () => running.current?.abort.abort(), []);

  const ask = (text) => ({ sql: text ?? sql, ...(asOf.trim() ? { as_of: /^\d+$/.test(asOf.trim()) ? Number(asOf) : asOf.trim() } : {}) });
  const begin = async (busy, work) => {
    if (running.current) return;
    const mine = (running.current = { id: `console-${crypto.getRandomValues(new Uint32Array(2)).join("-")}`, abort: new AbortController() });
    setState((before) => ({ ...before, busy, error: null }));
    try {
      const found = await work(mine);
      Object.assign(kept, found);
      setState((before) => ({ ...before, busy: null, ...found }));
    } catch (error) {
      setState((before) => ({ ...before, busy: null, error: error.name === "AbortError" ? null : error }));
    } finally {
      running.current = null;
    }
  };
  const run = (text) => begin("run", async ({ id, abort }) => ({ answer: await post("/v1/query/sql", { ...ask(text), id, rows_max: ROWS_MAX }, { signal: abort.signal }), plan: null }));
  const explain = () => begin("explain", async ({ abort }) => ({ plan: await post("/v1/query/explain", ask(), { signal: abort.signal }) }));
  const cancel = () => post(`/v1/query/${running.current?.id}/cancel`).catch(() => running.current?.abort.abort());
  const save = (format) => begin("download", async ({ abort }) => {
    const [accept, suffix] = FORMATS[format];
    const blob = await download("/v1/query/sql", ask(), accept, abort.signal);
    const link = Object.assign(document.createElement("a"), { href: URL.createObjectURL(blob), download: `answer.${suffix}` });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
    return {};
  });
  const { busy, error, answer, plan } = state;
  const empty = !sql.trim();
  return html`<div class="stack"><${Title} focus=${false}>SQL<//>
    <${Editor} value=${sql} put=${put} onInput=${setSql} onRun=${run} schema=${schema.data} />
    <div class="row"><button class="main" disabled=${busy !== null || empty} onClick=${() => run()}>${busy === "run" ? "Running …" : "Run"}</button>
      <button disabled=${busy !== null || empty} onClick=${explain}>Explain</button>
      <button disabled=${busy !== "run"} onClick=${cancel}>Cancel</button>
      <label>as of <input value=${asOf} onInput=${(event) => setAsOf(event.target.value)} placeholder="now: a seq, time or tag" size="22" autocomplete="off" /></label>
      <span class="grow"></span>
      <span class="row" role="group" aria-label="Download the answer"><span class="muted">Download</span>${Object.keys(FORMATS).map((format) => html`<button class="plain" disabled=${busy !== null || empty} onClick=${() => save(format)}>${format}</button>`)}</span></div>
    <p class="muted">One SELECT; Ctrl+Enter runs it. Every table is read fresh, pending changes included.</p>
    ${error && html`<${Problem} error=${error} title=${error.code === "invalid_request" ? "The query cannot be run" : undefined} />`}
    ${plan && html`<${Plan} of=${plan} />`}
    ${answer && html`<${Answer} of=${answer} />`}
    ${!answer && !plan && !error && html`<${Start} schema=${schema.data} onPick=${pick} />`}
  </div>`;
}

function Start({ schema, onPick }) {
  if (!schema) return null;
  if (!schema.tables.length) return html`<${Card}><${Empty} title="There is no table to ask">Create one first.<//><//>`;
  return html`<${Card} title="Tables to ask"><div class="row">${schema.tables.slice(0, 24).map((table) => html`<button onClick=${() => onPick(`select *\nfrom ${table.table.split(".").map(quoted).join(".")}\nlimit 100`)}>${table.table}</button>`)}</div><//>`;
}

const SOURCES = { answer: "kept from an earlier query", hot: "from memory", files: "read from files" };

function Answer({ of }) {
  const seen = Object.entries(of.snapshots).map(([table, seq]) => `${table} at seq ${count(seq)}`).join(", ");
  return html`<${Card} title=${plural(of.row_count, "row")} sub=${html`${seconds(of.seconds)}, ${SOURCES[of.source] ?? of.source}${seen ? `; ${seen}` : ""}`} flush aside=${of.cut && html`<${Badge} tone="warn">only the first ${count(of.row_count)}<//>`}>
    <${Grid} data=${of} caption="The answer" /><//>`;
}

function Plan({ of }) {
  if (!of.tables.length) return html`<${Card} title="What it reads"><${Empty} title="No table" /><//>`;
  return html`${of.tables.map((table) => html`<${Card} title=${`What it reads of ${table.table}`} sub=${`as of seq ${count(table.seq)}`}>
    <div class="stack tight">
      ${table.hot ? html`<p>Its rows are in memory: no file is read.</p>` : table.from_sidecar ? html`<p>The index alone answers it: no file is read.</p>` : html`<${GroupCells} table=${table} />`}
      <${Facts} of=${[
        ["Files", `${count(table.files_read)} of ${count(table.files_total)}${table.files_unknown ? `, ${count(table.files_unknown)} unknown to the index` : ""}`],
        ["Row groups", `${count(table.groups_read)} of ${count(table.groups_total)}`],
        ["Bytes", `${bytes(table.bytes_read)} of ${bytes(table.bytes_total)}`],
        ["Pending changes", table.pending_rows ? `${plural(table.pending_rows, "row")} in ${plural(table.pending_files, "file")} are merged in${table.pending_beside ? `, ${count(table.pending_beside)} stand beside base` : ""}` : "none"],
        ...(table.conditions.length ? [["Conditions", table.conditions.map((condition) => html`<div><code>${condition.text}</code> <span class="muted">rules out ${plural(condition.groups_ruled_out, "row group")}</span></div>`)]] : []),
        ...(table.note ? [["Note", table.note]] : []),
      ]} />
    </div><//>`)}`;
}

// -- the editor

/** CodeMirror inside a shadow root, where its styles are sheets and no inline text; a plain field until it is there. */
function Editor({ value, put, onInput, onRun, schema }) {
  const place = useRef(null);
  const editor = useRef(null);
  const latest = useRef({});
  latest.current = { onInput, onRun, value };
  const [ready, setReady] = useState(false);
  useEffect(() => {
    let gone = false;
    import("/console/editor.js").then(({ makeEditor }) => {
      if (gone || !place.current) return;
      editor.current = makeEditor(place.current, {
        value: latest.current.value,
        onInput: (text) => latest.current.onInput(text),
        onRun: (text) => latest.current.onRun(text),
      });
      setReady(true);
    }, () => null);
    return () => {
      gone = true;
      editor.current?.destroy();
    };
  }, []);
  // Not whenever the value changes: what is typed meanwhile would be lost.
  useEffect(() => {
    if (ready) editor.current.show(latest.current.value);
  }, [put, ready]);
  useEffect(() => {
    if (ready && schema) editor.current.complete(schema);
  }, [schema, ready]);
  const key = (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      onRun(value);
    }
  };
  return html`<div class="editor" ref=${place} hidden=${!ready}></div>
    ${!ready && html`<textarea class="code" aria-label="Query" spellcheck=${false} value=${value} onInput=${(event) => onInput(event.target.value)} onKeyDown=${key} placeholder="select …"></textarea>`}`;
}
