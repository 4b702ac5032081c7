// Shows the numbers that the page carries. Then asks /streams, /summary and /finished every two seconds and shows the answers;
// with #ID in the address, one stream.

import { UNKNOWN, count, describe, element, fill, money, percent, seconds } from "./cells.js";
import { available, forgetAll, heatmap, histogram, lines, loaded } from "./charts.js";
import { choiceQuery, choose, clear, finishedQuery, isFiltered, offer, readAddress, showMore, showStreams, valueOf, writeAddress } from "./streams.js";
import { isWhole, periodText as hourText, showTables, showTiles } from "./summary.js";
import { showProblem, showTimeline } from "./timeline.js";

const EVERY_MS = 2000;
// Open streams of an answer: with filters, as many as there may be.
const OPEN_ROWS = 50;
const MOST_OPEN_ROWS = 200;
const byId = (id) => document.getElementById(id);
let paused = false;
let timer = null;
let shown = null; // the last answers
let named = false; // whether the process is named in the header
let asked = 0; // the number of the last update: an answer to an earlier one is not shown

function sums(columns) {
  return columns.reduce((all, column) => column.map((number, at) => number + (all[at] ?? 0)), []);
}

function byName(minutes, parts) {
  const names = [...new Set(parts.flatMap((part) => Object.keys(part)))].sort();
  return Object.fromEntries(names.map((name) => [name, minutes.map((_, at) => parts[at][name] ?? 0)]));
}

function showHour(hour) {
  const { minutes } = hour;
  const measured = hour.first_token.counts.some((column) => column.some(Boolean)) || hour.gaps.counts.some((column) => column.some(Boolean));
  byId("latency-empty").hidden = measured;
  byId("latency").hidden = !measured;
  if (measured) {
    const charts = byId("latency");
    for (const [name, title, what, part] of [["first", "Time to first token, reasoning included", "streams", hour.first_token], ["gap", "Gaps between token events", "gaps", hour.gaps]]) {
      const { bounds_s: bounds, counts } = part;
      histogram(charts, `${name}-histogram`, `${title}: how many ${what}`, { bounds, counts: sums(counts), what });
      heatmap(charts, `${name}-heatmap`, `${title}, by minute`, { minutes, bounds, counts, what });
    }
  }
  const any = hour.streams > 0;
  byId("outcomes-empty").hidden = any;
  byId("outcomes").hidden = !any;
  if (any) {
    const names = [...new Set(hour.upstreams.flatMap((one) => Object.keys(one.outcomes)))].sort();
    const table = byId("upstreams");
    if (table.dataset.names !== names.join()) {
      table.dataset.names = names.join();
      table.tHead?.remove();
      table.tBodies[0]?.remove();
    }
    fill(table, [
      { title: "Upstream", cell: (row) => row.upstream ?? UNKNOWN },
      ...names.map((name) => ({ title: name, number: true, cell: (row) => count(row.outcomes[name] ?? 0) })),
    ], hour.upstreams, (row) => row.upstream);
    lines(byId("outcomes"), "outcomes", "Finished streams by outcome", { minutes, values: byName(minutes, hour.outcomes), what: "streams", outcomes: true });
  }
  const tokens = byName(minutes, hour.tokens);
  const kinds = Object.keys(tokens);
  byId("tokens-empty").hidden = kinds.length > 0;
  byId("tokens").hidden = !kinds.length;
  byId("usage-note").textContent = `${count(hour.with_usage)} of ${count(hour.streams)} streams reported their usage.`;
  if (kinds.length) {
    fill(byId("token-kinds"), [
      { title: "Kind", cell: (kind) => kind.replaceAll("_", " ") },
      { title: "Tokens", number: true, cell: (kind) => count(tokens[kind].reduce((sum, number) => sum + number, 0)) },
    ], kinds, (kind) => kind);
    lines(byId("tokens"), "tokens", "Tokens by kind", { minutes, values: tokens, what: "tokens" });
  }
}

// Whose cost is known, if it is not that of all streams.
function partOf(hour) {
  return hour.priced < hour.streams ? `${count(hour.priced)} of ${count(hour.streams)} streams` : "";
}

