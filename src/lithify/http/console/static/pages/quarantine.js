// Records that loads, streams and pipelines have set aside: what they are, why they are no rows, and what becomes of them.

import { html, useState } from "/console/vendor/preact.js";
import { post, tablePath } from "/console/api.js";
import { Card, Confirm, Empty, Loaded, Problem, Rows, bytes, count, moment, plural, useAction, useGet } from "/console/parts.js";

const RECORDS = 100;

export function Quarantine({ name, can, again }) {
  const sets = useGet(`${tablePath(name)}/quarantine`, null, 15);
  const [chosen, setChosen] = useState(null);
  const columns = [
    { head: "set", label: true, wrap: true, show: (set) => html`<button class="plain" aria-pressed=${set.name === chosen} onClick=${() => setChosen(set.name)}>${set.name}</button>` },
    { head: "records", num: true, show: (set) => count(set.records) },
    { head: "size", num: true, show: (set) => bytes(set.bytes) },
    { head: "set aside (UTC)", show: (set) => html`<span class="nowrap">${moment(set.created)}</span>` },
  ];
  const empty = html`<${Empty} title="Nothing was set aside">Loads, streams and pipelines put records here that do not fit, if they are told to.<//>`;
  return html`<${Loaded} from=${sets}>${(data) => html`<${Card} title="Sets" sub="a load, a batch of a stream, or a run of a step" flush>
      <${Rows} caption="Sets" columns=${columns} rows=${data.quarantine} keyOf=${(set) => set.name} empty=${empty} /><//>
    ${data.quarantine.some((set) => set.name === chosen) && html`<${Records} key=${chosen} table=${name} set=${chosen} can=${can} onDone=${() => { sets.again(); again(); }} />`}`}<//>`;
}

function Records({ table, set, can, onDone }) {
  const path = `${tablePath(table)}/quarantine/${encodeURIComponent(set)}`;
  const records = useGet(path, { limit: RECORDS });
  const [purging, setPurging] = useState(false);
  const retry = useAction(async () => {
    const done = await post(`${path}/retry`, {});
    records.again();
    onDone();
    return done;
  });
  return html`<${Loaded} from=${records}>${(data) => html`<${Card} title=${`Records of ${set}`} sub=${data.more ? `the first ${RECORDS}` : plural(data.records.length, "record")}>
      <div class="stack tight"><div class="row">
          ${can.may("write", table) && html`<button disabled=${retry.busy} onClick=${() => retry.run()}>${retry.busy ? "Working …" : "Try them again"}</button>`}
          ${can.may("maintain", table) && html`<button class="danger" onClick=${() => setPurging(true)}>Purge them</button>`}
          ${retry.done && html`<span class="muted" role="status">${plural(retry.done.written, "record")} written, ${count(retry.done.left)} left${retry.done.why ? `: ${retry.done.why}` : ""}</span>`}</div>
        ${retry.error && html`<${Problem} error=${retry.error} />`}
        <${Rows} tall caption="Records" columns=${COLUMNS} rows=${data.records} /></div><//>`}<//>
    ${purging && html`<${Confirm} title=${`Purge ${set}`} verb="Purge them" danger act=${() => post(`${tablePath(table)}/quarantine/purge`, { name: set })} onDone=${onDone} onClose=${() => setPurging(false)}>
      <p>These records are deleted. There is no way back.</p><//>`}`;
}

const COLUMNS = [
  { head: "record", label: true, wrap: true, show: (record) => html`<code>${record.record}</code>` },
  { head: "why", wrap: true, show: (record) => `${record.column === null ? "" : `${record.column}: `}${record.why}` },
  { head: "from", wrap: true, show: (record) => [record.file, record.line === null ? null : `line ${record.line}`].filter((each) => each !== null).join(", ") },
];
