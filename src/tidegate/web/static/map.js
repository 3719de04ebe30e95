// A map as SVG from the user's GeoJSON: areas by colour, points by size. No tiles, no network.
import { draw, valued } from "./parts.js";

const WIDTH = 800;

/** Which column a feature belongs to: its name, label, title, column or id. */
function columnOf(feature, labels) {
  const properties = feature.properties ?? {};
  for (const key of ["column", "name", "label", "title", "id"]) {
    const at = labels.indexOf(String(properties[key]));
    if (properties[key] !== undefined && at >= 0) return at;
  }
  return labels.indexOf(String(feature.id));
}

function rings(geometry) {
  if (geometry?.type === "Polygon") return [geometry.coordinates];
  if (geometry?.type === "MultiPolygon") return geometry.coordinates;
  return [];
}

function points(geometry) {
  if (geometry?.type === "Point") return [geometry.coordinates];
  if (geometry?.type === "MultiPoint") return geometry.coordinates;
  return [];
}

export class Map_ {
  constructor(element, geojson, labels) {
    this.labels = labels;
    this.features = geojson.features.map((feature) => ({ feature, column: columnOf(feature, labels) }));
    const all = this.features.flatMap(({ feature }) => [...rings(feature.geometry).flat(2), ...points(feature.geometry)]);
    const xs = all.map((one) => one[0]);
    const ys = all.map((one) => one[1]);
    const [west, east, south, north] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    const geographic = west >= -180 && east <= 180 && south >= -90 && north <= 90;
    const squeeze = geographic ? Math.cos(((south + north) / 2) * (Math.PI / 180)) : 1;
    const scale = (WIDTH - 80) / Math.max((east - west) * squeeze, north - south, 1e-12);
    const height = (north - south) * scale + 80;
    const width = (east - west) * squeeze * scale + 80;
    this.project = ([x, y]) => [40 + (x - west) * squeeze * scale, 40 + (north - y) * scale];
    this.svg = draw("svg", { viewBox: `0 0 ${width.toFixed(0)} ${height.toFixed(0)}`, role: "img", "aria-label": "Map of the newest values" });
    element.replaceChildren(this.svg);
    this.build();
  }

  build() {
    this.shapes = [];
    for (const { feature, column } of this.features) {
      const areas = rings(feature.geometry);
      if (areas.length) {
        const path = areas.flat().map((ring) => `M${ring.map((one) => this.project(one).map((v) => v.toFixed(1)).join(",")).join("L")}Z`);
        const shape = draw("path", { class: "area none", d: path.join(""), "fill-rule": "evenodd" });
        this.svg.append(shape);
        this.shapes.push({ shape, column, centre: this.middle(areas) });
      }
      for (const spot of points(feature.geometry)) {
        const [cx, cy] = this.project(spot);
        const shape = draw("circle", { class: "spot", cx, cy, r: 4 });
        this.svg.append(shape);
        this.shapes.push({ shape, column, centre: [cx, cy], point: true });
      }
    }
    for (const each of this.shapes) {
      const top = each.centre[1] - (each.point ? 50 : 0);
      each.words = draw("text", { x: each.centre[0], y: top });
      each.number = draw("text", { x: each.centre[0], y: top + 16 });
      each.title = draw("title");
      each.shape.append(each.title);
      if (each.column >= 0) this.svg.append(each.words, each.number);
      each.words.textContent = this.labels[each.column] ?? "";
    }
  }

  middle(areas) {
    const outer = areas.map((rings) => rings[0]).sort((one, other) => other.length - one.length)[0].map(this.project);
    const xs = outer.map((one) => one[0]);
    const ys = outer.map((one) => one[1]);
    return [(Math.min(...xs) + Math.max(...xs)) / 2, (Math.min(...ys) + Math.max(...ys)) / 2];
  }

  show(release, low, high) {
    const most = Math.max(1e-9, ...release.values.map((value) => value ?? 0));
    for (const { shape, column, title, words: label, number, point } of this.shapes) {
      const value = release.values[column];
      if (column < 0 || value === null || value === undefined) continue;
      const words = valued(value, release.low[column], release.high[column]);
      title.textContent = `${this.labels[column]}: ${words}`;
      number.textContent = words.replace(", between ", " (").replace(/ \((.*) and (.*)$/, " ($1 to $2)");
      const part = Math.min(1, Math.max(0, value / most));
      if (point) shape.setAttribute("r", (4 + 26 * Math.sqrt(part)).toFixed(1));
      else {
        shape.classList.remove("none");
        shape.setAttribute("fill", mix(low, high, part));
        for (const text of [label, number]) text.classList.toggle("deep", part > 0.45);
      }
    }
    return most;
  }
}

/** A colour between two given as #rrggbb. */
function mix(low, high, part) {
  const read = (text) => [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16));
  const [from, to] = [read(low), read(high)];
  return `rgb(${from.map((value, at) => Math.round(value + part * (to[at] - value))).join(",")})`;
}
