// Shows the numbers of the last hour: the tiles, and the tables of models, tenants and upstreams.

import { UNKNOWN, count, element, fill, money, percent, seconds } from "./cells.js";

const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const MINUTES = 60;

const brokenOf = (outcomes) =>
  Object.entries(outcomes).reduce((sum, [name, number]) => sum + (name === "completed" || name === "client_abort" ? 0 : number), 0);

// How long the numbers have been counted (seconds).
const countedS = (summary) => (Date.parse(summary.now) - Date.parse(summary.since)) / 1000;
// The ledger is read for a small share of a CPU: its numbers may be older than the list of streams (seconds).
const OLD_S = 5;

function asOf(summary, live) {
  const age = (Date.parse(live.now) - Date.parse(summary.now)) / 1000;
  return age > OLD_S ? `, as of ${summary.now.slice(11, 19)} UTC, ${age} s ago` : "";
}

export const isWhole = (summary) => countedS(summary) >= 3599;

export function periodText(summary) {
  return isWhole(summary) ? "in the last hour" : `since ${summary.since.slice(11, 16)} UTC (${seconds(countedS(summary))})`;
}

const pair = (times) => (times ? `${seconds(times.p50_s)} / ${seconds(times.p95_s)}` : UNKNOWN);
const share = (numbers) => (numbers.streams ? percent(numbers.outcomes.completed ?? 0, numbers.streams) : UNKNOWN);
const plural = (number, name) => `${count(number)} ${name}${number === 1 ? "" : "s"}`;

function costText(numbers) {
  return numbers.cost_usd === null || (!numbers.priced && numbers.streams) ? UNKNOWN : `${money(numbers.cost_usd)} USD`;
}

function priceNote({ cost_usd: cost, priced, unpriced, streams }) {
  if (cost === null && priced === null) return "this process knows no prices";
  if (!streams) return "no stream has ended";
  if (unpriced) return `${percent(unpriced, priced + unpriced)} of the streams with usage have no price`;
  return priced ? `of ${plural(priced, "stream")}` : "no stream has reported its usage";
}

function completedNotes({ streams, outcomes }, upstreams) {
  if (!streams) return ["no stream has ended"];
  const broken = brokenOf(outcomes);
  const [worst] = [...(upstreams ?? [])].sort((one, other) => brokenOf(other.numbers.outcomes) - brokenOf(one.numbers.outcomes));
  const most = upstreams?.length > 1 ? brokenOf(worst.numbers.outcomes) : 0;
  const where = 2 * most > broken ? `, ${count(most)} of them at ${worst.name ?? UNKNOWN}` : "";
  return [
    broken ? element("span", { class: "bad" }, `${count(broken)} broken${where}`) : "none broken",
    outcomes.client_abort ? `${count(outcomes.client_abort)} left by the client` : null,
  ];
}

// The slowest model is named if it has this share of the streams, and takes this many times as long as the fastest one.
const SLOWEST_SHARE = 0.05, SLOWER = 1.5;

function slowestNote({ hour, models }, key) {
  const known = (models ?? []).filter(({ numbers }) => numbers[key] && numbers.streams >= SLOWEST_SHARE * hour.streams);
  const times = known.map(({ name, numbers }) => [numbers[key].p95_s, name]).sort(([one], [other]) => other - one);
  if (times.length < 2 || times[0][0] < SLOWER * times.at(-1)[0]) return null;
  return `slowest: ${times[0][1] ?? UNKNOWN}, p95 ${seconds(times[0][0])}`;
}

// Streams by minute, from an hour ago to now; broken ones as bars below the line.
function sparkline(summary) {
  const { minutes, streams, broken, now } = summary;
  const present = Math.floor(Date.parse(now) / 60000) * 60;
  const last = countedS(summary) < 120 ? present : present - 60; // a part of a minute would look like a fall
  const places = new Map(minutes.map((start, at) => [start, at]));
  const at = (values) => Array.from({ length: MINUTES }, (_, back) => values[places.get(last - 60 * (MINUTES - 1 - back))] ?? 0);
  const [all, bad] = [at(streams), at(broken)];
  const most = Math.max(1, ...all);
  const picture = document.createElementNS(SVG, "svg");
  const sum = all.reduce((total, number) => total + number, 0);
  const set = (node, values) => Object.entries(values).forEach(([name, value]) => node.setAttribute(name, value));
  set(picture, { class: "spark", viewBox: "0 0 120 28", preserveAspectRatio: "none", role: "img",
    "aria-label": `${count(sum)} streams began in ${MINUTES} minutes, at most ${count(most)} a minute` });
  const line = document.createElementNS(SVG, "polyline");
  set(line, { points: all.map((number, x) => `${(x * 120) / (MINUTES - 1)},${(27 - (26 * number) / most).toFixed(1)}`).join(" ") });
  bad.forEach((number, x) => {
    if (!number) return;
    const height = Math.max(2, (26 * number) / most);
    const bar = document.createElementNS(SVG, "rect");
    set(bar, { x: (x * 120) / (MINUTES - 1) - 0.8, y: 28 - height, width: 1.6, height });
    picture.append(bar);
  });
  picture.append(line);
  return picture;
}

function tile(name, value, notes, kind, picture) {
  const shown = notes.filter(Boolean).map((note) => element("dd", { class: "small" }, note));
  return element("div", { "data-name": name }, element("dt", {}, name), element("dd", { class: `value ${kind ?? ""}`.trim() }, value),
    ...(picture ? [element("dd", { class: "picture" }, picture)] : []), ...shown);
}