function showMoney({ hour, budgets, audit }) {
  const minutes = hour.minutes;
  const costs = byName(minutes, hour.cost_usd ?? []);
  const names = Object.keys(costs);
  byId("money-empty").hidden = names.length > 0;
  byId("money-empty").textContent = hour.cost_usd ? "No stream with a known price yet." : "This process knows no prices: a worker, or `up`, shows costs.";
  byId("money").hidden = !names.length;
  if (names.length) {
    fill(byId("costs"), [
      { title: "Upstream", cell: (name) => name },
      { title: "Cost", unit: "USD", number: true, cell: (name) => money(costs[name].reduce((sum, number) => sum + number, 0)) },
    ], names, (name) => name);
    byId("money-note").textContent = partOf(hour) && `The costs are those of ${partOf(hour)}.`;
    lines(byId("money"), "cost", "Cost by upstream", { minutes, values: costs, what: "USD" });
  }
  byId("budgets-empty").hidden = budgets.length > 0;
  byId("budgets").hidden = !budgets.length;
  fill(byId("budgets"), [
    { title: "Budget", cell: (row) => `${row.key} ${row.value}` },
    { title: "Spent", cell: (row) => spent(row) },
    { title: "Budget", unit: "USD", number: true, cell: (row) => money(row.limit_usd) },
    { title: "At the end of the month", unit: "USD", number: true, cell: (row) => ({ text: row.forecast_usd === null ? UNKNOWN : money(row.forecast_usd), kind: row.forecast_usd > row.limit_usd ? "warn" : "" }) },
    { title: "Streams in no cost", number: true, cell: (row) => count(row.unknown_streams) },
  ], budgets, (row) => `${row.key} ${row.value}`);
  byId("audit-empty").hidden = audit !== null;
  byId("audit").hidden = audit === null;
  if (audit) {
    describe(byId("audit"), [
      ["Audit of", `${audit.first} to ${audit.end}${audit.preliminary ? " (preliminary)" : ""}, kept ${audit.saved_at}`],
      ["The bill", audit.agrees ? "agrees" : "does not agree", audit.agrees ? "" : "bad"],
      ["Unexplained", `${audit.unexplained_usd ?? UNKNOWN} USD, ${count(audit.unexplained_tokens)} tokens`],
      ["Billed tokens with a record", Object.entries(audit.coverage).map(([name, ratio]) => `${name} ${ratio === null ? UNKNOWN : `${(100 * Number(ratio)).toFixed(1)} %`}`).join(", ") || UNKNOWN],
    ]);
  }
}

function showCoverage(responses) {
  const rows = responses?.not_captured ?? [];
  byId("coverage").hidden = !rows.length;
  byId("coverage-note").textContent = !responses
    ? "A worker sees no responses: the taps count them, and their pages show them."
    : responses.seen
      ? `${count(responses.captured)} of the ${count(responses.seen)} responses that this tap has counted have a record (${percent(responses.captured, responses.seen)}). A bill may hold the others, too.`
      : "No response has passed this tap yet.";
  fill(byId("coverage"), [
    { title: "Upstream", cell: (row) => row.upstream },
    { title: "Reason", cell: (row) => row.reason },
    { title: "Responses", number: true, cell: (row) => count(row.responses) },
  ], rows, (row) => `${row.upstream} ${row.reason}`);
}

function spent(row) {
  const part = row.spent_usd / row.limit_usd;
  const meter = element("meter", { min: 0, max: row.limit_usd, value: row.spent_usd, high: row.limit_usd * 0.8, optimum: 0 });
  return element("span", { class: part >= 1 ? "bad" : null }, `${money(row.spent_usd)} USD (${Math.round(100 * part)} %) `, meter);
}

function share(left, most) {
  if (left === null || !most) return count(left);
  const part = left / most;
  const meter = element("meter", { min: 0, max: most, value: left, low: most * 0.1, optimum: most });
  return element("span", { class: part < 0.1 ? "bad" : null }, `${count(left)} of ${count(most)} (${Math.round(100 * part)} %) `, meter);
}

function showLimits(limits) {
  fill(byId("limits"), [
    { title: "Upstream", cell: (row) => row.upstream ?? UNKNOWN },
    { title: "API key", unit: "credential_id", cell: (row) => row.credential_id ?? UNKNOWN },
    { title: "Requests left", cell: ({ rate_limit: limit }) => share(limit.requests_remaining, limit.requests_limit) },
    { title: "whole again after", number: true, cell: ({ rate_limit: limit }) => seconds(limit.requests_reset_s) },
    { title: "Tokens left", cell: ({ rate_limit: limit }) => share(limit.tokens_remaining, limit.tokens_limit) },
    { title: "whole again after", number: true, cell: ({ rate_limit: limit }) => seconds(limit.tokens_reset_s) },
  ], limits, (row) => `${row.upstream} ${row.credential_id}`);
  byId("limits-empty").hidden = limits.length > 0;
}

