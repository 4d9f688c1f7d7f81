// What all pages are made of: numbers as people read them, tables, tiles, problems, and data that is asked for again.

import { html, useCallback, useEffect, useId, useLayoutEffect, useRef, useState } from "/console/vendor/preact.js";
import { eachEvent, get } from "/console/api.js";

// -- numbers and times

const whole = new Intl.NumberFormat("en");
const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];
export const count = (value) => (value === null || value === undefined ? "–" : whole.format(value));

export function bytes(value) {
  if (value === null || value === undefined) return "–";
  let unit = 0;
  let left = value;
  while (left >= 999.5 && unit < UNITS.length - 1) {
    left /= 1000;
    unit += 1;
  }
  return `${unit === 0 || left >= 99.5 ? whole.format(Math.round(left)) : left.toFixed(left >= 9.95 ? 1 : 2)} ${UNITS[unit]}`;
}

export function short(value) {
  if (value === null || value === undefined) return "–";
  if (value < 10_000) return whole.format(value);
  for (const [size, unit] of [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= size) return `${(value / size).toFixed(value / size >= 99.5 ? 0 : value / size >= 9.95 ? 1 : 2)} ${unit}`;
  }
  return whole.format(value);
}

export function seconds(value) {
  if (value === null || value === undefined) return "–";
  if (value < 0.0995) return `${(value * 1000).toFixed(value < 0.00995 ? 1 : 0)} ms`;
  if (value < 59.5) return `${value.toFixed(value < 9.95 ? 2 : 0)} s`;
  if (value < 3570) return `${Math.round(value / 60)} min`;
  return value < 172_000 ? `${(value / 3600).toFixed(1)} h` : `${Math.round(value / 86_400)} d`;
}

export function moment(at) {
  // `at`: ISO text or milliseconds. Shown in UTC, as the command line does.
  if (at === null || at === undefined) return "–";
  const date = new Date(at);
  return Number.isNaN(date.getTime()) ? String(at) : date.toISOString().slice(0, 19).replace("T", " ");
}

export const plural = (number, one, many = `${one}s`) => `${count(number)} ${number === 1 ? one : many}`;

// -- data

/** Asks `load(signal)` now, whenever `keys` change, and every `every` seconds while the page is seen. What was there stays until
 * the next answer is, so nothing jumps. */
export function useData(load, keys, every = 0) {
  const [state, setState] = useState({ data: null, error: null, at: 0 });
  const current = useRef(null);
  const again = useCallback(async () => {
    current.current?.abort();
    const mine = (current.current = new AbortController());
    try {
      const data = await load(mine.signal);
      if (!mine.signal.aborted) setState({ data, error: null, at: Date.now() });
    } catch (error) {
      if (!mine.signal.aborted && error.name !== "AbortError") setState((before) => ({ ...before, error }));
    }
  }, keys);
  useEffect(() => {
    setState({ data: null, error: null, at: 0 });
    again();
    const timer = every ? setInterval(() => document.visibilityState === "visible" && again(), every * 1000) : 0;
    return () => {
      clearInterval(timer);
      current.current?.abort();
    };
  }, keys);
  return { ...state, again };
}

export const useGet = (path, parameters, every) =>
  useData((signal) => get(path, parameters, signal), [path, JSON.stringify(parameters ?? null)], every);

const RETRY_S = 3;
/** Calls `told(event)` for what happens from now on, while the page is seen: from a stream, or, where there is none, from pages. */
export function useEvents(told) {
  const listener = useRef(told);
  listener.current = told;
  useEffect(() => {
    let stop = null;
    let last = null;
    const each = (event) => {
      last = event.id ?? last;
      listener.current(event);
    };
    const pause = (signal) => new Promise((go) => {
      const timer = setTimeout(go, RETRY_S * 1000);
      signal.addEventListener("abort", () => { clearTimeout(timer); go(); });
    });
    const follow = async (signal) => {
      while (!signal.aborted) {
        try {
          await eachEvent(last, each, signal);
        } catch (error) {
          if (signal.aborted || error.status === 401 || error.status === 403) return;
          if (error.status) await get("/v1/events", { after: last, limit: 100 }, signal).then((page) => page.events.forEach(each), () => null);
          await pause(signal);
        }
      }
    };
    const turn = () => {
      stop?.abort();
      stop = null;
      if (document.visibilityState !== "visible") return;
      stop = new AbortController();
      follow(stop.signal);
    };
    turn();
    document.addEventListener("visibilitychange", turn);
    return () => {
      document.removeEventListener("visibilitychange", turn);
      stop?.abort();
    };
  }, []);
}

/** An action behind a button: one at a time, with what came of it. */
export function useAction(act) {
  const [state, setState] = useState({ busy: false, error: null, done: null });
  const run = async (...given) => {
    setState({ busy: true, error: null, done: null });
    try {
      setState({ busy: false, error: null, done: (await act(...given)) ?? true });
    } catch (error) {
      setState({ busy: false, error, done: null });
    }
  };
  return { ...state, run, clear: () => setState({ busy: false, error: null, done: null }) };
}

// -- pieces

export const Problem = ({ error, title }) => html`<div class="problem" role="alert">
  <strong>${title ?? TITLES[error.code] ?? "That did not work"}</strong>
  <p>${error.message}</p>
  ${error.what && html`<p class="muted">${error.what}</p>`}
  ${error.id && html`<p class="id">request ${error.id}</p>`}
</div>`;

