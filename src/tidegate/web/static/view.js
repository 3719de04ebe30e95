// The page of one stream.
import { Chart } from "./charts.js";
import { Stream } from "./data.js";
import { Map_ } from "./map.js";
import { STATES, begins, colour, half, make, moment, range, shown, sparkline, table, valued } from "./parts.js";

const DAY = 86400;
const FIRST_MULTIPLES = 24;
const ROWS = 200;
const at = (id) => document.getElementById(id);

const stream = new Stream(location.pathname.split("/").slice(2).map(decodeURIComponent).join("/"));
const seen = { layout: "chart", range: "week", column: 0, moved: 0, many: FIRST_MULTIPLES };
let charts = [];
let drawn = null; // which layout is on the stage

const pressed = (group, key, value) => {
  for (const button of at(group).querySelectorAll("button")) button.setAttribute("aria-pressed", String(button.dataset[key] === value));
};

/** The span of time that is shown, in seconds. */
function span() {
  const newest = stream.newest;
  if (!newest) return [0, 1];
  const length = stream.facts.length;
  const sizes = { day: Math.max(DAY, 24 * length * (length >= DAY)), week: Math.max(7 * DAY, 7 * length), all: Infinity };
  const size = fewer(sizes[seen.range]);
  const end = newest.seconds + length + seen.moved * size;
  return size === Infinity ? [0, Infinity] : [end - size, end];
}

/** Streams of short steps have no week yet: then a day is 24 steps of a hundredth, and so on. */
function fewer(size) {
  const first = stream.sorted[0]?.seconds ?? 0;
  const whole = (stream.newest?.seconds ?? 0) - first + stream.facts.length;
  return seen.range === "all" ? Infinity : Math.min(size, Math.max(whole, stream.facts.length * 24));
}

/** Where categories are found, new ones come with releases. */
function offer() {
  const known = at("column").options.length;
  at("column").append(...stream.facts.labels.slice(known).map((label, more) => make("option", { value: known + more }, label)));
  if (stream.facts.labels.length > 1) at("layouts").classList.remove("hidden");
}

function refresh() {
  const newest = stream.newest;
  state();
  offer();
  at("key").classList.toggle("hidden", !newest || seen.layout === "map" || seen.layout === "list");
  if (!newest) {
    const amended = stream.silent ? " The stream was amended: until then nothing is released." : "";
    at("plusminus").textContent = `The first number is that of ${begins(stream.facts)}, and comes when this step has closed.${amended}`;
    return;
  }
  const label = stream.facts.labels[seen.column];
  const around = half(newest.low[seen.column], newest.high[seen.column]);
  at("figure").textContent = shown(newest.values[seen.column], around);
  const since = moment(newest.seconds, stream.facts.zone, stream.facts.length);
  const words = range(newest.values[seen.column], newest.low[seen.column], newest.high[seen.column]);
  at("plusminus").textContent = `${words} in ${label}, ${since}`;
  const [from, to] = span();
  if (drawn !== seen.layout) stage();
  const layouts = { chart: chart, multiples: multiples, list: list, map: map };
  layouts[seen.layout](from, to);
  const later = at("moves").querySelector('[data-move="1"]');
  later.disabled = seen.moved >= 0;
  for (const button of at("moves").querySelectorAll("button")) if (button !== later) button.disabled = seen.range === "all";
  if (at("table-details").open) fillTable();
}

function state() {
  const raised = stream.facts.alarms.filter((alarm) => alarm.raised);
  at("alarms").replaceChildren(...raised.map((alarm) => make("p", { class: "warning" }, `${alarm.name}: ${alarm.column} is ${
    alarm.above === null ? `below ${shown(alarm.below)}` : `above ${shown(alarm.above)}`}`)),
  ...stream.facts.answers.flatMap((each) => each.raised.map((column) => make("p", { class: "warning" }, `${each.name}: ${column}`))));
  const silent = stream.silent && stream.facts.state === "running" ? `; silent until ${begins(stream.facts)}, after an amendment` : "";
  const known = stream.connected ? STATES[stream.facts.state] + silent : stream.facts.state === "ended" ? "complete" : "reconnecting …";
  at("dot").className = `dot ${stream.connected ? stream.facts.state : ""}`;
  const by = stream.facts.publisher ? ` · published by ${stream.facts.publisher}` : "";
  at("state").textContent = `${known} · a number every ${stream.facts.every} · times in ${stream.facts.zone}${by}`;
}

