// The page of all streams.
import { STATES, begins, make, moment, sparkline, valued } from "./parts.js";

const STEPS = 96;
const cards = new Map();
const holder = document.getElementById("streams");

function card(facts) {
  const dot = make("span", { class: "dot" });
  const words = make("span");
  const picture = make("div");
  const value = make("span", { class: "plusminus" });
  const link = make("a", { href: facts.address.replace("/streams/", "/view/") }, facts.title ? [facts.title, facts.query].filter(Boolean).join(" · ") : facts.name.replace("/", " · "));
  holder.append(make("li", {}, make("div", { class: "card" }, make("h2", {}, link), make("span", { class: "state" }, dot, words), picture, value)));
  return { dot, words, picture, value, number: -1, visible: true };
}

async function update(facts) {
  if (!cards.has(facts.name)) cards.set(facts.name, card(facts));
  const known = cards.get(facts.name);
  known.dot.className = `dot ${facts.state}`;
  const since = facts.time ? moment(Date.parse(facts.time) / 1000, facts.zone, facts.length) : facts.first > 1 ? `silent until ${begins(facts)}, after an amendment` : "nothing yet";
  known.words.textContent = `${STATES[facts.state]} · ${since}`;
  if (known.number === facts.number || !facts.number) return;
  known.number = facts.number;
  const since_ = Math.max(1, facts.step - STEPS);
  const answer = await fetch(`${facts.address}/releases?since=${since_}`, { headers: { Accept: "application/json" } });
  if (!answer.ok) return;
  const found = await answer.json();
  const columns = found.columns ?? ["other"]; // where categories are found, the rest is what every release has
  const rest = (each, key) => [each[key][each.categories.indexOf("other")]];
  const releases = found.columns ? found.releases : found.releases.map((each) =>
    ({ ...each, values: rest(each, "values"), low: rest(each, "low"), high: rest(each, "high") }));
  // the column with the largest values stands for the stream
  const sums = columns.map((_, at) => releases.reduce((sum, each) => sum + (each.values[at] ?? 0), 0));
  const column = sums.indexOf(Math.max(...sums));
  const of = (key) => releases.map((each) => each[key][column]);
  known.picture.replaceChildren(sparkline(of("values"), of("low"), of("high"), `Course of ${columns[column]}`));
  const last = releases.at(-1);
  known.value.textContent = `${columns[column]}: ${valued(last.values[column], last.low[column], last.high[column])}`;
}

async function look() {
  try {
    const answer = await fetch("/streams", { headers: { Accept: "application/json" } });
    for (const stream of (await answer.json()).streams) for (const facts of stream.queries ?? [stream]) await update(facts);
  } catch {
    for (const known of cards.values()) known.words.textContent = "reconnecting …";
  }
  setTimeout(look, 2000);
}

look();