// What the finished streams are of: the last hour, or since when this process has counted them.
function periodText({ hour, now }) {
  const counted = (Date.parse(now) - Date.parse(hour.since)) / 1000;
  return counted >= 3599 ? "in the last hour" : `since ${hour.since.slice(11, 16)} UTC (${seconds(counted)})`;
}

function scopeText({ process, partitions }) {
  if (process === "tap") return "A tap has no ledger, and counts finished streams only while its page is open. The pages of the workers have all of them.";
  if (partitions !== null) return "Numbers, models, tenants and finished streams are of all workers that share this ledger. Open streams, and the charts below, are of this worker's partitions.";
  return "";
}

let clients = null; // what clients of the upstreams need

// What to do as long as there is nothing to show.
function showStart({ live, summary, finished }) {
  const isEmpty = !live.open.total && !summary.hour.streams && !finished.streams.length && !isFiltered();
  const place = byId("start-text");
  byId("start").hidden = !isEmpty;
  if (!isEmpty) {
    delete byId("overview").dataset.empty;
    return;
  }
  const mayHaveOlder = isWhole(summary);
  byId("overview").dataset.empty = mayHaveOlder ? "hour" : "yet"; // then there is nothing to filter either
  byId("start-title").textContent = mayHaveOlder ? "No stream in the last hour" : "No stream yet";
  byId("streams-empty").hidden = true;
  if (clients === null) {
    clients = [];
    fetched("clients").then(({ answer }) => {
      clients = answer ?? [];
      showStart({ live, summary, finished });
    }, () => { clients = null; });
  }
  const of = (client) => [
    element("p", {}, `Base URL for clients of ${client.upstream}: `, element("code", {}, client.base_url)),
    ...(client.curl ? [element("p", {}, "Or try it in a shell:"), element("pre", { tabindex: 0 }, client.curl)] : []),
  ];
  const text = live.partitions !== null
    ? "No stream is open, and the ledger has none of the last hour. A tap must ship to the brokers of this worker: `streamgauge doctor --kafka HOST:PORT` checks them."
    : `No stream is open, and none has ended ${hourText(summary)}. Send a request through this process: its stream is here within two seconds.`;
  const content = element("div", {}, element("p", {}, text), ...(live.partitions === null ? clients.flatMap(of) : []));
  if (!place.firstChild?.isEqualNode(content)) place.replaceChildren(content);
}

// The first screen. `reading`: the answers are those of the process alone, until its ledger is read.
// `searching`: the list is not there yet.
function showNumbers({ live, summary, finished, reading, searching }) {
  byId("scope-note").textContent = scopeText(live);
  byId("scope-note").hidden = !byId("scope-note").textContent;
  document.title = live.open.silent ? `${live.open.silent} silent - Streamgauge` : "Streamgauge";
  showTiles(summary, live, valueOf("first"), reading);
  showStreams(live.open, finished, summary, searching);
}

function showOverview(answers) {
  shown = answers;
  const { live, summary } = answers;
  showNumbers(answers);
  offer(summary);
  showStart(answers);
  showTables(summary);
  showCharts(live);
}

async function showCharts(live) {
  await loaded(); // after the numbers
  if (live !== shown?.live) return;
  const period = periodText(live);
  for (const one of document.querySelectorAll(".period")) one.textContent = period;
  showHour(live.hour);
  showCoverage(live.responses);
  showMoney(live);
  showLimits(live.rate_limits);
}

function showProcess(answer) {
  named = true;
  const of = answer.partitions === null ? "" : `, ${partitionsText(answer)}`;
  const missed = answer.missed_bundles ? `; ${count(answer.missed_bundles)} bundles were too many and are not shown` : "";
  byId("process").textContent = `${answer.process} ${answer.version}${of}, since ${answer.since}${missed}`;
}

function partitionsText(answer) {
  if (!answer.partitions.length) return `no partitions now (${answer.unready ?? "other workers have all of them"})`;
  return `its partitions ${answer.partitions.join(", ")}; the streams of other partitions are on the pages of other workers`;
}

async function fetched(path) {
  const response = await fetch(path, { headers: { accept: "application/json" }, signal: AbortSignal.timeout(30_000) });
  const answer = await response.json();
  return response.ok ? { answer } : { problem: answer.error };
}

function say(text) {
  if (byId("status").textContent !== text) byId("status").textContent = text;
}

const NOTHING = { source: "ledger", streams: [], more: false };
// How long the list may take before the numbers are shown without it: a search through all of a large ledger takes long.
const LIST_MS = 700;