const TITLES = {
  forbidden: "This token may not do that",
  not_found: "There is no such thing",
  corruption: "Something is damaged",
  unreachable: "The service does not answer",
  limit_exceeded: "A limit was met",
  cancelled: "It was cancelled",
  conflict: "Something else was first",
};

/** The data of `useData`, or what stands in its place. */
export function Loaded({ from, children }) {
  const { data, error } = from;
  if (data === null) {
    if (error === null) return html`<p class="loading" role="status">Loading …</p>`;
    return html`<${Problem} error=${error} />`;
  }
  return html`${error !== null && error.code !== "unreachable" && html`<${Problem} error=${error} />`}
    <div class=${`stack fade ${error !== null ? "stale" : ""}`}>${children(data)}</div>`;
}

export const Title = ({ children, aside, focus = true }) => {
  const heading = useRef(null);
  useEffect(() => focus && heading.current?.focus({ preventScroll: true }), []);
  return html`<div class="title"><h1 ref=${heading} tabindex="-1" class="grow">${children}</h1>${aside}</div>`;
};

export const Card = ({ title, sub, aside, flush, children }) => html`<section class="card" aria-label=${title}>
  ${(title || aside) && html`<div class="head"><h2>${title} ${sub && html`<span class="sub">${sub}</span>`}</h2>${aside}</div>`}
  <div class=${`body ${flush ? "flush" : ""}`}>${children}</div>
</section>`;

export const Tiles = ({ children }) => html`<div class="tiles">${children}</div>`;
export const Tile = ({ name, value, under, tone }) => html`<dl class="tile"><dt>${name}</dt>
  <dd><div class=${`value ${tone ?? ""}`}>${value}</div><div class="under">${under ?? "\u00a0"}</div></dd></dl>`;

export const Empty = ({ title, children }) => html`<div class="empty"><strong>${title}</strong>${children && html`<p>${children}</p>`}</div>`;

/** `columns`: {name, head, num, wrap, show(row), label}; `label` makes the cell the row's header. */
export function Rows({ columns, rows, caption, empty, tall, keyOf = (_, number) => number, rowClass }) {
  if (!rows.length) return empty ?? html`<${Empty} title="Nothing here" />`;
  return html`<div class=${`scroll ${tall ? "tall" : ""}`} tabindex=${tall ? 0 : undefined} role=${tall ? "group" : undefined} aria-label=${tall ? caption : undefined}><table>
    <caption class="hidden">${caption}</caption>
    <thead><tr>${columns.map((column) => html`<th scope="col" class=${column.num ? "num" : ""}>${column.head}</th>`)}</tr></thead>
    <tbody>${rows.map((row, number) => html`<tr key=${keyOf(row, number)} class=${rowClass?.(row) ?? ""}>${columns.map((column) => {
      const shown = column.show(row, number);
      const kind = [column.num && "num", column.wrap && "wrap", column.value && "value"].filter(Boolean).join(" ");
      return column.label ? html`<th scope="row" class=${kind}>${shown}</th>` : html`<td class=${kind} title=${column.title?.(row)}>${shown}</td>`;
    })}</tr>`)}</tbody>
  </table></div>`;
}

export const Facts = ({ of }) => html`<dl class="facts">${of.map(([name, value]) => html`<dt>${name}</dt><dd>${value}</dd>`)}</dl>`;
export const Badge = ({ tone, children }) => html`<span class=${`badge ${tone ?? ""}`}>${children}</span>`;

const OUTCOMES = { done: "good", failed: "bad", cancelled: "warn", "given up": "bad", recovered: "warn" };
export const Outcome = ({ of }) => html`<${Badge} tone=${OUTCOMES[of]}>${of}<//>`;

/** A value of a row: always text. */
export function Value({ of }) {
  if (of === null || of === undefined) return html`<span class="null">null</span>`;
  if (typeof of === "object") return JSON.stringify(of);
  return String(of);
}

/** A question before something happens. `word`: what has to be typed first. */
export function Confirm({ title, act, word, danger, children, onDone, onClose, verb, quiet = () => false }) {
  const dialog = useRef(null);
  const name = useId();
  const [typed, setTyped] = useState("");
  const { busy, error, run } = useAction(async () => {
    const done = await act();
    onDone?.(done);
    dialog.current?.close();
  });
  useLayoutEffect(() => {
    const opener = document.activeElement;
    dialog.current.showModal();
    return () => opener?.focus?.();
  }, []);
  return html`<dialog ref=${dialog} aria-labelledby=${name} onClose=${onClose}>
    <form class="stack" onSubmit=${(event) => { event.preventDefault(); run(); }}>
      <h2 id=${name}>${title}</h2>
      ${children}
      ${word && html`<label class="above">Type ${word} to go on<input value=${typed} onInput=${(event) => setTyped(event.target.value)} autocomplete="off" spellcheck=${false} /></label>`}
      ${error && !quiet(error) && html`<${Problem} error=${error} />`}
      <div class="row end"><button type="button" onClick=${() => dialog.current.close()}>Leave it</button>
        <button class=${danger ? "danger" : "main"} disabled=${busy || (word && typed !== word)}>${busy ? "Working …" : verb}</button></div>
    </form>
  </dialog>`;
}
