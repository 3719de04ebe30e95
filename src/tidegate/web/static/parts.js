// Small parts that all pages share.

export const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children. */
export function make(tag, attributes = {}, ...children) {
  const found = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "class") found.className = value;
    else if (value !== null && value !== undefined) found.setAttribute(name, value);
  }
  found.append(...children);
  return found;
}

/** An SVG element with attributes and children. */
export function draw(tag, attributes = {}, ...children) {
  const found = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) found.setAttribute(name, value);
  found.append(...children);
  return found;
}

/** A colour of the present theme. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** A number as people read it: as many digits as its range makes sense of. */
export function shown(value, half = null) {
  if (value === null || value === undefined) return "–";
  const size = half ? Math.abs(half) : Math.abs(value);
  const digits = size >= 10 || Number.isInteger(value) ? 0 : size >= 1 ? 1 : size >= 0.1 ? 2 : 3;
  return value.toLocaleString("en", { maximumFractionDigits: digits, minimumFractionDigits: 0 });
}

/** Half of the length of an interval. */
export const half = (low, high) => ((low ?? null) === null || (high ?? null) === null ? null : (high - low) / 2);

/** The interval of a value in words: "± 35" where the value is in its middle, else "between 0 and 70". */
export function range(value, low, high) {
  const around = half(low, high);
  if (around === null || (value ?? null) === null) return "";
  if (Math.abs((low + high) / 2 - value) <= 0.02 * around) return `± ${shown(around)}`;
  return `between ${shown(low, around)} and ${shown(high, around)}`;
}

/** A value and its interval. */
export function valued(value, low, high) {
  const words = range(value, low, high);
  return `${shown(value, half(low, high))}${words ? (words.startsWith("±") ? ` ${words}` : `, ${words}`) : ""}`;
}

/** A moment (seconds) in a time zone. */
export function moment(seconds, zone, length = 3600) {
  const options = { timeZone: zone, weekday: "short", day: "numeric", month: "short", year: "numeric" };
  if (length < 86400) Object.assign(options, { hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
  if (length < 60) options.second = "2-digit";
  return new Intl.DateTimeFormat("en-GB", options).format(new Date(seconds * 1000));
}

/** The moment of the first step that is released. */
export const begins = (facts) => moment(Date.parse(facts.first_time) / 1000, facts.zone, facts.length);

/** A line with its band, for a few values; null where there are too few. */
export function sparkline(values, lows, highs, label) {
  const known = [...values, ...lows, ...highs].filter((value) => value !== null);
  const bottom = Math.min(...known);
  const span = Math.max(...known) - bottom || 1;
  const at = (index) => (100 * index) / Math.max(1, values.length - 1);
  const up = (value) => 30 - (28 * (value - bottom)) / span - 1;
  const point = (value, index) => `${at(index).toFixed(2)},${up(value).toFixed(2)}`;
  const picture = draw("svg", { class: "spark", viewBox: "0 0 100 30", preserveAspectRatio: "none", role: "img", "aria-label": label });
  if (values.length > 1 && lows.every((value) => value !== null)) {
    const around = [...highs.map(point), ...lows.map(point).reverse()];
    picture.append(draw("path", { class: "band", d: `M${around.join("L")}Z` }));
  }
  if (values.length > 1) picture.append(draw("path", { d: `M${values.map((value, index) => point(value ?? bottom, index)).join("L")}` }));
  return picture;
}

/** A table from a head and rows of texts. */
export function table(head, rows, caption) {
  const found = make("table", {});
  if (caption) found.append(make("caption", { class: "quiet" }, caption));
  found.append(make("thead", {}, make("tr", {}, ...head.map((text) => make("th", { scope: "col" }, text)))));
  found.append(make("tbody", {}, ...rows.map((row) => make("tr", {}, ...row.map((cell, at) =>
    at ? make("td", {}, cell) : make("th", { scope: "row" }, cell))))));
  return found;
}

export const STATES = { running: "live", waiting: "live; a sink is waited for", ended: "complete", failed: "interrupted", opening: "opening", stopped: "stopped" };
