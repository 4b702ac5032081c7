// Shows one stream: its facts, the gaps between its reads, and a table of all reads that are kept.

import { UNKNOWN, count, describe, fill, seconds } from "./cells.js";
import { gaps } from "./charts.js";

const byId = (id) => document.getElementById(id);

export function showProblem(text) {
  byId("stream-problem").textContent = text;
  byId("stream-problem").hidden = false;
  byId("stream-body").hidden = true;
}

export function showTimeline({ stream, reads, skipped_reads, error_at_s, steps, record }) {
  byId("stream-problem").hidden = true;
  byId("stream-body").hidden = false;
  byId("stream-json").href = `streams/${stream.id}`;
  const state = stream.outcome === null ? "open" : stream.outcome;
  describe(byId("facts"), [
    ["Upstream", stream.upstream ?? UNKNOWN],
    ["Model", stream.model ?? UNKNOWN],
    ["API format", stream.dialect ?? UNKNOWN],
    ["Outcome", state, state === "completed" || state === "open" ? "" : "bad"],
    ["Error", errorText(stream.error), stream.error ? "bad" : ""],
    ["Error came after", seconds(error_at_s)],
    ["HTTP status", stream.status_code ?? UNKNOWN],
    ["Started at (UTC)", stream.started_at ?? UNKNOWN],
    ["Time to first token, reasoning included", seconds(stream.first_token_s)],
    ["Longest gap between token events", seconds(stream.longest_gap_s)],
    ["Stalls", count(stream.stalls), stream.stalls ? "bad" : ""],
    ["Token events", count(stream.token_events)],
    ["Output tokens", count(stream.output_tokens)],
    ["Finish reason", stream.finish_reason ?? UNKNOWN],
    stream.outcome === null ? ["Silent for", seconds(stream.silent_s), stream.is_silent ? "bad" : ""] : ["Ended after", seconds(stream.end_s)],
    ["Tenant", stream.tenant ?? UNKNOWN],
    ["Reads", skipped_reads ? `${count(reads)}, of which ${count(steps.length)} are kept` : count(reads)],
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
