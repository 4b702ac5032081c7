// Shows one stream: its facts, the gaps between its reads, and a table of all reads that are kept.

import { UNKNOWN, count, describe, element, errorWord, fill, outcomeKind, seconds } from "./cells.js";
import { gaps } from "./charts.js";

const byId = (id) => document.getElementById(id);

export function showProblem(text) {
  byId("stream-problem").textContent = text;
  byId("stream-problem").hidden = false;
  byId("stream-body").hidden = true;
}

const SVG = "http://www.w3.org/2000/svg";

function drawn(name, values, text) {
  const node = document.createElementNS(SVG, name);
  for (const [key, value] of Object.entries(values)) node.setAttribute(key, value);
  if (text) node.textContent = text;
  return node;
}

// The phases of a stream from the times of its record, so that they are known as long as the record.
function showCourse({ timing }, end, isOpen) {
  const place = byId("course");
  const times = [["head", timing.headers_s], ["first token", timing.first_token_s], ["first text", timing.first_content_s], ["last token", timing.last_token_s]];
  const last = Math.max(end ?? 0, ...times.map(([, at]) => at ?? 0));
  place.hidden = !last;
  if (!last) return;
  const at = (time) => 1000 * (time / last);
  const first = timing.first_token_s ?? last;
  const until = timing.last_token_s ?? first;
  const words = [...times, [isOpen ? "now" : "end", end]].filter(([, time]) => time !== null && time !== undefined).map(([word, time]) => `${word} ${seconds(time)}`);
  const picture = drawn("svg", { viewBox: "0 0 1000 24", preserveAspectRatio: "none", class: "course", role: "img", "aria-label": `From the request: ${words.join(", ")}` });
  picture.append(
    drawn("rect", { class: "waiting", x: 0, y: 4, width: at(first), height: 16 }),
    drawn("rect", { class: "generating", x: at(first), y: 4, width: Math.max(0, at(until) - at(first)), height: 16 }),
    drawn("rect", { class: "after", x: at(until), y: 4, width: Math.max(0, 1000 - at(until)), height: 16 }),
  );
  const key = document.createElement("p");
  key.className = "empty";
  const colour = (name, word) => [element("span", { class: `key ${name}` }), ` ${word} `];
  key.append(...colour("waiting", "waiting"), ...colour("generating", "generating"), ...(until < last ? colour("after", "after the last token") : []),
    `\u2013 request, ${words.join(", ")}.`);
  place.replaceChildren(picture, key);
}

function costText(cost, unknown, source) {
  if (cost) return `${cost.usd} USD (${[cost.price_source, cost.price_date && `from ${cost.price_date}`].filter(Boolean).join(", ")})`;
  if (unknown) return `unknown: ${unknown.replaceAll("_", " ")}`;
  return source === "ledger" ? "unknown" : UNKNOWN;
}

// What a state means, for who sees it for the first time.
const MEANINGS = {
  client_abort: "The client left before the end. This is no error of the upstream.",
  http_error: "The upstream refused the request: no stream began.",
  stream_error: "The upstream sent an error inside the stream: what came before it is incomplete.",
  truncated: "The response ended, but not as a stream of its API format ends: the answer is incomplete.",
  upstream_reset: "The upstream's connection broke before the response had ended: the answer is incomplete.",
  timeout: "Nothing came from the upstream for so long that the tap ended the stream.",
  abandoned: "The tap ended without a report of how this stream ended.",
  silent: "More output is due, and none has come for long.",
};

// What happened, in one sentence.
function verdict(stream, state, errorAt) {
  if (stream.error) {
    const status = stream.status_code >= 300 ? `${stream.status_code} ` : "";
    const at = errorAt ?? stream.end_s;
    const after = at === null ? "" : `, after ${seconds(at)}`;
    return `${status}${state}: ${errorWord(stream.error)}${after}`;
  }
  return stream.outcome === null ? `${state} for ${seconds(stream.open_s)}` : `${state}${stream.end_s === null ? "" : ` after ${seconds(stream.end_s)}`}`;
}

