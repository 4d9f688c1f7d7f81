// The frame: signing in, the way from one page to another, and what is told on all of them.

import { html, render, useEffect, useState } from "/console/vendor/preact.js";
import { get, keptToken, listen, post, remove, signedIn, useToken } from "/console/api.js";
import { Problem } from "/console/parts.js";
import { Cache } from "/console/pages/cache.js";
import { Doctor } from "/console/pages/doctor.js";
import { Lake } from "/console/pages/lake.js";
import { Maintenance } from "/console/pages/maintenance.js";
import { Pipelines } from "/console/pages/pipelines.js";
import { OverTime } from "/console/pages/series.js";
import { Sql } from "/console/pages/sql.js";
import { Table } from "/console/pages/table.js";
import { Tokens } from "/console/pages/tokens.js";

const PAGES = [
  { at: "", name: "Lake", page: Lake, needs: ["read", "maintain"] },
  { at: "sql", name: "SQL", page: Sql, needs: ["read"] },
  { at: "maintenance", name: "Maintenance", page: Maintenance, needs: ["read", "maintain"] },
  { at: "pipelines", name: "Pipelines", page: Pipelines, needs: ["read", "maintain"] },
  { at: "time", name: "Over time", page: OverTime, needs: ["read", "maintain"], whole: true },
  { at: "cache", name: "Cache & queries", page: Cache, needs: ["read", "maintain"] },
  { at: "doctor", name: "Doctor", page: Doctor, needs: ["admin"], whole: true },
  { at: "tokens", name: "Tokens", page: Tokens, needs: ["admin"], whole: true },
];

/** `#/table/shop.orders/files` → ["table", "shop.orders", "files"] */
function where() {
  const hash = location.hash;
  if (!hash.startsWith("#/")) return [""];
  try {
    return hash.slice(2).split("/").map(decodeURIComponent);
  } catch {
    return [""];
  }
}

function useWhere() {
  const [path, setPath] = useState(where);
  useEffect(() => {
    const moved = () => {
      setPath(where());
      window.scrollTo(0, 0);
    };
    addEventListener("hashchange", moved);
    return () => removeEventListener("hashchange", moved);
  }, []);
  return path;
}

/** What a token may do: on one table, or on the lake as a whole. */
const rights = (caller) => ({
  has: (scope) => caller.scopes.includes(scope) || caller.scopes.includes("admin"),
  may(scope, table) {
    if (!this.has(scope)) return false;
    if (!caller.tables.length) return true;
    return table !== undefined && (caller.tables.includes(table) || caller.tables.includes(`${table.split(".")[0]}.*`));
  },
});

function SignIn({ onIn, said }) {
  const [secret, setSecret] = useState("");
  const [keep, setKeep] = useState(false);
  const [error, setError] = useState(said ?? null);
  const [busy, setBusy] = useState(false);
  const enter = async (event) => {
    event.preventDefault();
    setBusy(true);
    useToken(secret.trim(), false);
    try {
      const lake = await get("/v1/lake");
      useToken(secret.trim(), keep);
      onIn(lake);
    } catch (failure) {
      useToken(null, false);
      setError(failure);
      setBusy(false);
    }
  };
  return html`<main class="sign-in"><h1 class="brand"><img src="/console/favicon.svg" alt="" />Lithify</h1>
    <div class="card"><form class="body" onSubmit=${enter}>
      <h2>Sign in</h2>
      ${error && html`<${Problem} error=${error} title=${error.title ?? (error.status === 401 ? "You are not signed in" : undefined)} />`}
      <label class="above">Token<input type="password" value=${secret} onInput=${(event) => setSecret(event.target.value)} autocomplete="off" autofocus placeholder="lith_…" required /></label>
      <label><input type="checkbox" checked=${keep} onChange=${(event) => setKeep(event.target.checked)} />Keep it in this tab until the tab is closed</label>
      <div><button class="main" disabled=${busy || !secret.trim()}>${busy ? "Signing in …" : "Sign in"}</button></div>
    </form></div>
    <p class="muted">A token of this lake: <code>lithify tokens create NAME --scope read</code> makes one where the lake is. The address that <code>lithify serve</code> prints at its start signs you in without one.</p>
  </main>`;
}