function stage() {
  for (const each of charts) each.remove();
  charts = [];
  drawn = seen.layout;
  at("stage").replaceChildren();
  at("unseen").classList.add("hidden");
  at("readout").textContent = "";
  const single = seen.layout === "chart" && stream.facts.labels.length > 1;
  at("column-label").classList.toggle("hidden", !single);
  key(false);
  for (const id of ["ranges", "moves"]) at(id).classList.toggle("hidden", seen.layout === "map");
}

function key(firsts) {
  at("key-first").classList.toggle("hidden", !firsts);
}

function chart(from, to) {
  if (!charts.length) {
    const element = make("div", { tabindex: "0", role: "group", "aria-roledescription": "chart" });
    at("stage").append(element);
    charts = [new Chart(element, stream.facts, { readout: (words) => (at("readout").textContent = words) })];
  }
  const series = stream.series(seen.column, from, to);
  const label = stream.facts.labels[seen.column];
  charts[0].element.setAttribute(
    "aria-label",
    `${label}: ${series.seconds.length} values. Arrow keys read them one by one, plus and minus zoom, 0 shows all. The table below has the same.`,
  );
  charts[0].show(series, label);
  key(series.firsts);
  unseen(series);
}

/** Says so where nothing but 0 was released in the time that is shown: a narrow band at 0 would look like knowledge. */
function unseen(series) {
  const nothing = series.seconds.length > 0 && series.values.every((value) => !value);
  charts[0].element.classList.toggle("hidden", nothing);
  at("key").classList.toggle("hidden", nothing);
  at("unseen").classList.toggle("hidden", !nothing);
  at("unseen").textContent = nothing
    ? "No value is visible in this time: what was counted, if anything, is too small to be distinguished from 0."
    : "";
}

function multiples(from, to) {
  key(stream.firsts.size > 0);
  const stageElement = at("stage");
  const count = Math.min(seen.many, stream.facts.labels.length);
  if (charts.length !== count) {
    for (const each of charts) each.remove();
    charts = [];
    const grid = make("div", { class: "multiples" });
    stageElement.replaceChildren(grid);
    for (let column = 0; column < count; column += 1) {
      const holder = make("div", { role: "img" });
      const value = make("span");
      grid.append(make("div", { class: "multiple" }, make("h3", {}, make("span", {}, stream.facts.labels[column]), value), holder));
      const each = new Chart(holder, stream.facts, { height: 150, small: true, sync: "multiples", readout: (words) => (value.textContent = words.split(": ").at(-1)) });
      each.value = value;
      charts.push(each);
    }
    if (count < stream.facts.labels.length) {
      const more = make("button", { type: "button" }, `Show all ${stream.facts.labels.length}`);
      more.addEventListener("click", () => {
        seen.many = stream.facts.labels.length;
        refresh();
      });
      stageElement.append(more);
    }
  }
  charts.forEach((each, column) => {
    each.show(stream.series(column, from, to), stream.facts.labels[column]);
    const newest = stream.newest;
    each.value.textContent = valued(newest.values[column], newest.low[column], newest.high[column]);
    each.element.setAttribute("aria-label", `${stream.facts.labels[column]}, newest value ${each.value.textContent}`);
  });
}

function list(from, to) {
  const newest = stream.newest;
  const rows = stream.facts.labels.map((label, column) => {
    const series = stream.series(column, from, to);
    const around = half(newest.low[column], newest.high[column]);
    const words = range(newest.values[column], newest.low[column], newest.high[column]);
    const row = [label, shown(newest.values[column], around), words, sparkline(series.values, series.low, series.high, `Course of ${label}`)];
    return stream.facts.found ? [...row, ...opening(newest, column)] : row;
  });
  const more = stream.facts.found ? ["Open since", "Units in its last test"] : [];
  at("stage").replaceChildren(make("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "List of columns" },
    table(["Column", "Newest", "Range", "Course", ...more], rows, "Newest value of every column")));
}

/** Since when a category is open, and how many units its last test has seen. */
function opening(newest, column) {
  if (newest.opened?.[column] === null) return ["all others", ""];
  if (!newest.opened?.[column]) return ["closed", ""];
  return [moment(Date.parse(newest.opened[column]) / 1000, stream.facts.zone, stream.facts.length), shown(newest.units[column])];
}