export function showTimeline({ stream, reads, skipped_reads, error_at_s, steps, record, source, cost, cost_unknown }) {
  byId("stream-problem").hidden = true;
  byId("stream-body").hidden = false;
  byId("stream-json").href = `streams/${stream.id}`;
  const state = stream.outcome ?? (stream.is_silent ? "silent" : "open");
  byId("verdict").textContent = verdict(stream, state, error_at_s);
  byId("verdict").className = outcomeKind(state);
  byId("meaning").textContent = MEANINGS[state] ?? "";
  byId("meaning").hidden = !(state in MEANINGS);
  showCourse(record, stream.end_s ?? stream.open_s, stream.outcome === null);
  describe(byId("facts"), [
    ["Upstream", stream.upstream ?? UNKNOWN],
    ["Model", stream.model ?? UNKNOWN],
    ["API format", stream.dialect ?? UNKNOWN],
    ["Tenant", stream.tenant ?? UNKNOWN],
    ["Outcome", state, outcomeKind(state)],
    ["Error", errorText(stream.error), stream.error ? "bad" : ""],
    ...(error_at_s === null ? [] : [["Error came after", seconds(error_at_s)]]),
    ["HTTP status", stream.status_code ?? UNKNOWN],
    ["Started at (UTC)", stream.started_at === null ? UNKNOWN : stream.started_at.slice(0, 23).replace("T", " ")],
    ["First token, reasoning included", seconds(stream.first_token_s)],
    ["First text", seconds(record.timing.first_content_s)],
    ["Time per output token", seconds(record.timing.inter_token_latency_s)],
    ["Longest gap between token events", seconds(stream.longest_gap_s)],
    ["Stalls", count(stream.stalls), stream.stalls ? "bad" : ""],
    ["Token events", count(stream.token_events)],
    ["Input tokens", count(record.usage.input_tokens)],
    ["Output tokens", count(stream.output_tokens)],
    ["Cost", costText(cost, cost_unknown, source)],
    ["Finish reason", stream.finish_reason ?? UNKNOWN],
    stream.outcome === null ? ["Silent for", seconds(stream.silent_s), stream.is_silent ? "bad" : ""] : ["Ended after", seconds(stream.end_s)],
    ["Request id of the provider", record.provider_request_id ?? UNKNOWN],
    ["Trace id", record.trace_id ?? UNKNOWN],
    ["Reads", skipped_reads && steps.length ? `${count(reads)}, of which ${count(steps.length)} are kept` : count(reads)],
    ["Capture", record.integrity.complete ? "complete" : `incomplete: ${record.integrity.reasons.join(", ")}`],
  ]);
  byId("stream-chart").hidden = !steps.length;
  if (steps.length) {
    gaps(byId("stream-chart"), "Gap before each read, by the time at which the read came", { steps, errorAt: error_at_s, firstToken: stream.first_token_s });
  }
  fill(byId("steps"), [
    { title: "Read", cell: (_, at) => String(numbers(steps)[at]) },
    { title: "At", unit: "s", number: true, cell: (step) => (step.at_s === null ? UNKNOWN : step.at_s.toFixed(3)) },
    { title: "Gap before it", number: true, cell: (step) => ({ text: step.skipped_before ? `${seconds(step.gap_s)}, ${count(step.skipped_before)} reads not kept` : seconds(step.gap_s), kind: step.stall ? "bad" : "" }) },
    { title: "Stall", cell: (step) => ({ text: step.stall ? "stall" : "", kind: "bad" }) },
    { title: "Brought", cell: (step) => ({ text: step.kinds.join(", ") || (step.bytes ? "part of an event" : "head or framing"), kind: step.kinds.includes("error") ? "bad" : "" }) },
    { title: "Token events", number: true, cell: (step) => count(step.tokens) },
    { title: "Events", number: true, cell: (step) => count(step.events) },
    { title: "Body", unit: "bytes", number: true, cell: (step) => count(step.bytes) },
  ], steps, (_, at) => numbers(steps)[at]);
  byId("steps-empty").hidden = steps.length > 0;
  byId("steps-empty").textContent = source === "ledger" ? "The reads of this stream are no longer kept: the ledger has its record." : "No reads of this stream are kept.";
}

let numbered = null;

// The number of each step's read in the stream, from 1.
function numbers(steps) {
  if (numbered?.steps !== steps) {
    let number = 0;
    numbered = { steps, list: steps.map((step) => (number += step.skipped_before + 1)) };
  }
  return numbered.list;
}

export function errorText(error) {
  if (!error) return "none";
  return [error.phase, error.type, error.code, error.status].filter((part) => part !== null && part !== undefined).join(" ");
}
