// Builds tables and words. Text always becomes text nodes, never markup.

export function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...children);
  return made;
}

export const UNKNOWN = "–";

// Colours of outcomes are those of `top` and of the dashboards: a client that left is no error.
const KINDS = { completed: "good", client_abort: "warn", http_error: "other", open: "", silent: "bad" };
export const outcomeKind = (name) => KINDS[name] ?? "bad";

// An error in one word, as in `ledger query`: its code says more than its type.
export const errorWord = (error) => error.code ?? error.type ?? error.phase;

// The end of a stream id: ids begin with their time, so those of one minute begin alike. `ledger show` takes it.
export const shortId = (id) => id.slice(-8);

// An amount with more digits where it is small. One that is below the last digit is not shown as 0.
export function money(usd) {
  if (usd > 0 && usd < 0.0001) return "<0.0001";
  return usd.toLocaleString("en", { minimumFractionDigits: 2, maximumFractionDigits: usd < 1 ? 4 : 2 });
}

export function percent(part, whole) {
  return `${((100 * part) / whole).toFixed(1)} %`;
}

export function count(value) {
  return value === null || value === undefined ? UNKNOWN : value.toLocaleString("en");
}

export function seconds(value) {
  if (value === null || value === undefined) return UNKNOWN;
  if (value === 0) return "0 s";
  if (value < 0.001) return `${Math.round(value * 1e6)} µs`;
  if (value < 1) return `${Number((value * 1000).toPrecision(3))} ms`;
  if (value < 60) return `${value.toFixed(value < 10 ? 2 : 1)} s`;
  if (value < 3600) return `${Math.floor(value / 60)} min ${Math.floor(value % 60)} s`;
  return `${Math.floor(value / 3600)} h ${Math.floor((value % 3600) / 60)} min`;
}

// Fills a table: `columns` are {title, unit, number, wide, cell(row)}; a cell is a text, or {text, kind} or a node. Rows keep their
// elements, and with them the keyboard's focus, as long as their key stays. They keep their places while the focus is inside.
export function fill(table, columns, rows, key) {
  if (!table.tHead) {
    const titles = columns.map((column) =>
      element("th", { scope: "col", class: classOf(column) }, column.unit ? `${column.title} (${column.unit})` : column.title));
    table.append(element("thead", {}, element("tr", {}, ...titles)), element("tbody"));
  }
  const body = table.tBodies[0];
  const known = new Map([...body.rows].map((line) => [line.dataset.key, line]));
  const lines = rows.map((row, place) => {
    const name = String(key(row, place));
    const line = known.get(name) ?? element("tr", { "data-key": name, class: known.size ? "new" : null });
    known.delete(name);
    columns.forEach((column, at) => fillCell(line, at, column, column.cell(row, place)));
    return line;
  });
  for (const line of known.values()) line.remove();
  const held = body.contains(document.activeElement);
  lines.forEach((line, at) => {
    const there = body.rows[at] ?? null;
    if (there !== line && !(held && line.parentNode)) body.insertBefore(line, there);
  });
  const scroll = table.closest(".scroll");
  scroll.hidden = rows.length === 0;
  letKeyboardScroll(scroll, table);
}

// A table that is wider than the window is a region that the keyboard reaches, with the table's caption as its name.
function letKeyboardScroll(scroll, table) {
  if (scroll.scrollWidth > scroll.clientWidth) {
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", table.caption.textContent);
  } else if (document.activeElement !== scroll) {
    for (const name of ["tabindex", "role", "aria-label"]) scroll.removeAttribute(name);
  }
}

function fillCell(line, at, column, content) {
  let cell = line.cells[at];
  if (!cell) {
    cell = at === 0 ? element("th", { scope: "row" }) : element("td", { class: classOf(column) });
    line.append(cell);
  }
  if (content instanceof Node) {
    if (!cell.firstChild || !cell.firstChild.isEqualNode(content)) {
      if (!cell.contains(document.activeElement)) cell.replaceChildren(content);
    }
    return;
  }
  const { text, kind } = typeof content === "object" && content !== null ? content : { text: content, kind: "" };
  if (cell.textContent !== String(text)) cell.textContent = text;
  cell.className = classOf(column, kind) ?? "";
}

// `wide`: a column that narrow windows leave out.
function classOf(column, kind) {
  return [column.number && "number", column.wide && "wide", kind].filter(Boolean).join(" ") || null;
}

export function describe(list, pairs) {
  const nodes = pairs.map(([term, text, kind]) =>
    element("div", {}, element("dt", {}, term), element("dd", { class: kind }, String(text))));
  list.replaceChildren(...nodes);
}

const SVG = "http://www.w3.org/2000/svg";

// One bar a second, the newest at the right. Its height grows with the root of the number, so that one token event is seen
// beside a hundred.
export function ticks(values, longest) {
  if (!values) return UNKNOWN;
  const picture = document.createElementNS(SVG, "svg");
  const last = values.slice(-10).reduce((sum, value) => sum + value, 0);
  const all = values.reduce((sum, value) => sum + value, 0);
  const attributes = { class: "ticks", viewBox: "0 0 120 20", role: "img",
    "aria-label": `${all} token events in the last ${values.length} s, ${last} in the last 10 s` };
  for (const [name, value] of Object.entries(attributes)) picture.setAttribute(name, value);
  values.forEach((value, at) => {
    if (!value) return;
    const height = Math.max(2, 20 * Math.sqrt(value / longest));
    const bar = document.createElementNS(SVG, "rect");
    for (const [name, number] of Object.entries({ x: at * 2, y: 20 - height, width: 1.5, height })) {
      bar.setAttribute(name, number);
    }
    picture.append(bar);
  });
  return picture;
}
