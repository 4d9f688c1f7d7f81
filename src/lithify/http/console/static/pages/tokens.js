// Tokens of the lake: list, make, revoke. A secret is shown once, and only here.

import { html, useState } from "/console/vendor/preact.js";
import { post, remove } from "/console/api.js";
import { Badge, Card, Confirm, Empty, Loaded, Problem, Rows, Title, moment, useAction, useGet } from "/console/parts.js";

const SCOPES = { read: "describe and read tables, query", write: "create tables, write and delete rows", maintain: "fold, compact, vacuum, pin", admin: "all of it" };
const LIVES = [["1", "1 day"], ["30", "30 days"], ["365", "a year"], ["", "for ever"]];
const STATES = { valid: "good", expired: "", revoked: "" };

export function Tokens({ lake }) {
  const tokens = useGet("/v1/tokens", { limit: 1000 }, 15);
  const [ending, setEnding] = useState(null);
  const columns = [
    { head: "name", label: true, show: (token) => html`${token.name} ${token.id === lake.caller.id && html`<${Badge} tone="on">you<//>`}` },
    { head: "id", show: (token) => html`<code>${token.id}</code>` },
    { head: "state", show: (token) => html`<${Badge} tone=${STATES[token.state]}>${token.state}<//>` },
    { head: "scopes", show: (token) => token.scopes.join(", ") },
    { head: "tables", wrap: true, show: (token) => token.tables.join(", ") || "all" },
    { head: "made (UTC)", show: (token) => html`<span class="nowrap">${moment(token.created_at * 1000)}</span>` },
    { head: "expires (UTC)", show: (token) => html`<span class="nowrap">${token.expires_at === null ? "never" : moment(token.expires_at * 1000)}</span>` },
    { head: "last used (UTC)", show: (token) => html`<span class="nowrap">${moment(token.last_used_at === null ? null : token.last_used_at * 1000)}</span>` },
    { head: html`<span class="hidden">actions</span>`, show: (token) => token.state === "valid" && html`<button class="plain" aria-label=${`Revoke ${token.name} ${token.id}`} onClick=${() => setEnding(token)}>Revoke</button>` },
  ];
  return html`<div class="stack"><${Title}>Tokens<//>
    <${Make} onDone=${tokens.again} />
    <${Card} title="Tokens of this lake" flush><${Loaded} from=${tokens}>${(data) => html`<${Rows} caption="Tokens" columns=${columns} rows=${data.tokens} keyOf=${(token) => token.id} empty=${html`<${Empty} title="No token" />`} />`}<//><//>
    ${ending && html`<${Confirm} title=${`Revoke ${ending.name}`} verb="Revoke it" danger act=${() => remove(`/v1/tokens/${ending.id}`)} onDone=${tokens.again} onClose=${() => setEnding(null)}>
      <p>Within a second it lets nobody in any more, and never again. Queries of it that run are stopped.</p>
      ${ending.id === lake.caller.id && html`<p class="warn">It is the token of this page: you will be signed out.</p>`}<//>`}
  </div>`;
}

function Make({ onDone }) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState(["read"]);
  const [tables, setTables] = useState("");
  const [days, setDays] = useState("30");
  const make = useAction(async () => {
    const named = tables.split(/[\s,]+/).filter(Boolean);
    const made = await post("/v1/tokens", { name, scopes, tables: named, ...(days ? { expires_s: Number(days) * 86_400 } : {}) });
    setName("");
    onDone();
    return made;
  });
  const toggle = (scope) => setScopes(scopes.includes(scope) ? scopes.filter((each) => each !== scope) : [...scopes, scope]);
  return html`<${Card} title="Make a token"><form class="stack" onSubmit=${(event) => { event.preventDefault(); make.run(); }}>
    <div class="row"><label class="above">Who uses it<input value=${name} onInput=${(event) => setName(event.target.value)} required placeholder="dashboard" autocomplete="off" /></label>
      <label class="above">Tables, empty for all<input value=${tables} onInput=${(event) => setTables(event.target.value)} placeholder="shop.orders, log.*" autocomplete="off" /></label>
      <label class="above">Good for<select value=${days} onChange=${(event) => setDays(event.target.value)}>${LIVES.map(([value, said]) => html`<option value=${value}>${said}</option>`)}</select></label></div>
    <div class="row" role="group" aria-label="Scopes">${Object.entries(SCOPES).map(([scope, may]) => html`<label title=${may}><input type="checkbox" checked=${scopes.includes(scope)} onChange=${() => toggle(scope)} />${scope} <span class="muted">${may}</span></label>`)}</div>
    <div><button class="main" disabled=${make.busy || !name || !scopes.length}>Make it</button></div>
    ${make.error && html`<${Problem} error=${make.error} />`}
    ${make.done && html`<div class="told stack tight" role="status"><p>The secret of <strong>${make.done.name}</strong>, shown only now and stored nowhere:</p><pre class="plain">${make.done.secret}</pre>
      <div class="row"><button type="button" onClick=${() => navigator.clipboard?.writeText(make.done.secret)}>Copy it</button><button type="button" class="plain" onClick=${make.clear}>Hide it</button></div></div>`}
  </form><//>`;
}
