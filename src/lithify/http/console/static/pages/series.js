// Over time: what the service did in the last hours.

import { html, useEffect, useLayoutEffect, useRef, useState } from "/console/vendor/preact.js";
import uPlot from "/console/vendor/uplot.js";
import { Card, Empty, Loaded, Title, bytes, count, plural, seconds, short, useGet } from "/console/parts.js";

const SPANS = [["900", "15 minutes"], ["3600", "an hour"], ["21600", "6 hours"], ["86400", "a day"], ["604800", "a week"]];
const SHOWN = {
  rows: short,
  files: short,
  bytes,
  seconds,
  "per second": (value) => `${value.toFixed(value < 10 ? 2 : 0)} /s`,
  "rows per second": (value) => `${value < 10 ? value.toFixed(1) : short(Math.round(value))} /s`,
  "bytes per second": (value) => `${bytes(value)}/s`,
};
const NAMES = {
  pending_rows: "Pending rows", pending_files: "Pending files", base_files: "Files of base", base_bytes: "Base", rows_written_s: "Rows written",
  bytes_rewritten_s: "Rewritten by maintenance", queries_s: "Queries", query_seconds: "Time of a query, on average", query_p50_s: "Time of a query, median", query_p99_s: "Time of a query, 99th percentile", cache_bytes: "Hot cache",
};

export function OverTime() {
  const series = useGet("/v1/series", null, 10);
  const [span, setSpan] = useState("3600");
  return html`<div class="stack"><${Title} aside=${html`<label>The last <select value=${span} onChange=${(event) => setSpan(event.target.value)}>${SPANS.map(([value, said]) => html`<option value=${value}>${said}</option>`)}</select></label>`}>Over time<//>
    <p class="muted">A point every ten seconds for six hours, of the tables that are open in this service, and one a minute before that. For longer, Prometheus reads <code>/metrics</code>.</p>
    <${Loaded} from=${series}>${(data) => data.times.length < 2 ? html`<${Card}><${Empty} title="The service has just begun">Lines appear here with the second sample, in ${plural(data.interval_s, "second")}.<//><//>`
      : html`<div class="two">${data.lines.map((line) => html`<${Chart} key=${line.name} line=${line} times=${data.times} from=${data.times.at(-1) - Number(span)} />`)}</div>`}<//>
  </div>`;
}

function Chart({ line, times, from }) {
  const show = SHOWN[line.unit] ?? count;
  const place = useRef(null);
  const plot = useRef(null);
  const first = times.findIndex((time) => time >= from);
  const shown = [times.slice(first), line.values.slice(first)];
  const known = shown[1].filter((value) => value !== null);
  const scheme = useScheme();
  useLayoutEffect(() => {
    const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    const axis = { stroke: colour("--muted"), font: "11px system-ui", grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false } };
    const options = {
      width: place.current.clientWidth, height: 150, padding: [8, 6, 0, 0], legend: { show: false }, cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
      scales: { x: { range: (_, low, high) => [low, Math.max(high, low + 60)] }, y: { range: (_, __, high) => [0, (high || 1) * 1.1] } },
      axes: [{ ...axis, size: 26, space: 80, values: (_, at) => at.map((time) => new Date(time * 1000).toISOString().slice(at.at(-1) - at[0] > 86_400 ? 5 : 11, at.at(-1) - at[0] < 240 ? 19 : at.at(-1) - at[0] > 86_400 ? 10 : 16)) }, { ...axis, size: 70, space: 36, values: (_, at) => at.map(show) }],
      series: [{}, { stroke: colour("--c1"), width: 1.6, points: { show: false }, fill: colour("--accent-soft") }],
    };
    plot.current = new uPlot(options, shown, place.current);
    const fit = new ResizeObserver(() => plot.current.setSize({ width: place.current.clientWidth, height: 150 }));
    fit.observe(place.current);
    return () => {
      fit.disconnect();
      plot.current.destroy();
    };
  }, [scheme]);
  useEffect(() => plot.current?.setData(shown) && undefined, [times, from, line]);
  const last = known.at(-1);
  const said = known.length ? `now ${show(last)}, at most ${show(Math.max(...known))}` : "nothing to tell yet";
  return html`<${Card} title=${NAMES[line.name] ?? line.name} sub=${said}><div ref=${place} role="img" aria-label=${`${line.what} ${said}`}></div><//>`;
}

function useScheme() {
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const [now, setNow] = useState(dark.matches);
  useEffect(() => {
    const changed = (event) => setNow(event.matches);
    dark.addEventListener("change", changed);
    return () => dark.removeEventListener("change", changed);
  }, []);
  return now;
}
