// The operator's page: asks for a token, keeps it for this tab only, and shows nothing without one.
import { Chart } from "./charts.js";
import { STATES, draw, make, shown } from "./parts.js";

const at = (id) => document.getElementById(id);
const EVERY = 3000; // milliseconds
let token = sessionStorage.getItem("token") ?? "";
const known = new Map();

async function ask(address, method = "GET") {
  const answer = await fetch(address, { method, headers: { Authorization: `Bearer ${token}`, Accept: "application/json" } });
  if (answer.status === 401 || answer.status === 403) throw new Error("refused");
  return answer.json();
}

function section(name, stream) {
  const parts = { dot: make("span", { class: "dot" }), state: make("span"), facts: make("dl", { class: "facts" }), warnings: make("div"), gauge: gauge(), words: make("p", { class: "readout" }), verdict: make("p", { role: "status" }), configuration: make("pre", { tabindex: "0" }) };
  const holder = make("div", { role: "img", "aria-label": "Budget of the window at each step" });
  const button = make("button", { type: "button" }, "Verify the log now");
  button.addEventListener("click", async () => {
    button.disabled = true;
    parts.verdict.textContent = "replaying all charges …";
    const found = await ask(`/operator/streams/${stream}/verify`, "POST");
    parts.verdict.textContent = found.verdict;
    button.disabled = false;
  });
  at("streams").append(
    make("section", { class: "card", "aria-label": name },
      make("h2", {}, name), make("span", { class: "state" }, parts.dot, parts.state), parts.warnings,
      make("h3", {}, "Budget of the current window"), parts.gauge.svg, parts.words,
      make("h3", {}, "Its history"), holder, parts.facts,
      make("p", {}, button), parts.verdict,
      make("details", {}, make("summary", {}, "Configuration"), parts.configuration)),
  );
  return { ...parts, holder };
}

function gauge() {
  const fill = draw("rect", { class: "fill", height: 10, width: 0, rx: 2 });
  const svg = draw("svg", { class: "gauge", viewBox: "0 0 100 10", preserveAspectRatio: "none", role: "img" },
    draw("rect", { class: "back", width: 100, height: 10, rx: 2 }), fill);
  return { svg, fill };
}

function show(name, found) {
  if (!known.has(name)) known.set(name, section(name, found.stream));
  const parts = known.get(name);
  parts.dot.className = `dot ${found.state}`;
  parts.state.textContent = STATES[found.state];
  parts.warnings.replaceChildren(...found.warnings.map((words) => make("p", { class: "warning" }, words)));
  const part = found.budget.part;
  parts.gauge.fill.setAttribute("width", (100 * part).toFixed(2));
  const where = found.window ? `the last ${found.window.toLocaleString("en")} steps` : "all steps";
  const words = `${Math.round(100 * part)} % of the budget (${found.budget.limit}) spent in ${where}`;
  parts.gauge.svg.setAttribute("aria-label", words);
  parts.words.textContent = words;
  const { plan } = found;
  const facts = {
    "Last step": `${found.step.toLocaleString("en")} (${found.time ?? "none yet"})`,
    Lag: found.lag === null ? "–" : `${(1000 * found.lag).toFixed(0)} ms from the close of the last step to its release`,
    "Last commit": found.committed ? new Date(1000 * found.committed).toISOString() : "before this start",
    Sink: found.sink ?? "none but readers",
    "Readers of the live feed": String(found.clients),
    "Error, predicted": plan.expected_error === null ? "–" : `mean absolute error ${shown(plan.expected_error, 0.5)}`,
    "Interval, measured": plan.half_interval === null ? "–" : `± ${shown(plan.half_interval, 0.5)} on average`,
    Guarantee: found.guarantee,
  };
  parts.facts.replaceChildren(...Object.entries(facts).flatMap(([term, words_]) => [make("dt", {}, term), make("dd", {}, words_)]));
  parts.configuration.textContent = JSON.stringify(found.configuration, null, 2);
  const { history } = found;
  if (!history.steps.length) return;
  parts.chart ??= new Chart(parts.holder, found, { height: 160, small: true });
  const seconds = history.times.map((text) => Date.parse(text) / 1000);
  const nothing = seconds.map(() => null);
  parts.chart.show({ seconds, values: history.spent, low: seconds.map(() => 0), high: seconds.map(() => history.limit), first: nothing, firsts: false }, "budget");
}

async function look() {
  try {
    const { streams } = await (await fetch("/streams")).json();
    const all = streams.flatMap((stream) => stream.queries ?? [stream]);
    for (const { name, address } of all) show(name, await ask(`/operator${address}`));
    at("door").classList.add("hidden");
    sessionStorage.setItem("token", token);
    setTimeout(look, EVERY);
  } catch (error) {
    if (error.message === "refused") {
      sessionStorage.removeItem("token");
      at("door").classList.remove("hidden");
      at("refused").textContent = "This token does not open anything; it needs the role operator.";
    } else setTimeout(look, EVERY);
  }
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  token = at("token").value.trim();
  at("token").value = "";
  at("refused").textContent = "";
  look();
});
addEventListener("themechange", () => known.forEach((parts) => parts.chart?.restyle()));
if (token) look();
