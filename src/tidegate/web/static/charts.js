// Charts: a line with the band that holds nine of ten draws of the noise, drawn by uPlot.
import { colour, moment, valued } from "./parts.js";

/** A chart in an element; `readout` is called with words whenever the cursor moves. */
export class Chart {
  constructor(element, facts, { height = 320, small = false, readout = () => {}, sync = null } = {}) {
    Object.assign(this, { element, facts, height, small, readout, sync });
    this.resize = new ResizeObserver(() => this.fit());
    this.resize.observe(element);
    element.classList.add("chart");
    if (!small) this.keys();
  }

  show(series, label) {
    this.label = label;
    this.data = [series.seconds, series.values, series.low, series.high, series.first];
    if (this.plot && this.firsts === series.firsts) this.plot.setData(this.data);
    else {
      this.firsts = series.firsts;
      this.build();
    }
  }

  build() {
    this.plot?.destroy();
    this.element.replaceChildren();
    const ink = colour("soft");
    const grid = { stroke: colour("line"), width: 1 };
    const font = "12px system-ui, sans-serif";
    const axis = { stroke: ink, grid, ticks: grid, font };
    const edge = { stroke: "transparent", width: 0, points: { show: false } };
    this.plot = new uPlot(
      {
        width: this.width(),
        height: this.height,
        padding: [8, 22, 0, 0],
        tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1000), this.facts.zone),
        cursor: { drag: { x: !this.small, y: false }, points: { size: 7 }, ...(this.sync ? { sync: { key: this.sync } } : {}) },
        legend: { show: false },
        // one value alone has a step on both sides of it
        scales: { x: { range: (_, low, high) => (this.data[0].length === 1 ? [this.data[0][0] - this.facts.length, this.data[0][0] + this.facts.length] : [low, high]) }, y: { range: (_, low, high) => padded(low, high) } },
        axes: [
          { ...axis, space: this.small ? 60 : 70, values: (_, splits, _at, _space, step) => splits.map((each, index) => this.tick(each, index, step)) },
          { ...axis, size: this.small ? 54 : 60, values: (_, splits) => splits.map((value) => value.toLocaleString("en")) },
        ],
        series: [
          {},
          { stroke: colour("accent"), width: this.small ? 1.5 : 2, points: { show: this.data[0].length < 3 } },
          edge,
          edge,
          { stroke: "transparent", width: 0, show: this.firsts, points: { show: true, size: 3, width: 0, fill: colour("first"), stroke: colour("first") } },
        ],
        bands: [{ series: [3, 2], fill: colour("band") }],
        hooks: { setCursor: [(plot) => this.say(plot.cursor.idx)] },
      },
      this.data,
      this.element,
    );
  }

  /** Words below a tick: days by their date, moments within a day by their time, midnight by both; the first with its year. */
  tick(seconds, index, step) {
    const zone = { timeZone: this.facts.zone };
    const when = new Date(seconds * 1000);
    const day = new Intl.DateTimeFormat("en-GB", { ...zone, day: "numeric", month: "short", ...(index === 0 ? { year: "numeric" } : {}) }).format(when);
    if (step >= 86400) return day;
    const clock = { ...zone, hour: "2-digit", minute: "2-digit", hourCycle: "h23", ...(step < 60 ? { second: "2-digit" } : {}) };
    const time = new Intl.DateTimeFormat("en-GB", clock).format(when);
    return index === 0 || time === "00:00" ? `${time}\n${day}` : time;
  }

  width() {
    return Math.max(200, this.element.clientWidth);
  }

  fit() {
    if (this.plot && this.plot.width !== this.width()) this.plot.setSize({ width: this.width(), height: this.height });
  }

  restyle() {
    if (this.data) this.build();
  }

  say(index) {
    if (index === null || index === undefined || this.data[0][index] === undefined) return;
    const [seconds, values, low, high] = this.data.map((column) => column[index]);
    this.readout(`${moment(seconds, this.facts.zone, this.facts.length)}: ${valued(values, low, high)}`);
  }

  /** Arrow keys move the cursor, plus and minus zoom, 0 shows everything again. */
  keys() {
    this.at = null;
    this.element.addEventListener("keydown", (event) => {
      const count = this.data?.[0].length ?? 0;
      if (!count || event.ctrlKey || event.metaKey || event.altKey) return;
      const here = this.at ?? count - 1;
      const moves = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: count - 1, PageUp: here - 24, PageDown: here + 24 };
      if (event.key in moves) this.point(Math.min(count - 1, Math.max(0, moves[event.key])));
      else if (event.key === "+" || event.key === "-") this.zoom(event.key === "+" ? 0.5 : 2);
      else if (event.key === "0") this.whole();
      else return;
      event.preventDefault();
    });
    this.element.addEventListener("dblclick", () => this.whole());
  }

  point(index) {
    this.at = index;
    const left = this.plot.valToPos(this.data[0][index], "x");
    const top = this.plot.valToPos(this.data[1][index] ?? 0, "y");
    this.plot.setCursor({ left, top });
    this.say(index);
  }

  zoom(factor) {
    const { min, max } = this.plot.scales.x;
    const middle = this.at === null ? max : this.data[0][this.at];
    const span = (max - min) * factor;
    const ends = this.data[0];
    const from = Math.max(ends[0], middle - span / 2);
    this.plot.setScale("x", { min: from, max: Math.min(ends.at(-1), from + span) });
  }

  whole() {
    this.plot.setScale("x", { min: this.data[0][0], max: this.data[0].at(-1) });
  }

  remove() {
    this.resize.disconnect();
    this.plot?.destroy();
    this.element.remove();
  }
}

function padded(low, high) {
  if (low === null || high === null) return [0, 1];
  const room = 0.06 * (high - low || Math.abs(high) || 1);
  return [low >= 0 && low < room * 3 ? 0 : low - room, high + room];
}
