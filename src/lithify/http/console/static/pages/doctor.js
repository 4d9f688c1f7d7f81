// Doctor: how the machine of the service, its libraries and the lake are.

import { html } from "/console/vendor/preact.js";
import { Badge, Card, Loaded, Rows, Title, moment, plural, seconds, useGet } from "/console/parts.js";

const TONES = { ok: "good", warn: "warn", fail: "bad" };
const SAID = { ok: "in order", warn: "look at it", fail: "does not work" };
const ORDER = ["fail", "warn", "ok"];
const CHECKS = [
  { head: "what", label: true, show: (check) => check.name },
  { head: "state", show: (check) => html`<${Badge} tone=${TONES[check.status]}>${SAID[check.status]}<//>` },
  { head: "found", wrap: true, show: (check) => check.found },
  { head: "what to do", wrap: true, show: (check) => check.advice },
];

export function Doctor() {
  const found = useGet("/v1/doctor");
  const sorted = (checks) => [...checks].sort((a, b) => ORDER.indexOf(a.status) - ORDER.indexOf(b.status));
  return html`<div class="stack"><${Title} aside=${html`<button onClick=${found.again}>Look again</button>`}>Doctor<//>
    <p class="muted">What <code>lithify doctor</code> tells, of the machine that this service runs on: libraries, disk, memory, and whether the files of each table are there.</p>
    <${Loaded} from=${found}>${(data) => html`<${Card} title=${summary(data)} flush sub=${`${moment(data.time_ms)} UTC, in ${seconds(data.seconds)}`}>
      <${Rows} caption="Checks, what needs a look first" columns=${CHECKS} rows=${sorted(data.checks)} keyOf=${(check) => check.name} /><//>`}<//>
  </div>`;
}

const summary = ({ failed, warned, checks }) => {
  if (failed) return `${plural(failed, "check")} of ${checks.length} ${failed === 1 ? "fails" : "fail"}`;
  return warned ? `${plural(warned, "check")} of ${checks.length} to look at` : `All ${checks.length} checks are in order`;
};
