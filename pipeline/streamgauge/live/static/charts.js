// Draws charts with uPlot, and puts a table with the same numbers below each. Without uPlot there are only the tables.

import { element, fill, outcomeKind } from "./cells.js";

export const available = () => typeof window.uPlot === "function";

let loading = null;

// Loads uPlot, once, after the page is painted. Resolves when it is there, or known to be missing.
export function loaded() {
  loading ??= new Promise((resolve) => {
    document.head.append(element("link", { rel: "stylesheet", href: "static/uplot/uPlot.min.css" }));
    const script = element("script", { src: "static/uplot/uPlot.iife.min.js" });
    script.onload = script.onerror = resolve;
    document.head.append(script);
  });
  return loading;
}

const plots = new Map(); // element -> {plot, shape, data}
const HEIGHT = 220;

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

// A figure with a place for the chart and its table; `name` identifies it in `parent`.
export function figure(parent, name, caption) {
  let found = parent.querySelector(`figure[data-name="${name}"]`);
  if (!found) {
    const place = element("div", { class: "plot", role: "img", "aria-label": caption });
    const table = element("table", { "aria-live": "off" }, element("caption", {}, caption));
    const details = element("details", { open: !available() },
      element("summary", {}, "The numbers as a table"), element("div", { class: "scroll" }, table));
    found = element("figure", { "data-name": name }, element("figcaption", {}, caption), place, details);
    parent.append(found);
  }
  return { place: found.querySelector(".plot"), table: found.querySelector("details table") };
}

