// Declared pipelines and streams: how far behind each of them is, what its runs did, and a run on request.

import { html, useState } from "/console/vendor/preact.js";
import { post } from "/console/api.js";
import { StepGraph } from "/console/step_graph.js";
import { Badge, Card, Confirm, Empty, Facts, Loaded, Outcome, Problem, Rows, Tile, Tiles, Title, count, moment, plural, seconds, useAction, useGet } from "/console/parts.js";

const REFRESH_S = 5;
const RUNS = 30;
const path = (name) => `/v1/pipelines/${encodeURIComponent(name)}`;
const tableLink = (name) => html`<a href=${`#/table/${encodeURIComponent(name)}`}>${name}</a>`;
const STATES = { running: "on", failing: "bad", waiting: "good" };

/** Seqs of a table, or files of a folder: how much has not been read yet. */
const behind = (of) => {
  if (of.lag === null && of.files === null) return "–";
  return [of.lag === null ? null : plural(of.lag, "seq"), of.files === null ? null : plural(of.files, "file")].filter(Boolean).join(", ");
};

export function Pipelines({ can, path: [name] }) {
  return name ? html`<${One} key=${name} name=${name} can=${can} />` : html`<${All} />`;
}

function All() {
  const found = useGet("/v1/pipelines", { limit: 1000 }, REFRESH_S);
  const empty = html`<${Empty} title="No pipelines are declared">Pipelines and streams are written into the settings of the lake: [[pipelines.name.steps]] and [streams.name].<//>`;
  return html`<div class="stack"><${Title}>Pipelines<//>
    <${Loaded} from=${found}>${(data) => html`
      ${data.pipelines.length > 0 && html`<${Tiles}>
        <${Tile} name="Declared" value=${count(data.pipelines.length)} under=${plural(data.pipelines.filter((each) => each.here).length, "runs here by itself", "run here by themselves")} />
        <${Tile} name="Running" value=${count(data.pipelines.filter((each) => each.state === "running").length)} />
        <${Tile} name="Failing" value=${count(data.pipelines.filter((each) => each.state === "failing").length)} tone=${data.pipelines.some((each) => each.state === "failing") ? "bad" : ""} />
        <${Tile} name="Furthest behind" value=${plural(Math.max(0, ...data.pipelines.map((each) => each.lag ?? 0)), "seq")} />
      <//>`}
      <${Card} title="Pipelines and streams" flush><${Rows} caption="Pipelines and streams" columns=${COLUMNS} rows=${data.pipelines} keyOf=${(each) => each.pipeline} empty=${empty} /><//>`}<//></div>`;
}