async function map() {
  const stageElement = at("stage");
  if (!stream.map) {
    const geojson = await stream.ask(`${stream.address}/map`);
    stream.map = { geojson };
  }
  if (drawn !== "map") return;
  if (!stageElement.querySelector("svg")) {
    const holder = make("div", { class: "map" });
    const words = make("span");
    stageElement.replaceChildren(holder, make("p", { class: "legend" }, "0", make("span", { class: "ramp" }), words));
    stream.map.picture = new Map_(holder, stream.map.geojson, stream.facts.labels);
    stream.map.words = words;
  }
  const most = stream.map.picture.show(stream.newest, colour("low"), colour("high"));
  stream.map.words.textContent = shown(most);
}

function fillTable() {
  const [from, to] = span();
  const columns = seen.layout === "chart" ? [seen.column] : stream.facts.labels.map((_, column) => column);
  const rows = stream.sorted.filter((release) => release.seconds >= from && release.seconds <= to).slice(-ROWS).reverse();
  const head = ["Time", ...columns.map((column) => stream.facts.labels[column]), "Kind"];
  const body = rows.map((release) => [
    moment(release.seconds, stream.facts.zone, stream.facts.length),
    ...columns.map((column) => valued(release.values[column], release.low[column], release.high[column])),
    release.revision ? `revised, ${release.status}` : release.status,
  ]);
  at("table").replaceChildren(table(head, body, `The newest ${rows.length} steps of the time that is shown`));
}

function explain() {
  const { facts } = stream;
  const named = facts.title ? [facts.title, ...(facts.query ? [title(facts.query)] : [])].join(" · ") : title(stream.name);
  document.title = `${named} – live`;
  at("name").textContent = named;
  const whole = make("details", {}, make("summary", {}, "The guarantee in full"), make("p", {}, facts.guarantee));
  at("guarantee").replaceChildren(`Protected: ${facts.promise}.`, whole);
  at("queries").replaceChildren(...facts.queries.map((query) =>
    make("a", { href: `/view/${facts.stream}/${query}`, "aria-current": query === facts.query ? "page" : null }, title(query))));
  at("queries").classList.toggle("hidden", facts.queries.length < 2);
  at("meaning").append(...facts.meaning.map(({ question, answer }, index) =>
    make("details", index ? {} : { open: "" }, make("summary", {}, question), make("p", {}, answer))));
  const formats = { csv: "CSV", json: "JSON", parquet: "Parquet", arrow: "Arrow" };
  at("downloads").append(...Object.entries(formats).map(([format, words]) =>
    make("a", { class: "button", href: `${stream.address}/releases?format=${format}`, download: `${stream.name.replace("/", "-")}.${format}` }, words)));
  at("downloads").append(...facts.answers.map((each) => make("a", { class: "button", href: each.address }, title(each.name))));
  offer();
  at("layouts").querySelector('[data-layout="map"]').classList.toggle("hidden", !facts.map);
  if (facts.labels.length === 1) at("layouts").classList.add("hidden");
}

const title = (name) => name.split("/").map((each) => each.charAt(0).toUpperCase() + each.slice(1).replaceAll(/[-_]/g, " ")).join(" · ");

function listen() {
  at("layouts").addEventListener("click", ({ target }) => {
    if (!target.dataset.layout) return;
    seen.layout = target.dataset.layout;
    pressed("layouts", "layout", seen.layout);
    refresh();
  });
  at("ranges").addEventListener("click", async ({ target }) => {
    if (!target.dataset.range) return;
    seen.range = target.dataset.range;
    seen.moved = 0;
    pressed("ranges", "range", seen.range);
    if (seen.range === "all") await stream.all();
    refresh();
  });
  at("moves").addEventListener("click", async ({ target }) => {
    if (!target.dataset.move) return;
    const by = Number(target.dataset.move);
    seen.moved = by ? Math.min(0, seen.moved + by) : 0;
    if (by < 0) await stream.all();
    refresh();
  });
  at("column").addEventListener("change", ({ target }) => {
    seen.column = Number(target.value);
    refresh();
  });
  at("table-details").addEventListener("toggle", refresh);
  addEventListener("themechange", () => {
    for (const each of charts) each.restyle();
    if (drawn === "map") refresh();
  });
  setInterval(() => stream.renew(), 10000);
  stream.listeners.push((change) => (change.news && seen.moved < 0 ? state() : refresh()));
}

try {
  await stream.open();
  explain();
  listen();
  refresh();
  globalThis.tidegate = Object.assign(stream, { charts: () => charts }); // for whoever looks with the browser's tools
} catch {
  at("state").textContent = "this stream cannot be reached at the moment; the page tries again";
  setTimeout(() => location.reload(), 3000);
}
