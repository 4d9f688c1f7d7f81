// Maintenance of the lake: what runs, what would run, what ran, and a cycle on demand.

import { html, useEffect, useRef, useState } from "/console/vendor/preact.js";
import { get, post } from "/console/api.js";
import { Badge, Card, Confirm, Empty, Facts, Loaded, Outcome, Problem, Rows, Title, bytes, count, moment, plural, seconds, short, useAction, useData, useEvents, useGet } from "/console/parts.js";

const REFRESH_S = 10;
// While a job runs, how far it is changes without an event.
const WATCH_MS = 1000;
const EVENTS_MAX = 100;
const tableLink = (name) => html`<a href=${`#/table/${encodeURIComponent(name)}`}>${name}</a>`;

// To see what is due, the logs of every table are looked at: on a large lake only if somebody asks for it.
const LOOKED_AT_MAX = 100;

export function Maintenance({ can }) {
  const [asked, setAsked] = useState(false);
  const tables = useGet("/v1/maintenance/stats", { limit: 1, age_s_max: 60 }).data?.tables_total;
  const look = asked || tables <= LOOKED_AT_MAX;
  const status = useGet("/v1/maintenance/status", null, REFRESH_S);
  const jobs = useGet("/v1/maintenance/jobs", { limit: 100 }, REFRESH_S);
  const history = useGet("/v1/maintenance/history", { limit: 30 }, REFRESH_S);
  const candidates = useData((signal) => (look ? get("/v1/maintenance/candidates", { limit: 100 }, signal) : { unasked: true }), [look]);
  const refresh = () => [status, jobs, history, candidates].forEach((each) => each.again());
  const [ending, setEnding] = useState(null);
  const events = useLive((event) => {
    jobs.again();
    if (event !== "job started") [status, history].forEach((each) => each.again());
  });
  const busy = jobs.data?.jobs.length > 0;
  useEffect(() => {
    if (!busy) return undefined;
    const timer = setInterval(() => document.visibilityState === "visible" && jobs.again(), WATCH_MS);
    return () => clearInterval(timer);
  }, [busy]);
  return html`<div class="stack">
    <${Title} aside=${can.has("maintain") && html`<${Trigger} onDone=${refresh} />`}>Maintenance<//>
    <div class="two">
      <${Card} title="State"><${Loaded} from=${status}>${(data) => html`<${Status} of=${data} can=${can} onEnd=${setEnding} />`}<//><//>
      <${Card} title="Jobs under way" flush><${Loaded} from=${jobs}>${(data) => html`<${Rows} caption="Jobs under way" columns=${running(can, setEnding)} rows=${data.jobs} keyOf=${(job) => job.id}
        empty=${html`<${Empty} title=${data.cycle ? "The cycle looks at what is due" : "No job runs now"}>${data.cycle ? `since ${data.cycle.since}` : "Cycles start them when something is due."}<//>`} />`}<//><//>
    </div>
    ${status.data && html`<${HeldBack} of=${status.data} />`}
    <${Card} title="What a cycle would do now" flush aside=${html`<button class="plain" onClick=${() => (look ? candidates.again() : setAsked(true))}>${look ? "Look again" : "Look"}</button>`}>
      <${Loaded} from=${candidates}>${(data) => data.unasked ? html`<${Empty} title=${tables === undefined ? "Looking …" : `There are ${plural(tables, "table")}`}>To see what is due, the logs of all of them are looked at, which takes a while.<//>` : html`<${Rows} caption="Jobs that a cycle would run" columns=${CANDIDATES} rows=${data.candidates} empty=${html`<${Empty} title="Nothing is due">Tables are folded and compacted as far as their options ask for it.<//>`} />
        ${data.more && html`<p class="muted body">There are more.</p>`}
        ${data.skipped.length > 0 && html`<${Rows} caption="Tables that are held back" columns=${SKIPPED} rows=${data.skipped} />`}`}<//>
    <//>
    <${Loaded} from=${history}>${(data) => html`
      <${Card} title="Jobs that ended" flush><${Rows} tall caption="Jobs that ended, newest first" columns=${ENDED} rows=${data.jobs} keyOf=${(job) => job.id} empty=${html`<${Empty} title="No job has ended yet" />`} /><//>
      <${Card} title="Cycles" flush><${Rows} tall caption="Cycles that ended, newest first" columns=${CYCLES} rows=${data.cycles} keyOf=${(cycle) => cycle.cycle} empty=${html`<${Empty} title="No cycle has ended yet" />`} /><//>`}<//>
    <${Card} title="What happened a moment ago" flush sub="live"><${Rows} tall caption="What happened a moment ago, newest first" columns=${EVENTS} rows=${events} keyOf=${(event) => event.id} empty=${html`<${Empty} title="Nothing has happened yet">Writes, folds, jobs and cycles appear here as they happen.<//>`} /><//>
    ${ending && html`<${Confirm} title=${`End ${ending.said}`} verb="End it" danger act=${() => post(`/v1/maintenance/jobs/${encodeURIComponent(ending.id)}/cancel`)} onDone=${refresh} onClose=${() => setEnding(null)}>
      <p>${ending.cycle ? "It starts nothing more, and its jobs end at their next step." : "It ends at its next step."} What it has staged goes, what is committed stays; the next cycle does it again if it is still due.</p><//>`}
  </div>`;
}

function Trigger({ onDone }) {
  const [asking, setAsking] = useState(false);
  const [begun, setBegun] = useState(null);
  return html`<span class="row">${begun && html`<span class="muted" role="status">A cycle has begun on ${plural(begun.tables, "table")}.</span>`}
    <button class="main" onClick=${() => setAsking(true)}>Run a cycle now</button></span>
    ${asking && html`<${Confirm} title="Run a cycle now" verb="Run it" act=${() => post("/v1/maintenance/trigger")} onDone=${(done) => { setBegun(done); onDone(); }} onClose=${() => setAsking(false)}>
      <p>It does whatever is due on all tables that this token may maintain, as listed under “What a cycle would do now”. Reads and writes go on meanwhile.</p><//>`}`;
}

/** The newest events first; calls `told(name)` at most twice a second. */
function useLive(told) {
  const [events, setEvents] = useState([]);
  const timer = useRef(0);
  const soon = (name) => {
    if (timer.current) return;
    timer.current = setTimeout(() => {
      timer.current = 0;
      told(name);
    }, 500);
  };
  const add = (...more) => setEvents((before) => [...more, ...before.filter((old) => more.every((event) => event.id !== old.id))].slice(0, EVENTS_MAX));
  useEffect(() => {
    get("/v1/events", { limit: EVENTS_MAX }).then((page) => setEvents((live) => [...live, ...page.events.reverse().filter((old) => live.every((event) => event.id !== old.id))].slice(0, EVENTS_MAX)), () => null);
    return () => clearTimeout(timer.current);
  }, []);
  useEvents((event) => {
    if (event.event !== "gap") add(event);
    soon(event.event);
  });
  return events;
}

/** Work that failed and waits, and what the last cycle left alone. */
function HeldBack({ of }) {
  const last = of.last_cycle;
  const rows = [
    ...(of.idle_because ? [{ table: null, what: "everything", why: of.idle_because, bad: true }] : []),
    ...(last?.waiting ?? []).map((each) => ({ table: each.table, what: each.kind, why: `failed ${plural(each.failures, "time")}, ${each.turns_left ? `waits ${plural(each.turns_left, "more cycle")}` : "is tried again by the next cycle"}: ${each.reason}`, bad: true })),
    ...(last?.skipped ?? []).filter((each) => each.damaged || last.waiting.every((waits) => waits.table !== each.table)).map((each) => ({ table: each.table, what: each.damaged ? "the whole table" : "", why: each.why, bad: each.damaged })),
    ...(last?.not_started ? [{ table: null, what: plural(last.not_started, "job"), why: `the last cycle ended before ${last.not_started === 1 ? "it" : "they"} began: ${last.stopped ?? ""}`, bad: false }] : []),
  ];
  if (!rows.length) return null;
  return html`<${Card} title="Held back" flush><${Rows} caption="Work that is held back, and why" columns=${HELD} rows=${rows} /><//>`;
}