function axes(x, y) {
  const common = { stroke: colour("text"), grid: { stroke: colour("line"), width: 1 }, ticks: { stroke: colour("line") },
    font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif", labelSize: 20 };
  return [{ ...common, ...x }, { ...common, ...y }];
}

// Draws, or changes what is drawn. `shape`: what cannot change without a new plot.
function draw(place, shape, options, data) {
  if (!available()) return;
  const width = Math.floor(place.getBoundingClientRect().width);
  if (!width) return;
  const known = plots.get(place);
  if (known && known.shape === shape && known.width === width) {
    known.plot.setData(data);
    return;
  }
  known?.plot.destroy();
  const plot = new window.uPlot({ width, height: HEIGHT, cursor: { drag: { x: false, y: false } }, ...options }, data, place);
  plots.set(place, { plot, shape, width });
}

export function forgetAll() {
  for (const { plot } of plots.values()) plot.destroy();
  plots.clear();
}

export const boundText = (bounds, at) => (at < bounds.length ? `≤ ${bounds[at]}` : `> ${bounds[bounds.length - 1]}`);

// `parts.counts` by bucket of `parts.bounds` (seconds).
export function histogram(parent, name, caption, { bounds, counts, what }) {
  const { place, table } = figure(parent, name, caption);
  fill(table, [
    { title: "Time", unit: "s", cell: (row) => row.bound },
    { title: what, unit: "count", number: true, cell: (row) => row.count.toLocaleString("en") },
  ], counts.map((number, at) => ({ bound: boundText(bounds, at), count: number })), (row) => row.bound);
  const places = counts.map((_, at) => at);
  draw(place, "histogram", {
    legend: { show: false },
    scales: { x: { time: false, range: [-0.6, counts.length - 0.4] }, y: { range: (_, low, high) => [0, Math.max(1, high)] } },
    axes: axes(
      { label: "upper bound (s)", splits: () => places, values: () => places.map((at) => boundText(bounds, at).replace("≤ ", "")),
        rotate: -50, size: 44, grid: { show: false }, space: 1 },
      { label: `${what} (count)`, size: 56 }),
    series: [{}, { fill: colour("accent"), stroke: colour("accent"), paths: window.uPlot?.paths.bars({ size: [0.8, 60] }), points: { show: false } }],
  }, [places, counts]);
}

// One column a minute, one row a bucket; the stronger the colour, the larger the count.
export function heatmap(parent, name, caption, { minutes, bounds, counts, what }) {
  const most = Math.max(1, ...counts.map((column) => Math.max(...column)));
  const { place, table } = figure(parent, name, `${caption}. Full colour: ${most.toLocaleString("en")} ${what} in a minute.`);
  const figcaption = place.parentNode.querySelector("figcaption");
  figcaption.textContent = `${caption}. Full colour: ${most.toLocaleString("en")} ${what} in a minute.`;
  const used = bounds.map((_, at) => at).concat(bounds.length).filter((at) => counts.some((column) => column[at]));
  fill(table, [
    { title: "Minute", unit: "local time", cell: (row) => row.minute },
    ...used.map((at) => ({ title: boundText(bounds, at), unit: "s", number: true, cell: (row) => row.column[at] })),
  ], minutes.map((start, at) => ({ minute: clock(start), column: counts[at] })), (row) => row.minute);
  if (table.dataset.used !== used.join()) { // other columns: begin again
    table.dataset.used = used.join();
    table.tHead.remove();
    table.tBodies[0].remove();
    return heatmap(parent, name, caption, { minutes, bounds, counts, what });
  }
  place.cells = { minutes, counts, most };
  const height = bounds.length + 1;
  const last = minutes[minutes.length - 1] + 60;
  draw(place, "heatmap", {
    legend: { show: false },
    cursor: { show: false },
    scales: { x: { range: (_, low, high) => [Math.min(low, high - 900), high] }, y: { range: [0, height] } },
    axes: axes(
      { label: "time (local)", size: 34, grid: { show: false }, values: (_, splits) => splits.map(clock) },
      { label: "upper bound (s)", size: 56, grid: { show: false }, splits: () => bounds.map((_, at) => at + 1).filter((at) => at % 3 === 1),
        values: (_, splits) => splits.map((at) => bounds[at - 1]) }),
    series: [{}, { stroke: "transparent", points: { show: false } }],
    hooks: { draw: [(plot) => paintCells(plot, place.cells)] },
  }, [[...minutes, last], [...minutes.map(() => 0), 0]]);
}

function paintCells(plot, { minutes, counts, most }) {
  const { ctx } = plot;
  ctx.save();
  ctx.fillStyle = colour("accent");
  minutes.forEach((start, column) => {
    const left = plot.valToPos(start, "x", true), right = plot.valToPos(start + 60, "x", true);
    counts[column].forEach((number, row) => {
      if (!number) return;
      const bottom = plot.valToPos(row, "y", true), top = plot.valToPos(row + 1, "y", true);
      ctx.globalAlpha = 0.15 + 0.85 * Math.sqrt(number / most);
      ctx.fillRect(left, top, Math.max(1, right - left - 1), Math.max(1, bottom - top - 1));
    });
  });
  ctx.restore();
}

const PALETTE = ["accent", "good", "warn", "other", "bad", "faint"];

// One line for each name in `values`, by minute.
export function lines(parent, name, caption, { minutes, values, what, outcomes }) {
  const { place, table } = figure(parent, name, caption);
  const names = Object.keys(values);
  if (table.dataset.names !== names.join()) {
    table.dataset.names = names.join();
    table.tHead?.remove();
    table.tBodies[0]?.remove();
  }
  fill(table, [
    { title: "Minute", unit: "local time", cell: (row) => row.minute },
    ...names.map((one) => ({ title: one, unit: what, number: true, cell: (row) => values[one][row.at].toLocaleString("en") })),
  ], minutes.map((start, at) => ({ minute: clock(start), at })), (row) => row.minute);
  const stroke = (one, at) => colour(outcomes ? outcomeKind(one) : PALETTE[at % PALETTE.length]);
  draw(place, `lines ${names.join()}`, {
    scales: { y: { range: (_, low, high) => [0, what === "USD" ? high * 1.1 || 1 : Math.max(1, high * 1.1)] }, x: { range: (_, low, high) => [Math.min(low, high - 900), high + 60] } },
    axes: axes({ label: "time (local)", size: 34, values: (_, splits) => splits.map(clock) }, { label: `${what} a minute`, size: 64 }),
    series: [{ label: "minute", value: (_, at) => (at === null ? "" : clock(at)) },
      ...names.map((one, at) => ({ label: one, stroke: stroke(one, at), width: 2, dash: outcomes && at % 3 ? [4 * (at % 3), 3] : [], points: { size: 6 } }))],
  }, [minutes, ...names.map((one) => values[one])]);
}

// The reads of one stream: when each came, and how long the gap before it was.
export function gaps(parent, caption, { steps, errorAt, firstToken }) {
  const { place } = figure(parent, "gaps", caption);
  place.parentNode.querySelector("details").hidden = true; // the page has a table of the reads itself
  place.marks = [[errorAt, "bad", "error"], [firstToken, "good", "first token"]];
  const known = steps.filter((step) => step.at_s !== null);
  const of = (test) => known.map((step) => (test(step) ? step.gap_s : null));
  const dots = (name, size) => ({ stroke: colour(name), width: 0, paths: () => null, points: { show: true, size, fill: colour(name) } });
  draw(place, "gaps", {
    scales: { x: { time: false, range: (_, low, high) => [0, Math.max(high, errorAt ?? 0) * 1.02 || 1] }, y: { range: (_, low, high) => [0, high * 1.1 || 1] } },
    axes: axes({ label: "time since the request began (s)", size: 34 }, { label: "gap before the read (s)", size: 64 }),
    series: [{ label: "at (s)" }, { label: "token events", ...dots("accent", 5) }, { label: "other", ...dots("other", 5) }, { label: "stall", ...dots("bad", 9) }],
    hooks: { draw: [(plot) => paintMarks(plot, place.marks)] },
  }, [known.map((step) => step.at_s), of((step) => step.tokens && !step.stall), of((step) => !step.tokens && !step.stall), of((step) => step.stall)]);
}

function paintMarks(plot, marks) {
  const { ctx, bbox } = plot;
  ctx.save();
  ctx.font = `${12 * devicePixelRatio}px system-ui, sans-serif`;
  for (const [at, name, text] of marks) {
    if (at === null || at === undefined) continue;
    const x = plot.valToPos(at, "x", true);
    ctx.strokeStyle = ctx.fillStyle = colour(name);
    ctx.lineWidth = 2 * devicePixelRatio;
    ctx.beginPath();
    ctx.moveTo(x, bbox.top);
    ctx.lineTo(x, bbox.top + bbox.height);
    ctx.stroke();
    const fits = x + ctx.measureText(text).width + 8 < bbox.left + bbox.width;
    ctx.textAlign = fits ? "left" : "right";
    ctx.fillText(text, x + (fits ? 6 : -6), bbox.top + 14 * devicePixelRatio);
  }
  ctx.restore();
}

export function clock(start) {
  return new Date(start * 1000).toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
}
