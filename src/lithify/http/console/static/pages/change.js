// Changing a table: its options, and its columns. What a change would do is shown first.

import { html, useState } from "/console/vendor/preact.js";
import { post, put, tablePath } from "/console/api.js";
import { Badge, Card, Confirm, Empty, Facts, Loaded, Problem, Rows, bytes, plural, useAction, useGet } from "/console/parts.js";

// What may delete rows or versions for good.
const DANGEROUS = /^(expires|missing_columns|.*retain.*)$/;
const ABOUT_ROWS = ["expires", "missing_columns"];

const text = (value) => (value === null || (Array.isArray(value) && !value.length) ? html`<span class="muted">none</span>` : typeof value === "object" ? JSON.stringify(value) : String(value));
const typed = (value) => (value === null ? "" : Array.isArray(value) && value.every((each) => typeof each === "string") ? value.join(", ") : typeof value === "object" ? JSON.stringify(value) : String(value));

export function Options({ name, can, again }) {
  const options = useGet(`${tablePath(name)}/options`);
  const [changing, setChanging] = useState(null);
  const may = (option) => can.may("write", name) || (can.may("maintain", name) && !ABOUT_ROWS.includes(option));
  const done = () => {
    options.again();
    again();
  };
  const columns = [
    { head: "option", label: true, show: (option) => html`<code>${option.name}</code>` },
    { head: "value", show: (option) => html`${text(option.value)} ${option.own && html`<${Badge} tone="on">set here<//>`}` },
    { head: "what it does", wrap: true, show: (option) => html`<span class="muted">${option.help}</span>` },
    { head: html`<span class="hidden">actions</span>`, show: (option) => may(option.name) && option.name !== "tiers" && html`<button class="plain" aria-label=${`Change ${option.name}`} onClick=${() => setChanging(option)}>Change</button>` },
  ];
  return html`<${Card} title="Options" sub="with the values that hold" flush><${Loaded} from=${options}>${(data) => html`<${Rows} caption="Options" columns=${columns} rows=${[...data.options].sort((a, b) => b.own - a.own || a.name.localeCompare(b.name))} keyOf=${(option) => option.name} empty=${html`<${Empty} title="No option" />`} />`}<//><//>
    ${changing && html`<${ChangeOption} name=${name} option=${changing} onDone=${done} onClose=${() => setChanging(null)} />`}`;
}

function ChangeOption({ name, option, onDone, onClose }) {
  const [value, setValue] = useState(typed(option.value));
  const wanted = value.trim() === "" ? null : value;
  return html`<${Confirm} title=${`Change ${option.name} of ${name}`} verb=${wanted === null ? "Back to the default" : "Set it"} danger=${DANGEROUS.test(option.name)} word=${DANGEROUS.test(option.name) ? name : null}
    act=${() => put(`${tablePath(name)}/options`, { options: { [option.name]: wanted } })} onDone=${onDone} onClose=${onClose}>
    <p>${option.help}</p>
    <${Facts} of=${[["Takes", option.allowed], ["Now", text(option.value)], ["Default", text(option.default)]]} />
    <label class="above">New value, empty for the default<input value=${value} onInput=${(event) => setValue(event.target.value)} autocomplete="off" spellcheck=${false} /></label><//>`;
}

// -- columns

const CHANGES = { add: "Add a column", rename: "Rename a column", widen: "Widen the type of a column", drop: "Drop a column" };

/** Buttons for what a token may change: the change is tried first, and asked for once it is known what it does. */
export function ColumnWork({ table, name, onDone }) {
  const [change, setChange] = useState(null);
  return html`<div class="row">${Object.entries(CHANGES).map(([kind, said]) => html`<button onClick=${() => setChange(kind)}>${said.split(" ")[0]} …</button>`)}</div>
    ${change && html`<${ChangeColumn} key=${change} change=${change} table=${table} name=${name} onDone=${onDone} onClose=${() => setChange(null)} />`}`;
}

function ChangeColumn({ change, table, name, onDone, onClose }) {
  const [column, setColumn] = useState(change === "add" ? "" : table.columns.find((each) => !table.key.includes(each.name))?.name ?? "");
  const [to, setTo] = useState("");
  const [type, setType] = useState(change === "add" ? "string" : "int64");
  const order = { change, column, ...(change === "rename" ? { to } : {}), ...(change === "add" || change === "widen" ? { type } : {}) };
  const send = (dry_run) => post(`${tablePath(name)}/columns`, { ...order, dry_run });
  const look = useAction(() => send(true));
  const known = (set) => (event) => {
    look.clear();
    set(event.target.value);
  };
  const act = async () => {
    if (look.done) return send(false);
    await look.run();
    throw SHOWN;
  };
  return html`<${Confirm} title=${CHANGES[change]} danger=${change === "drop"} word=${change === "drop" ? name : null} verb=${look.done ? "Do it" : "Look what it does"} act=${act} quiet=${(error) => error === SHOWN} onDone=${onDone} onClose=${onClose}>
    <div class="row">
      ${change === "add" ? html`<label class="above">Name<input value=${column} onInput=${known(setColumn)} autocomplete="off" spellcheck=${false} /></label>`
      : html`<label class="above">Column<select value=${column} onChange=${known(setColumn)}>${table.columns.map((each) => html`<option value=${each.name}>${each.name}</option>`)}</select></label>`}
      ${change === "rename" && html`<label class="above">New name<input value=${to} onInput=${known(setTo)} autocomplete="off" spellcheck=${false} /></label>`}
      ${(change === "add" || change === "widen") && html`<label class="above">Type<input value=${type} onInput=${known(setType)} autocomplete="off" spellcheck=${false} /></label>`}
    </div>
    ${look.error && html`<${Problem} error=${look.error} />`}
    ${look.done && html`<${Facts} of=${[["Columns then", look.done.columns.map((each) => `${each.name} ${each.type}`).join(", ")], ["Base", look.done.rewritten_files ? `${plural(look.done.rewritten_files, "file")} with ${bytes(look.done.rewritten_bytes)} written anew, pending changes folded before` : "no file is written for it"]]} />`}<//>`;
}

// Not a failure: the dialog stays, with what was found.
const SHOWN = Object.assign(new Error("shown"), { quiet: true });