function Unknown() {
  return html`<main id="main" class="note"><h1 tabindex="-1">There is no such page</h1><p><a href="#/">To the lake</a></p></main>`;
}

const Nothing = () => html`<main id="main" class="note"><h1 tabindex="-1">There is nothing to look at</h1>
  <p>This token may write, and neither read nor maintain tables: the console has no page for it. Sign in with another one.</p></main>`;

function Frame({ lake, onOut, gone }) {
  const [at, ...rest] = useWhere();
  const { caller } = lake;
  const can = rights(caller);
  const open = PAGES.filter((page) => page.needs.some((scope) => (page.whole ? can.may(scope) : can.has(scope))));
  const page = at === "table" ? { page: Table, name: rest[0] ?? "" } : open.find((each) => each.at === at);
  useEffect(() => {
    document.title = page ? `${page.name} · ${lake.name} · Lithify` : "Lithify";
  }, [page?.name]);
  return html`<a class="skip" href="#main" onClick=${(event) => { event.preventDefault(); document.querySelector("main h1")?.focus(); }}>To the content</a>
    <header class="top">
      <a class="brand" href="#/"><img src="/console/favicon.svg" alt="" />Lithify</a>
      <nav aria-label="Pages">${open.map((each) => html`<a href=${`#/${each.at}`} aria-current=${each.at === at || (each.at === "" && at === "table") ? "page" : undefined}>${each.name}</a>`)}</nav>
      <div class="who"><span title=${`Lithify ${lake.version}`}>${lake.name}</span><span>${caller.name} (${caller.scopes.join(", ")})</span><button class="plain" onClick=${onOut}>Sign out</button></div>
    </header>
    ${gone && html`<div class="banner" role="status">The service does not answer. What you see is what it said last; this page tries again by itself.</div>`}
    ${page ? html`<main id="main" key=${page.at === "pipelines" ? `${at}/${rest[0] ?? ""}` : at}><${page.page} lake=${lake} can=${can} path=${rest} /></main>` : open.length ? html`<${Unknown} />` : html`<${Nothing} />`}`;
}

function App({ start }) {
  const [state, setState] = useState(start);
  const [gone, setGone] = useState(false);
  useEffect(() => listen((event) => {
    if (event === "refused" && signedIn()) {
      useToken(null, false);
      setState({ lake: null, said: { status: 401, title: "You are signed out", message: "The token is no longer valid: it has expired or was revoked." } });
    } else if (event !== "refused") setGone(event === "gone");
  }), []);
  const out = async () => {
    const { caller, own } = state.lake;
    // One that was made for this visit is of no use to anybody afterwards.
    if (own) await remove(`/v1/tokens/${caller.id}`).catch(() => null);
    useToken(null, false);
    setState({ lake: null, said: null });
  };
  if (!state.lake) return html`<${SignIn} said=${state.said} onIn=${(lake) => setState({ lake, said: null })} />`;
  return html`<${Frame} lake=${state.lake} gone=${gone} onOut=${out} />`;
}

async function begin() {
  const code = location.hash.startsWith("#code=") ? location.hash.slice(6) : null;
  if (code !== null) history.replaceState(null, "", location.pathname);
  try {
    if (code !== null) {
      const session = await post("/v1/session", { code }, { public: true });
      useToken(session.secret, false);
      return { lake: { ...(await get("/v1/lake")), own: true }, said: null };
    }
    const kept = keptToken();
    if (kept !== null) {
      useToken(kept, true);
      return { lake: await get("/v1/lake"), said: null };
    }
  } catch (error) {
    useToken(null, false);
    return { lake: null, said: error };
  }
  return { lake: null, said: null };
}

const root = document.getElementById("app");
// An address that signs in, opened where somebody is signed in already.
addEventListener("hashchange", () => location.hash.startsWith("#code=") && location.reload());
begin().then((start) => render(html`<${App} start=${start} />`, root));