const COLUMNS = [
  { head: "name", label: true, show: (each) => html`<a href=${`#/pipelines/${encodeURIComponent(each.pipeline)}`}>${each.pipeline}</a>` },
  { head: "kind", show: (each) => each.kind },
  { head: "state", show: (each) => html`<${Badge} tone=${STATES[each.state]}>${each.state}<//>` },
  { head: "runs", show: (each) => each.schedule ?? "on request" },
  { head: "behind", num: true, show: behind },
  { head: "last run (UTC)", show: (each) => html`<span class="nowrap">${each.last ? moment(each.last.started_ms) : "–"}</span>` },
  { head: "outcome", show: (each) => (each.last ? html`<${Outcome} of=${each.last.outcome} />` : "–") },
  { head: "next run (UTC)", show: (each) => html`<span class="nowrap">${moment(each.next_ms)}</span>` },
  { head: "error", wrap: true, show: (each) => html`<span class=${each.error ? "bad" : ""}>${each.error ?? ""}</span>` },
];

function One({ name, can }) {
  const status = useGet(path(name), null, REFRESH_S);
  const runs = useGet(`${path(name)}/runs`, { limit: RUNS }, REFRESH_S);
  const refresh = () => [status, runs].forEach((each) => each.again());
  const writes = status.data !== null && status.data.steps.every((step) => can.may("write", step.target));
  return html`<div class="stack">
    <${Title} aside=${writes && html`<${Run} name=${name} busy=${status.data.state === "running"} onDone=${refresh} />`}>${name}<//>
    <${Loaded} from=${status}>${(data) => html`
      ${data.error && html`<div class="problem"><strong>${data.failures ? `The last ${data.failures === 1 ? "run" : `${count(data.failures)} runs`} failed` : "It cannot be looked at"}</strong><p>${data.error}</p></div>`}
      <${Card} title="State"><${State} of=${data} /><//>
      ${data.steps.length > 0 && html`<${Card} title="Steps" sub="from what they read to what they keep"><${StepGraph} steps=${data.steps} /><//>
        <${Card} title="How far each step is" flush><${Rows} caption="Steps" columns=${STEPS} rows=${data.steps} keyOf=${(step) => step.step} /><//>`}`}<//>
    <${Loaded} from=${runs}>${(data) => html`<${Card} title="Runs" sub="that had something to do" flush>
      <${Rows} tall caption="Runs, newest first" columns=${RUN} rows=${data.runs} keyOf=${(run) => run.run} empty=${html`<${Empty} title="It has not run yet">Runs that found nothing to do are not kept.<//>`} /><//>
      ${data.runs.length > 0 && html`<${Card} title="Their steps" flush><${Rows} tall caption="Steps of these runs, newest first" columns=${DONE} rows=${data.runs.flatMap((run) => run.steps.map((step) => ({ ...step, started_ms: run.started_ms, run: run.run })))} keyOf=${(step) => `${step.run} ${step.step}`} /><//>`}`}<//>
  </div>`;
}

function State({ of }) {
  return html`<${Facts} of=${[
    ["State", html`<${Badge} tone=${STATES[of.state]}>${of.state}<//> ${of.running_by ? `by ${of.running_by}` : ""}`],
    ["Runs", `${of.schedule ?? "on request"}${of.schedule && !of.here ? ", not in this service" : ""}`],
    ["Next run", of.next_ms === null ? (of.on && of.here ? "with the next change" : "–") : `${moment(of.next_ms)} UTC`],
    ["Behind", behind(of)],
    ["Last run", of.last ? html`${moment(of.last.started_ms)} UTC, ${seconds(of.last.seconds)}: <${Outcome} of=${of.last.outcome} />` : "none yet"],
    ["Last success", of.succeeded_ms === null ? "–" : `${moment(of.succeeded_ms)} UTC`],
  ]} />`;
}

const STEPS = [
  { head: "step", label: true, show: (step) => step.step },
  { head: "kind", show: (step) => step.kind },
  { head: "reads", wrap: true, show: (step) => (step.table ? tableLink(step.table) : step.source) },
  { head: "keeps", show: (step) => tableLink(step.target) },
  { head: "up to seq", num: true, show: (step) => count(step.since) },
  { head: "newest seq", num: true, show: (step) => count(step.until) },
  { head: "behind", num: true, show: behind },
  { head: "now", wrap: true, show: (step) => step.why },
  { head: "expects", wrap: true, show: (step) => step.expectations.map((each) => html`<div>${each}</div>`) },
];
const RUN = [
  { head: "began (UTC)", label: true, show: (run) => html`<span class="nowrap">${moment(run.started_ms)}</span>` },
  { head: "outcome", show: (run) => html`<${Outcome} of=${run.outcome} />` },
  { head: "took", num: true, show: (run) => seconds(run.seconds) },
  { head: "read", num: true, show: (run) => count(sum(run, "read")) },
  { head: "wrote", num: true, show: (run) => count(sum(run, "written")) },
  { head: "deleted", num: true, show: (run) => count(sum(run, "deleted")) },
  { head: "set aside", num: true, show: (run) => count(sum(run, "quarantined")) },
  { head: "why it failed", wrap: true, show: (run) => run.reason ?? "" },
];
const sum = (run, name) => run.steps.reduce((total, step) => total + step[name], 0);
const DONE = [
  { head: "began (UTC)", show: (step) => html`<span class="nowrap">${moment(step.started_ms)}</span>` },
  { head: "step", label: true, show: (step) => step.step },
  { head: "outcome", show: (step) => html`<${Outcome} of=${step.outcome} />` },
  { head: "from seq", num: true, show: (step) => count(step.since) },
  { head: "to seq", num: true, show: (step) => count(step.until) },
  { head: "files", num: true, show: (step) => count(step.files) },
  { head: "wrote", num: true, show: (step) => count(step.written) },
  { head: "set aside", num: true, show: (step) => (step.quarantined ? html`<a href=${`#/table/${encodeURIComponent(step.target)}/quarantine`}>${count(step.quarantined)}</a>` : "0") },
  { head: "does not hold", wrap: true, show: (step) => Object.entries(step.warned).map(([name, rows]) => html`<div>${name}: ${plural(rows, "row")}</div>`) },
  { head: "why", wrap: true, show: (step) => step.why },
];

function Run({ name, busy, onDone }) {
  const [begun, setBegun] = useState(false);
  const look = useAction(async () => post(`${path(name)}/run`, { dry_run: true }));
  return html`<div class="row">${begun && html`<span class="muted" role="status">The run has begun.</span>`}
      <button class="main" disabled=${busy || look.busy} onClick=${() => look.run()}>${look.busy ? "Looking …" : "Run …"}</button></div>
    ${look.error && html`<${Problem} error=${look.error} />`}
    ${look.done && html`<${Confirm} title=${`Run ${name}`} verb="Run it" act=${() => post(`${path(name)}/run`, {})} onDone=${() => { setBegun(true); onDone(); }} onClose=${look.clear}>
      <${Plan} of=${look.done.plan} /><//>`}`;
}

function Plan({ of }) {
  if (of.steps.every((step) => step.does === "nothing")) return html`<p>There is nothing to do: ${of.steps.map((step) => step.why).filter((why, number, all) => all.indexOf(why) === number).join("; ")}.</p>`;
  return html`<${Rows} caption="What would be done" columns=${PLANNED} rows=${of.steps} keyOf=${(step) => step.step} />`;
}

const PLANNED = [
  { head: "step", label: true, show: (step) => step.step },
  { head: "does", show: (step) => step.does },
  { head: "changed", num: true, show: (step) => count(step.changed) },
  { head: "why", wrap: true, show: (step) => step.why },
  { head: "keeps", show: (step) => `${step.target}${step.creates ? " (new)" : ""}` },
];
