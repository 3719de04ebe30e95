// One chart in a frame of somebody else's page. Its address says what is shown: ?column=Library&steps=168&theme=dark.
import { Chart } from "./charts.js";
import { Stream } from "./data.js";
import { half, make, moment, range, shown } from "./parts.js";

const at = (id) => document.getElementById(id);
const asked = new URLSearchParams(location.search);
const name = location.pathname.split("/").slice(2).map(decodeURIComponent).join("/");
const stream = new Stream(name);
// a frame may have no storage of its own, so the theme is that of the address or of the system
const prefers = matchMedia("(prefers-color-scheme: dark)");
const theme = () => (document.documentElement.dataset.theme = asked.get("theme") ?? (prefers.matches ? "dark" : "light"));
theme();

function refresh(chart, column) {
  const newest = stream.newest;
  if (!newest) {
    at("plusminus").textContent = "The first number comes when the first step has closed.";
    return;
  }
  const { labels, zone, length } = stream.facts;
  const [value, low, high] = [newest.values[column], newest.low[column], newest.high[column]];
  at("figure").textContent = shown(value, half(low, high));
  at("plusminus").textContent = `${range(value, low, high)} in ${labels[column]}, ${moment(newest.seconds, zone, length)}`;
  const steps = Number(asked.get("steps")) || 168;
  chart.show(stream.series(column, newest.seconds - (steps - 1) * length, Infinity), labels[column]);
}

try {
  await stream.open();
  const { facts } = stream;
  const column = Math.max(0, facts.labels.indexOf(asked.get("column")));
  at("name").textContent = facts.title || name;
  document.title = facts.title || name;
  at("promise").textContent = `Noisy by design. Protected: ${facts.promise}.`;
  at("whole").href = `/view/${name}`;
  const stage = make("div", { tabindex: "0", role: "group", "aria-roledescription": "chart", "aria-label": facts.labels[column] });
  at("stage").append(stage);
  const chart = new Chart(stage, facts, { height: 240, readout: (words) => (at("readout").textContent = words) });
  prefers.addEventListener("change", () => {
    theme();
    chart.restyle();
  });
  stream.listeners.push(() => refresh(chart, column));
  refresh(chart, column);
} catch {
  at("plusminus").textContent = "this stream cannot be reached at the moment; the page tries again";
  setTimeout(() => location.reload(), 3000);
}
