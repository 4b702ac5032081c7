// Open and finished streams as one list, and the filters of the page, which are in its address.

import { UNKNOWN, count, element, errorWord, fill, money, outcomeKind, seconds, shortId, ticks } from "./cells.js";
import { periodText } from "./summary.js";

const byId = (id) => document.getElementById(id);
export const CHOICES = ["upstream", "model", "tenant"];
const FIELDS = [...CHOICES, "first", "sort", "outcome", "time", "from", "until", "id"];
const DEFAULTS = { upstream: "", model: "", tenant: "", first: "any", sort: "worst", outcome: "", time: "3600", from: "", until: "", id: "" };
const FINE = ["completed", "client_abort"];
const STEP = 50;
const MOST = 500;
let limit = STEP;

// --- filters: a choice is "" for all, else "=" and the value, which is empty for streams without one ---

export const valueOf = (name) => byId(name).value.trim();

function setValue(name, value) {
  const field = byId(name);
  if (CHOICES.includes(name) && ![...field.options].some((option) => option.value === value)) {
    field.append(element("option", { value }, value.slice(1) || UNKNOWN));
  }
  field.value = value;
  if (field.tagName === "SELECT" && field.selectedIndex < 0) field.value = DEFAULTS[name];
}

function showTimes() {
  byId("between").hidden = valueOf("time") !== "between";
}

export function readAddress() {
  const query = new URLSearchParams(location.search);
  for (const name of FIELDS) {
    const given = query.get(name);
    setValue(name, given === null ? DEFAULTS[name] : CHOICES.includes(name) ? `=${given}` : given);
  }
  showTimes();
}

export function writeAddress() {
  limit = STEP;
  showTimes();
  const query = new URLSearchParams();
  for (const name of FIELDS) {
    const value = valueOf(name);
    if (value !== DEFAULTS[name]) query.set(name, CHOICES.includes(name) ? value.slice(1) : value);
  }
  const text = query.toString();
  history.replaceState(null, "", `${location.pathname}${text ? `?${text}` : ""}${location.hash}`);
}

export function choose(name, value) {
  setValue(name, `=${value}`);
  writeAddress();
}

export function clear() {
  for (const name of FIELDS) if (name !== "first") setValue(name, DEFAULTS[name]);
  writeAddress();
}

export function showMore() {
  limit = Math.min(limit + 100, MOST);
}

export function isFiltered() {
  return ["upstream", "model", "tenant", "outcome", "id"].some((name) => valueOf(name)) || valueOf("time") !== "3600";
}

// Offers the names that the summary has, and the chosen one.
export function offer(summary) {
  for (const [name, groups] of [["upstream", summary.upstreams], ["model", summary.models], ["tenant", summary.tenants]]) {
    const field = byId(name);
    if (document.activeElement === field || valueOf(name)) continue; // a list that is open must not change
    const values = (groups ?? []).map((group) => `=${group.name ?? ""}`);
    if ([...field.options].slice(1).map((option) => option.value).join("\n") === values.join("\n")) continue;
    field.replaceChildren(element("option", { value: "" }, "all"), ...values.map((value) => element("option", { value }, value.slice(1) || UNKNOWN)));
  }
}

export function choiceQuery() {
  const query = new URLSearchParams();
  for (const name of CHOICES) if (valueOf(name)) query.set(name, valueOf(name).slice(1));
  return query;
}

// The query of /finished; null if only open streams are wanted.
export function finishedQuery() {
  const outcome = valueOf("outcome");
  if (outcome === "open" || outcome === "silent") return null;
  const query = choiceQuery();
  query.set("sort", valueOf("sort"));
  query.set("limit", String(limit));
  if (outcome) query.set("outcome", outcome);
  if (valueOf("id")) query.set("id", valueOf("id"));
  const time = valueOf("time");
  if (time === "between") {
    for (const [name, field] of [["since", "from"], ["until", "until"]]) {
      const at = Date.parse(valueOf(field)); // local time
      if (at >= 0) query.set(name, String(Math.floor(at / 1000)));
    }
  } else if (time) query.set("age", time);
  return query;
}

