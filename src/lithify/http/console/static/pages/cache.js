// What is in memory, and which queries run.

import { html } from "/console/vendor/preact.js";
import { post } from "/console/api.js";
import { Badge, Card, Empty, Loaded, Problem, Rows, Tile, Tiles, Title, bytes, count, plural, seconds, useAction, useGet } from "/console/parts.js";

export function Cache({ can }) {
  const stats = useGet("/v1/query/cache/stats", null, 5);
  const running = useGet("/v1/query/running", null, 2);
  const act = useAction(async (what, table) => {
    await post(`/v1/query/cache/${what}`, { table });
    await stats.again();
  });
  const cancel = useAction(async (id) => {
    await post(`/v1/query/${encodeURIComponent(id)}/cancel`);
    await running.again();
  });
  const share = (hits, misses) => (hits + misses ? `${Math.round((100 * hits) / (hits + misses))} %` : "–");
  const hot = [
    { head: "table", label: true, show: (row) => html`<a href=${`#/table/${encodeURIComponent(row.table)}`}>${row.table}</a> ${row.pinned && html`<${Badge} tone="on">pinned<//>`}` },
    { head: "rows", num: true, show: (row) => count(row.rows) },
    { head: "memory", num: true, show: (row) => bytes(row.bytes) },
    { head: "columns", num: true, show: (row) => count(row.columns.length) },
    { head: "up to seq", num: true, show: (row) => count(row.seq) },
    { head: "loaded", num: true, show: (row) => `${seconds(row.age_s)} ago` },
    { head: "queries served", num: true, show: (row) => count(row.hits) },
    { head: html`<span class="hidden">actions</span>`, show: (row) => can.may("maintain", row.table) && html`<span class="row end"><button class="plain" aria-label=${`${row.pinned ? "Unpin" : "Pin"} ${row.table}`} onClick=${() => act.run(row.pinned ? "unpin" : "pin", row.table)}>${row.pinned ? "Unpin" : "Pin"}</button><button class="plain" aria-label=${`Evict ${row.table}`} onClick=${() => act.run("evict", row.table)}>Evict</button></span>` },
  ];
  const queries = [
    { head: "query", label: true, show: (row) => html`<code>${row.id}</code>` },
    { head: "asks", wrap: true, show: (row) => html`<code>${row.sql}</code>` },
    { head: "state", show: (row) => html`<${Badge} tone=${row.state === "running" ? "on" : ""}>${row.state}<//>` },
    { head: "for", num: true, show: (row) => seconds(row.seconds) },
    { head: html`<span class="hidden">actions</span>`, show: (row) => html`<span class="row end"><button class="plain" onClick=${() => cancel.run(row.id)}>Cancel</button></span>` },
  ];
  return html`<div class="stack">
    <${Title}>Cache and queries<//>
    ${act.error && html`<${Problem} error=${act.error} />`}${cancel.error && html`<${Problem} error=${cancel.error} />`}
    <${Loaded} from=${stats}>${(data) => html`<${Tiles}>
        <${Tile} name="Memory" value=${bytes(data.bytes)} under=${data.bytes_max ? `of ${bytes(data.bytes_max)}` : "the cache is off"} />
        <${Tile} name="Tables in memory" value=${count(data.tables.length)} under=${`${count(data.tables.filter((table) => table.pinned).length)} pinned`} />
        <${Tile} name="Read from memory" value=${share(data.hits, data.misses)} under=${`${count(data.hits)} of ${count(data.hits + data.misses)}`} />
        <${Tile} name="Loads" value=${count(data.loads)} under=${`${count(data.refreshes)} refreshes, ${count(data.evictions)} evictions`} />
        <${Tile} name="Kept answers" value=${count(data.answers.count)} under=${bytes(data.answers.bytes)} />
        <${Tile} name="Answered by them" value=${share(data.answers.hits, data.answers.misses)} under=${`${count(data.answers.hits)} of ${count(data.answers.hits + data.answers.misses)}`} />
      <//>
      <${Card} title="Tables in memory" flush><${Rows} caption="Tables in memory" columns=${hot} rows=${data.tables} keyOf=${(row) => row.table}
        empty=${html`<${Empty} title="No table is in memory">${data.bytes_max ? "What is asked for often is loaded by itself; a table's page can pin it." : "The setting cache_bytes_max is 0."}<//>`} /><//>`}<//>
    ${can.has("read") && html`<${Card} title="Queries that run or wait" sub="those of this token; for an admin all" flush><${Loaded} from=${running}>${(data) => html`<${Rows} caption="Queries that run or wait" columns=${queries} rows=${data.queries} keyOf=${(row) => row.id} empty=${html`<${Empty} title="No query runs now" />`} />`}<//><//>`}
  </div>`;
}