const later = (ms) => new Promise((resolve) => { setTimeout(resolve, ms); });

async function askForOverview(number) {
  const ended = finishedQuery();
  let found = false;
  const list = (ended ? fetched(`finished?${ended}`) : Promise.resolve({ answer: NOTHING })).finally(() => { found = true; });
  list.catch(() => {}); // it is awaited below, unless the numbers fail
  const numbers = await Promise.all([fetched(`streams?limit=${isFiltered() ? MOST_OPEN_ROWS : OPEN_ROWS}`), fetched(`summary?${choiceQuery()}`)]);
  await Promise.race([list, later(LIST_MS)]);
  const [live, summary] = numbers.map((one) => one.answer);
  if (!found && live && summary && number === asked) {
    showProcess(live);
    showNumbers({ live, summary, finished: NOTHING, searching: true });
  }
  return [...numbers, await list];
}

async function update() {
  const id = location.hash.slice(1);
  const number = (asked += 1);
  try {
    const answers = await (id ? Promise.all([fetched(`streams/${encodeURIComponent(id)}`)]) : askForOverview(number));
    if (number !== asked || id !== location.hash.slice(1)) return;
    const problem = answers.map((one) => one.problem).find(Boolean);
    if (id) {
      if (problem) showProblem(problem);
      else {
        await loaded();
        if (number === asked) showTimeline(answers[0].answer);
      }
      if (!named) {
        const all = await fetched("streams?limit=0");
        if (all.answer) showProcess(all.answer);
      }
      say("");
    } else if (problem) say(`${problem}. The numbers below are old.`);
    else {
      const [live, summary, finished] = answers.map((one) => one.answer);
      showProcess(live);
      showOverview({ live, summary, finished });
      byId("main").dataset.read = ""; // from here on, the numbers are not those that the page carried
      say(paused ? "Updates are paused." : "");
    }
  } catch (error) {
    if (number === asked) say(`This page cannot reach its process (${error.name}). The numbers below are old.`);
  }
}

function schedule() {
  clearTimeout(timer);
  timer = setTimeout(async () => {
    if (!paused && !document.hidden) await update();
    schedule();
  }, EVERY_MS);
}

let lastLink = "";

async function route(event) {
  const id = location.hash.slice(1);
  const one = Boolean(id);
  byId("overview").hidden = one;
  byId("stream").hidden = !one;
  byId("stream-title").textContent = one ? `Stream ${id}` : "Stream";
  if (one) document.title = `Stream ${id} - Streamgauge`;
  if (one) {
    showProblem("Loading");
    byId("stream-title").focus();
    lastLink = id;
  }
  await update();
  if (!one && event) {
    (document.querySelector(`a[href="#${CSS.escape(lastLink)}"]`) ?? byId("main")).focus();
  }
}

byId("pause").addEventListener("click", () => {
  paused = !paused;
  byId("pause").setAttribute("aria-pressed", String(paused));
  say(paused ? "Updates are paused." : "");
  if (!paused) update();
});
for (const form of [byId("choice"), byId("filters")]) {
  form.addEventListener("submit", (event) => event.preventDefault());
  form.addEventListener("input", ({ target }) => {
    writeAddress();
    if (target.id === "first" && shown) showOverview(shown); // both times are in the answer
    else update();
  });
}
byId("clear").addEventListener("click", () => {
  clear();
  update();
});
byId("more").addEventListener("click", () => {
  showMore();
  update();
});
for (const [table, name] of [["models", "model"], ["tenants", "tenant"], ["by-upstream", "upstream"]]) {
  byId(table).addEventListener("click", (event) => {
    const line = event.target.closest("button")?.closest("tr");
    if (!line) return;
    choose(name, line.dataset.key.slice(1));
    byId("streams-title").scrollIntoView();
    update();
  });
}
addEventListener("popstate", readAddress);
readAddress();
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names a stream
  byId("main").focus();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { forgetAll(); update(); });
addEventListener("resize", () => { if (shown && !byId("overview").hidden) showOverview(shown); });
addEventListener("hashchange", route);
addEventListener("visibilitychange", () => { if (!document.hidden && !paused) update(); });
const first = JSON.parse(byId("first-answers").textContent);
// A process without streams in memory may have some in its ledger: then the page says nothing yet.
if (first && !location.hash && (first.live.open.total || first.summary.hour.streams)) {
  showProcess(first.live);
  showNumbers(first);
}
route().then(schedule);
loaded().then(() => {
  byId("no-charts").hidden = available();
  byId("licence").hidden = !available();
});