function isWantedOpen(row) {
  if (valueOf("time") === "between") return false;
  const outcome = valueOf("outcome");
  if (outcome && outcome !== "open" && !(outcome === "silent" && row.is_silent)) return false;
  const part = valueOf("id").replace(/^\u2026/, "").toLowerCase();
  if (!row.id.startsWith(part) && !row.id.endsWith(part)) return false;
  return CHOICES.every((name) => !valueOf(name) || `=${row[name] ?? ""}` === valueOf(name));
}

// --- the list ---

const started = (row) => (row.started_at ? Date.parse(row.started_at) : 0);
const wait = (row) => row.first_token_s ?? row.end_s ?? row.open_s ?? 0;
const rank = (row) => (row.outcome === null ? (row.is_silent ? 3 : 1) : FINE.includes(row.outcome) ? 0 : 2);
const ORDERS = {
  worst: (one, other) => rank(other) - rank(one) || (rank(one) === 2 ? started(other) - started(one) : rank(one) ? (other.silent_s ?? 0) - (one.silent_s ?? 0) : wait(other) - wait(one)),
  newest: (one, other) => started(other) - started(one),
  slowest: (one, other) => wait(other) - wait(one),
};

const state = (row) => row.outcome ?? (row.is_silent ? "silent" : "open");

function outcomeCell(row) {
  const name = state(row);
  const status = row.status_code >= 300 ? `${row.status_code} ` : "";
  const word = row.is_silent ? `silent for ${seconds(row.silent_s)}` : name;
  return { text: row.error ? `${status}${word}: ${errorWord(row.error)}` : `${status}${word}`, kind: outcomeKind(name) };
}

function when(row) {
  if (!row.started_at) return UNKNOWN;
  const time = new Date(row.started_at);
  const isOld = Date.now() - time > 72000000;
  return `${isOld ? `${time.toLocaleDateString("en-CA").slice(5)} ` : ""}${time.toLocaleTimeString("en-GB")}`;
}

const link = (row) => element("a", { href: `#${row.id}`, title: row.id }, shortId(row.id));

let listed = null; // the query whose streams are listed

// `searching`: finished streams are still searched. Meanwhile the list stays as it is, unless it was of other filters.
export function showStreams(open, finished, summary, searching) {
  const query = String(finishedQuery());
  if (searching && listed === query) return;
  if (!searching) listed = query;
  const finishedIds = new Set(finished.streams.map((row) => row.id));
  const rows = [...open.streams.filter((row) => !finishedIds.has(row.id) && isWantedOpen(row)), ...finished.streams].sort(ORDERS[valueOf("sort")]);
  const longest = Math.max(1, ...rows.flatMap((row) => row.ticks ?? []));
  fill(byId("streams"), [
    { title: "Stream", cell: link },
    { title: "Outcome", cell: outcomeCell },
    { title: "First token", number: true, cell: (row) => seconds(row.first_token_s) },
    { title: "Duration", number: true, wide: true, cell: (row) => seconds(row.outcome === null ? row.open_s : row.end_s) },
    { title: "Cost", unit: "USD", number: true, wide: true, cell: (row) => (row.cost_usd === null ? UNKNOWN : money(Number(row.cost_usd))) },
    { title: "Model", cell: (row) => row.model ?? UNKNOWN },
    { title: "Upstream", wide: true, cell: (row) => row.upstream ?? UNKNOWN },
    { title: "Tenant", wide: true, cell: (row) => row.tenant ?? UNKNOWN },
    { title: "Started", wide: true, cell: when },
    { title: "Tokens out", number: true, wide: true, cell: (row) => count(row.output_tokens) },
    { title: "Longest gap", number: true, wide: true, cell: (row) => ({ text: seconds(row.longest_gap_s), kind: row.stalls ? "warn" : "" }) },
    { title: "Last minute", wide: true, cell: (row) => (row.ticks ? ticks(row.ticks, longest) : "") },
  ], rows, (row) => row.id);
  byId("more").hidden = !finished.more || limit >= MOST;
  byId("streams-note").textContent = searching ? "Searching the ledger" : [
    `${count(rows.length)} shown`,
    open.not_shown ? `${count(open.not_shown)} more are open` : "",
    finished.more ? "more have ended" : "",
  ].filter(Boolean).join(", ");
  byId("streams-empty").hidden = rows.length > 0 || Boolean(searching);
  byId("streams-empty").textContent = isFiltered() ? "No stream matches the filters." : `No stream is open, and none has ended ${periodText(summary)}.`;
}