const HELD = [
  { head: "table", label: true, show: (entry) => (entry.table ? tableLink(entry.table) : "all") },
  { head: "what", show: (entry) => entry.what },
  { head: "why", wrap: true, show: (entry) => html`<span class=${entry.bad ? "bad" : ""}>${entry.why}</span>` },
];

function Status({ of, can, onEnd }) {
  const last = of.last_cycle;
  const tiers = of.tiers.filter((tier) => tier.enabled);
  const runs = !of.scheduled ? html`<${Badge}>not in this service<//> another process may run them` : of.idle_because ? html`<${Badge} tone="warn">idle<//> ${of.idle_because}` : html`<${Badge} tone="good">by itself<//> looks every ${seconds(of.policy_interval_s)}`;
  return html`<${Facts} of=${[
    ["Cycles run", runs],
    ["Now", of.cycle ? html`<${Badge} tone="on">${of.cycle.what}<//> by ${of.cycle.owner} since ${of.cycle.since} ${can.has("maintain") && html`<button class="plain" onClick=${() => onEnd({ id: of.cycle.cycle, said: "the cycle", cycle: true })}>End it</button>`}` : "no cycle"],
    ["Last cycle", last ? html`${moment(last.started_ms)}, ${seconds(last.seconds)}: ${plural(last.done, "job")} done${last.failed ? html`, <span class="bad">${count(last.failed)} failed</span>` : ""}` : "none yet"],
    ["Tiers", tiers.length ? tiers.map((tier) => html`<div><strong>${tier.name}</strong> <span class="muted">windows of one ${tier.window}, ${tier.cron} UTC, files of ${bytes(tier.target_bytes)}</span></div>`) : "none is on"],
    ["Spark worker", of.worker === null ? "somebody else's" : of.worker.alive ? `${bytes(of.worker.memory_bytes)}, ${plural(of.worker.orders, "job")}` : "starts when it is needed"],
    ["Asked for by name", of.asked.length ? of.asked.map((each) => `${each.kind} ${each.table}`).join(", ") : "nothing"],
  ]} />`;
}

const share = (job) => {
  for (const what of ["rows", "bytes", "files"]) {
    const total = job[`${what}_total`];
    if (total) return job[`${what}_done`] / total;
  }
  return null;
};

function Done({ of }) {
  const part = share(of);
  if (of.cancelled) return html`<${Badge} tone="warn">ends<//>`;
  if (part === null) return html`<span class="muted">–</span>`;
  const said = of.files_total ? `${count(of.files_done)} of ${plural(of.files_total, "file")}, ${bytes(of.bytes_done)} of ${bytes(of.bytes_total)}` : "";
  return html`<span class="nowrap" title=${said}><progress max="1" value=${part} aria-label=${`${of.kind} of ${of.table}`}></progress> ${Math.floor(100 * part)} %</span><div class="muted nowrap">${of.rows_total ? `${short(of.rows_done)} of ${short(of.rows_total)} rows` : said}</div>`;
}

