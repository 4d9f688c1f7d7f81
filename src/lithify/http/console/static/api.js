// Calls of /v1. The token stands in a variable of this module and in the header of a request, and nowhere else unless
// somebody ticked that this tab may keep it.

const KEPT = "lithify.token";
let secret = null;
const listeners = new Set();
let answering = true;

export class ApiError extends Error {
  constructor({ status, code, message, what_to_do, id }) {
    super(message);
    Object.assign(this, { status, code, what: what_to_do, id });
  }
}

export const signedIn = () => secret !== null;

export function useToken(value, keep) {
  secret = value;
  try {
    if (keep) sessionStorage.setItem(KEPT, value);
    else sessionStorage.removeItem(KEPT);
  } catch {
    // A browser that forbids storage: the token lives as long as the page.
  }
}

export function keptToken() {
  try {
    return sessionStorage.getItem(KEPT);
  } catch {
    return null;
  }
}

/** Told (event) when the token is refused, and when the service stops or begins to answer. */
export function listen(listener) {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

const tell = (event) => listeners.forEach((listener) => listener(event));

function reached(now) {
  if (answering !== now) {
    answering = now;
    tell(now ? "back" : "gone");
  }
}

async function call(method, path, { body, signal, accept = "application/json", public: open } = {}) {
  const headers = { Accept: accept };
  if (secret !== null && !open) headers.Authorization = `Bearer ${secret}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  let answer;
  try {
    answer = await fetch(path, { method, headers, signal, body: body === undefined ? undefined : JSON.stringify(body), cache: "no-store", credentials: "omit", redirect: "error" });
  } catch (error) {
    if (error.name === "AbortError") throw error;
    reached(false);
    throw new ApiError({ status: 0, code: "unreachable", message: "The service does not answer.", what_to_do: "Is it running? This page tries again by itself." });
  }
  reached(true);
  if (answer.ok) return answer;
  let said = {};
  try {
    said = await answer.json();
  } catch {
    said = { code: "error", message: `The service answered ${answer.status}.` };
  }
  const failure = new ApiError({ status: answer.status, ...said });
  if (answer.status === 401 && !open) tell("refused");
  throw failure;
}

const query = (parameters) => {
  const given = Object.entries(parameters ?? {}).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length ? `?${new URLSearchParams(given)}` : "";
};

export const get = async (path, parameters, signal) => (await call("GET", path + query(parameters), { signal })).json();
export const post = async (path, body, options) => (await call("POST", path, { body, ...options })).json();
export const put = async (path, body) => (await call("PUT", path, { body })).json();
export const remove = async (path) => (await call("DELETE", path)).json();
/** Server-sent events, until the stream ends: `each(event)` for every one of them; a gap is `{event: "gap"}`. */
export async function eachEvent(after, each, signal) {
  const reader = (await call("GET", "/v1/events" + query({ after }), { signal, accept: "text/event-stream" })).body.pipeThrough(new TextDecoderStream()).getReader();
  let text = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (text + value).split("\n\n");
    text = parts.pop();
    for (const part of parts) {
      const data = part.split("\n").find((line) => line.startsWith("data: "));
      if (part.startsWith("event: gap")) each({ event: "gap" });
      else if (data) each(JSON.parse(data.slice(6)));
    }
  }
}
export const download = async (path, body, accept, signal) => (await call("POST", path, { body, accept, signal })).blob();
export const tablePath = (name) => `/v1/tables/${encodeURIComponent(name)}`;
