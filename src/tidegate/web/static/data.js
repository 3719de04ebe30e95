// The releases of one stream in the browser: loaded once, then kept up to date by the live feed.

const AT_FIRST = 2500; // steps, fewer where there are many columns
const MOST_VALUES = 300000;

export class Stream {
  /** A name is that of a stream, or of a query of it: "shop" or "shop/orders". */
  constructor(name) {
    this.name = name;
    this.address = `/streams/${name.split("/").map(encodeURIComponent).join("/")}`;
    this.releases = new Map(); // step → the newest release of it
    this.firsts = new Map(); // step → the first release of it, where it was revised
    this.last = 0; // the number of the last release that is known
    this.sorted = [];
    this.listeners = [];
    this.connected = false;
  }

  async open() {
    this.facts = await this.ask(this.address);
    this.labels = this.facts.labels;
    const steps = Math.min(AT_FIRST, Math.max(50, Math.floor(MOST_VALUES / this.facts.labels.length)));
    const since = Math.max(1, this.facts.step - steps);
    await this.load(since);
    this.follow();
  }

  async ask(address) {
    const answer = await fetch(address, { headers: { Accept: "application/json" } });
    if (!answer.ok) throw new Error(`${answer.status}`);
    return answer.json();
  }

  async load(since) {
    const revision = this.facts.revises ? "all" : "latest";
    const found = await this.ask(`${this.address}/releases?since=${since}&revision=${revision}`);
    for (const release of found.releases) this.take(release);
    this.last = Math.max(this.last, found.last);
    this.from = since;
    this.arrange();
  }

  async all() {
    const asked = this.facts.step * this.facts.labels.length;
    // beyond that a picture has fewer dots than values anyway, and the download has them all
    if (this.from > 1) await this.load(Math.max(1, Math.floor(this.facts.step * (1 - Math.min(1, (5 * MOST_VALUES) / asked)))));
  }

  /** Where categories are found, a release names its columns: each category keeps its place from then on. */
  place(release) {
    const places = release.categories.map((name) => {
      if (!this.labels.includes(name)) this.labels.push(name);
      return this.labels.indexOf(name);
    });
    for (const key of ["values", "low", "high", "opened", "units"]) {
      const placed = [];
      places.forEach((at, index) => (placed[at] = release[key][index]));
      release[key] = placed;
    }
  }

  take(release) {
    release.seconds = Date.parse(release.time) / 1000;
    if (release.categories) this.place(release);
    const before = this.releases.get(release.step);
    if (before && before.revision >= release.revision) return;
    if (before && !this.firsts.has(release.step)) this.firsts.set(release.step, before);
    this.releases.set(release.step, release);
  }

  arrange() {
    this.sorted = [...this.releases.values()].sort((one, other) => one.step - other.step);
  }

  follow() {
    this.feed?.close();
    const feed = (this.feed = new EventSource(`${this.address}/live?after=${this.last}`));
    let waiting = false;
    feed.addEventListener("open", () => this.tell({ connected: true }));
    feed.addEventListener("error", () => {
      this.tell({ connected: false });
      // a browser gives up where the answer is an error, for example while a proxy waits for the service
      if (feed.readyState === EventSource.CLOSED) setTimeout(() => this.follow(), 2000);
    });
    feed.addEventListener("reset", () => {
      this.releases.clear();
      this.firsts.clear();
      this.last = 0;
    });
    feed.addEventListener("alarm", () => this.renew());
    feed.addEventListener("release", (event) => {
      const release = JSON.parse(event.data);
      if (release.number <= this.last) return;
      this.last = release.number;
      this.take(release);
      if (waiting) return;
      waiting = true; // many releases at once are drawn once
      requestAnimationFrame(() => {
        waiting = false;
        this.arrange();
        this.tell({ news: true });
      });
    });
  }

  /** What changes beside the releases: the stream's state and budget. */
  async renew() {
    try {
      this.facts = await this.ask(this.address);
      if (this.facts.found) this.facts.labels = this.labels;
      this.tell({ facts: true });
    } catch {
      // the feed says so already
    }
  }

  tell(change) {
    if ("connected" in change) this.connected = change.connected;
    for (const listener of this.listeners) listener(change);
  }

  get newest() {
    return this.sorted.findLast((release) => release.number !== null || release.status !== "silent") ?? null;
  }

  /** Whether the query releases nothing at present, because it was amended. */
  get silent() {
    return this.facts.first > 1 && !this.sorted.at(-1)?.number;
  }

  /** Columns of numbers for a chart, from one moment to another. */
  series(column, from, to) {
    const found = { seconds: [], values: [], low: [], high: [], first: [] };
    for (const release of this.sorted) {
      if (release.seconds < from || release.seconds > to) continue;
      found.seconds.push(release.seconds);
      found.values.push(release.values[column] ?? null);
      found.low.push(release.low[column] ?? null);
      found.high.push(release.high[column] ?? null);
      found.first.push(this.firsts.get(release.step)?.values[column] ?? null);
    }
    // a first value is worth a dot where the newest one is visibly another
    const range = Math.max(...found.values) - Math.min(...found.values) || 1;
    found.first = found.first.map((first, at) => (first !== null && Math.abs(first - found.values[at]) > 0.01 * range ? first : null));
    return { ...found, firsts: found.first.some((first) => first !== null) };
  }
}