const EVENTS = [
  { head: "time (UTC)", show: (event) => html`<span class="nowrap">${moment(event.time_ms)}</span>` },
  { head: "what", label: true, show: (event) => event.event },
  { head: "table", show: (event) => (event.table ? tableLink(event.table) : "") },
  { head: "more", wrap: true, show: ({ facts }) => [facts.kind, facts.outcome, facts.why, facts.what, facts.seq !== undefined && `seq ${count(facts.seq)}`, facts.rows !== undefined && plural(facts.rows, "row"), facts.pending_rows !== undefined && plural(facts.pending_rows, "pending row"), facts.done !== undefined && `${plural(facts.done, "job")} done`].filter(Boolean).join(" · ") },
];
const running = (can, onEnd) => RUNNING.map((column) => (column.head !== "done" ? column : {
  ...column,
  show: (job) => html`${column.show(job)}${job.alive && !job.cancelled && job.state === "writing" && can.may("maintain", job.table) && html`<button class="plain" aria-label=${`End ${job.kind} of ${job.table}`} onClick=${() => onEnd({ id: job.id, said: `${job.kind} of ${job.table}` })}>End</button>`}`,
}));
const RUNNING = [
  { head: "table", label: true, show: (job) => tableLink(job.table) },
  { head: "job", show: (job) => html`${job.kind} <${Badge} tone=${job.alive ? "on" : "warn"}>${job.alive ? job.state : "its process is gone"}<//>` },
  { head: "done", show: (job) => html`<${Done} of=${job} />` },
  { head: "for", num: true, show: (job) => seconds(job.age_s) },
  { head: "why", wrap: true, show: (job) => job.why },
];
const CANDIDATES = [
  { head: "table", label: true, show: (job) => tableLink(job.table) },
  { head: "job", show: (job) => `${job.tier ?? job.kind}${job.batches > 1 ? ` ${job.batch}/${job.batches}` : ""}` },
  { head: "files", num: true, show: (job) => count(job.files) },
  { head: "reads", num: true, show: (job) => bytes(job.bytes_in) },
  { head: "writes", num: true, show: (job) => bytes(job.bytes_out) },
  { head: "why", wrap: true, show: (job) => job.why },
  { head: "gain", wrap: true, show: (job) => job.gain },
];
const SKIPPED = [
  { head: "held back", label: true, show: (entry) => tableLink(entry.table) },
  { head: "why", wrap: true, show: (entry) => html`<span class=${entry.damaged ? "bad" : ""}>${entry.why}</span>` },
];
const ENDED = [
  { head: "ended (UTC)", show: (job) => html`<span class="nowrap">${moment(job.ended_ms)}</span>` },
  { head: "table", label: true, show: (job) => tableLink(job.table) },
  { head: "job", show: (job) => job.kind },
  { head: "outcome", show: (job) => html`<${Outcome} of=${job.outcome} />` },
  { head: "took", num: true, show: (job) => (job.started_ms && job.ended_ms ? seconds((job.ended_ms - job.started_ms) / 1000) : "–") },
  { head: "read", num: true, show: (job) => bytes(job.bytes_in) },
  { head: "wrote", num: true, show: (job) => bytes(job.bytes_out) },
  { head: "why", wrap: true, show: (job) => job.reason ?? job.why ?? "" },
];
const CYCLES = [
  { head: "began (UTC)", label: true, show: (cycle) => html`<span class="nowrap">${moment(cycle.started_ms)}</span>` },
  { head: "for", show: (cycle) => cycle.what },
  { head: "took", num: true, show: (cycle) => seconds(cycle.seconds) },
  { head: "done", num: true, show: (cycle) => count(cycle.done) },
  { head: "failed", num: true, show: (cycle) => html`<span class=${cycle.failed ? "bad" : ""}>${count(cycle.failed)}</span>` },
  { head: "read", num: true, show: (cycle) => bytes(cycle.bytes_in) },
  { head: "wrote", num: true, show: (cycle) => bytes(cycle.bytes_out) },
  { head: "notes", wrap: true, show: (cycle) => [cycle.stopped, ...cycle.problems, ...cycle.recovered].filter(Boolean).join("; ") },
];