// `reading`: the numbers are those of the process alone, until its ledger is read.
export function showTiles(summary, live, first, reading) {
  const { hour, yesterday } = summary;
  const before = (of) => (yesterday ? `yesterday ${of(yesterday)}` : null);
  const since = isWhole(summary) ? null : periodText(summary);
  const key = first === "text" ? "first_text" : "first_token";
  const counted = (times) => (!times ? (hour.streams ? "not known here" : "no stream has ended") : times.streams < 0.9 * hour.streams ? `of ${plural(times.streams, "stream")}` : null);
  const minutes = Math.max(countedS(summary), 60) / 60;
  const rate = (numbers, over) => (numbers.streams / over).toFixed(numbers.streams / over < 10 ? 1 : 0);
  const { open, silent_seconds: limit, responses } = live;
  byId("tiles").replaceChildren(
    tile(first === "text" ? "First text p50 / p95" : "First token p50 / p95", pair(hour[key]), [first === "text" ? "without reasoning" : "reasoning included", slowestNote(summary, key), before((numbers) => pair(numbers[key])), counted(hour[key]), since]),
    tile("Time per output token p95", hour.per_token ? seconds(hour.per_token.p95_s) : UNKNOWN, [before((numbers) => (numbers.per_token ? seconds(numbers.per_token.p95_s) : UNKNOWN)), counted(hour.per_token), since]),
    tile("Completed", share(hour), [before(share), ...completedNotes(hour, summary.upstreams), since], hour.streams && !brokenOf(hour.outcomes) ? "good" : ""),
    tile("Streams a minute", hour.streams ? rate(hour, minutes) : "0", [before((numbers) => rate(numbers, 60)), `${plural(hour.streams, "stream")} ${periodText(summary)}`], "", sparkline(summary)),
    tile("Cost", costText(hour), [before(costText), priceNote(hour), since]),
    tile(`Silent (over ${limit} s)`, count(open.silent), [`of ${count(open.total)} open now`, live.partitions === null ? null : "in this worker's partitions"], open.silent ? "bad" : ""),
    ...(responses && responses.captured < responses.seen ? [tile("Responses with a record", percent(responses.captured, responses.seen), [`of ${count(responses.seen)} that this tap has counted`])] : []),
  );
  const title = isWhole(summary) ? "The last hour" : `${periodText(summary)[0].toUpperCase()}${periodText(summary).slice(1)}`;
  byId("numbers-title").textContent = `${title}${asOf(summary, live)}`;
  const note = byId("numbers-note");
  note.textContent = reading
    ? "Streams that ended in this time, as this process has counted them. Its ledger is being read."
    : summary.source === "ledger"
      ? `Streams of the ledger ${summary.ledger} that began in this time and have ended. ${yesterday ? "Yesterday: the same hour, 24 hours before." : "The same hour of yesterday is not in it."}`
      : "Streams that ended in this time, as this process has counted them: it has no ledger.";
  if (hour.times_since) note.textContent += ` Percentiles are of the newest streams: those since ${hour.times_since.slice(11, 19)} UTC.`;
  note.hidden = false;
  for (const one of document.querySelectorAll(".hour")) one.textContent = periodText(summary);
}

function columns(title, choose) {
  return [
    { title, cell: ({ name }) => element("button", { type: "button", class: "link", title: "Show only these streams" }, name ?? UNKNOWN) },
    { title: "Streams", number: true, cell: ({ numbers }) => count(numbers.streams) },
    { title: "Completed", number: true, cell: ({ numbers }) => share(numbers) },
    { title: "Broken", number: true, cell: ({ numbers }) => ({ text: count(brokenOf(numbers.outcomes)), kind: brokenOf(numbers.outcomes) ? "bad" : "" }) },
    { title: "First token p50 / p95", number: true, wide: title === "Tenant", cell: ({ numbers }) => pair(numbers.first_token) },
    { title: "First text p50 / p95", number: true, wide: true, cell: ({ numbers }) => pair(numbers.first_text) },
    { title: "Per output token p95", number: true, wide: true, cell: ({ numbers }) => (numbers.per_token ? seconds(numbers.per_token.p95_s) : UNKNOWN) },
    { title: "Input tokens", number: true, wide: title !== "Tenant", cell: ({ numbers }) => count(numbers.input_tokens) },
    { title: "Output tokens", number: true, wide: title !== "Tenant", cell: ({ numbers }) => count(numbers.output_tokens) },
    { title: "Cost", unit: "USD", number: true, cell: ({ numbers }) => (numbers.priced ? money(numbers.cost_usd) : UNKNOWN) },
    { title: "Without price", number: true, wide: true, cell: ({ numbers }) => count(numbers.unpriced) },
  ];
}

function showGroups(table, title, groups, summary, key) {
  const empty = byId(`${table}-empty`);
  const rows = groups ?? [];
  empty.hidden = rows.length > 0;
  empty.textContent = groups === null ? "A tap does not know these: they are on the pages of the workers, which have a ledger." : `No stream has ended ${periodText(summary)}.`;
  fill(byId(table), columns(title), rows, ({ name }) => `=${name ?? ""}`);
  const more = summary.not_shown[key];
  if (more) { empty.hidden = false; empty.textContent = `${count(more)} more are not shown.`; }
}

export function showTables(summary) {
  showGroups("models", "Model", summary.models, summary, "model");
  showGroups("tenants", "Tenant", summary.tenants, summary, "tenant");
  showGroups("by-upstream", "Upstream", summary.upstreams, summary, "upstream");
}