// -- one table

const WORK = {
  fold: { verb: "Fold", says: "Merges pending changes into base." },
  compact: { verb: "Compact", says: "Merges small base files into larger ones, as far as it is due." },
  optimize: { verb: "Optimize", says: "Writes base anew in z-order." },
  vacuum: { verb: "Vacuum", says: "Deletes files that no retained version needs. Versions before that cannot be read any more.", danger: true },
};

/** The work that can be asked for on one table: its dry run first. */
export function TableWork({ name, onDone }) {
  const [kind, setKind] = useState(null);
  const look = useAction(async (which) => ({ which, plan: await post(`/v1/tables/${encodeURIComponent(name)}/${which}`, { dry_run: true }) }));
  const start = (which) => {
    setKind(which);
    look.run(which);
  };
  const end = () => {
    setKind(null);
    look.clear();
  };
  const plan = look.done?.which === kind ? look.done?.plan : null;
  const work = WORK[kind];
  return html`<div class="row">${Object.entries(WORK).map(([which, { verb }]) => html`<button onClick=${() => start(which)} disabled=${look.busy}>${verb} …</button>`)}</div>
    ${look.error && html`<${Problem} error=${look.error} />`}
    ${plan && html`<${Confirm} key=${kind} title=${`${work.verb} ${name}`} verb=${work.verb} danger=${work.danger} word=${work.danger ? name : null}
      act=${() => post(`/v1/tables/${encodeURIComponent(name)}/${kind}`, { dry_run: false })} onDone=${onDone} onClose=${end}>
      <p>${work.says}</p><${Plan} of=${plan} kind=${kind} /><//>`}`;
}

function Plan({ of, kind }) {
  if (kind === "fold") return html`<${Facts} of=${[["Change files", `${count(of.change_files)} with ${plural(of.change_rows, "row")}`], ["Base files", `${count(of.files_rewritten)} written anew, ${count(of.files_linked)} linked, ${count(of.files_kept)} kept`], ["Reads", bytes(of.bytes_read)], ["Writes at most", bytes(of.bytes_written)], ["Runs", of.engine], ["Why", of.why || "–"], ["Gain", of.gain || "–"]]} />`;
  if (kind === "vacuum") return html`<${Facts} of=${[["Files that would go", count(of.files)], ["Bytes", bytes(of.bytes_freed)], ["Of them orphans", `${count(of.orphans)}, ${bytes(of.orphan_bytes)}`], ["Kept by pins and jobs", `${count(of.kept_by_pins)} and ${count(of.kept_by_jobs)}`], ["Stay readable", `versions of the last ${count(of.retain_hours)} hours`]]} />`;
  if (!of.planned.length) return html`<p>Nothing is due${of.note ? `: ${of.note}` : ""}.</p>`;
  return html`<${Rows} caption="What would be done" columns=${PLANNED} rows=${of.planned} />`;
}

const PLANNED = [
  { head: "job", label: true, show: (job) => job.origin },
  { head: "files", num: true, show: (job) => count(job.files) },
  { head: "reads", num: true, show: (job) => bytes(job.bytes_in) },
  { head: "gain", wrap: true, show: (job) => job.gain },
];
