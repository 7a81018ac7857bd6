"use strict";
// Text from the trace is only ever put into text nodes and into attributes of SVG that are no links.
const key = new URLSearchParams(location.search).get("key") || "";
const $ = id => document.getElementById(id);
let seen = "", data = null, order = "total", zoom = -1, skip = 0, asked = 0;

const make = (tag, text, name) => {
  const made = document.createElement(tag);
  if (text !== undefined) made.textContent = text;
  if (name) made.className = name;
  return made;
};
const draw = (tag, attributes, title) => {
  const made = document.createElementNS("http" + "://www.w3.org/2000/svg", tag);
  for (const name in attributes) made.setAttribute(name, attributes[name]);
  if (title !== undefined) made.appendChild(draw("title", {})).textContent = title;
  return made;
};
const label = (svg, x, y, text, anchor) => {
  svg.appendChild(draw("text", { x, y, "text-anchor": anchor || "start" })).textContent = text;
};
const count = number => String(number).replace(/\B(?=(\d{3})+$)/g, ",");
const time = ns => {
  if (ns < 1e3) return ns + " ns";
  const [value, unit] = ns < 1e6 ? [ns / 1e3, "µs"] : ns < 1e9 ? [ns / 1e6, "ms"] : [ns / 1e9, "s"];
  return value.toFixed(value < 9.995 ? 2 : value < 99.95 ? 1 : 0) + " " + unit;
};
// When a part begins, as the fields `from` and `until` take it.
const begin = part => ((data.since + part * data.part) / 1e9).toFixed(6) + "s";
const table = (id, heads, rows) => {
  const made = $(id), head = make("tr"), body = make("tbody");
  for (const each of heads) head.append(each instanceof Node ? each : make("th", each));
  for (const row of rows) {
    const line = make("tr");
    row.forEach((cell, place) => line.append(make("td", cell.text === undefined ? cell : cell.text, cell.name)));
    body.append(line);
  }
  const top = make("thead");
  top.append(head);
  made.replaceChildren(top, body);
};

function tiles() {
  const tile = (value, what, warn) => {
    const made = make("div", undefined, warn ? "warn" : "");
    made.append(make("b", value), what);
    return made;
  };
  const rate = data.length > 0 ? Math.round(data.records * 1e9 / data.length) : 0;
  $("name").textContent = data.name;
  $("about").textContent = [data.host, data.command].filter(Boolean).join(" · ");
  $("tiles").replaceChildren(tile(count(data.records), "records"), tile(time(data.length), "from first to last"),
    tile(count(rate), "records per second"), tile(count(data.dropped), "records dropped", data.dropped > 0),
    tile(data.complete ? "ended" : "goes on", data.complete ? "the trace is whole" : "it is written, or was cut short"));
}

function rates() {
  const shown = data.probes.filter(probe => probe.records > 0).slice(0, 7), width = 960 / data.parts;
  const sums = Array.from({ length: data.parts }, (_, part) => shown.reduce((sum, probe) => sum + probe.timeline[part], 0));
  const most = Math.max(1, ...sums), svg = draw("svg", { viewBox: "0 0 960 200", role: "img", "aria-label": "records over time" });
  sums.forEach((_, part) => {
    let y = 180;
    shown.forEach((probe, place) => {
      const height = probe.timeline[part] / most * 165;
      if (height <= 0) return;
      y -= height;
      svg.append(draw("rect", { class: "s" + place, x: part * width, y, width: width - 0.8, height },
        probe.name + "\n" + begin(part) + ": " + count(probe.timeline[part])));
    });
  });
  svg.append(draw("line", { class: "axis", x1: 0, x2: 960, y1: 180, y2: 180 }));
  for (let mark = 0; mark <= 4; mark++)
    label(svg, mark * 240, 196, "+" + time(Math.round(data.part * data.parts * mark / 4)), ["start", "middle", "middle", "middle", "end"][mark]);
  label(svg, 0, 11, count(Math.round(most * 1e9 / data.part)) + "/s");
  $("rates").replaceChildren(svg);
  $("legend").replaceChildren(...shown.map((probe, place) => {
    const line = make("li"), mark = draw("svg", { viewBox: "0 0 11 11" });
    mark.append(draw("rect", { class: "s" + place, width: 11, height: 11 }));
    line.append(mark, probe.name);
    return line;
  }));
}

function heat() {
  const timed = data.functions.filter(each => each.heat.length > 0), which = $("which"), before = which.value;
  $("latency").hidden = timed.length === 0;
  which.replaceChildren(...timed.map(each => {
    const made = make("option", each.name);
    made.value = each.name;
    return made;
  }));
  if (timed.some(each => each.name === before)) which.value = before;
  const found = timed.find(each => each.name === which.value);
  if (!found) return $("heat").replaceChildren();
  const powers = found.heat.map(cell => cell[1]), least = Math.min(...powers), greatest = Math.max(...powers);
  const most = Math.log(1 + Math.max(...found.heat.map(cell => cell[2]))), rows = greatest - least + 1;
  const svg = draw("svg", { viewBox: "0 0 960 " + (rows * 18 + 20), role: "img", "aria-label": "latency over time" });
  const width = 890 / data.parts, y = power => (greatest - power) * 18;
  for (const [part, power, calls] of found.heat)
    svg.append(draw("rect", { class: "s0", x: 70 + part * width, y: y(power), width, height: 18, "fill-opacity": (0.15 + 0.85 * Math.log(1 + calls) / most).toFixed(2) },
      begin(part) + ", " + time(2 ** power) + " to " + time(2 ** (power + 1)) + ": " + count(calls)));
  for (let power = least; power <= greatest; power++) label(svg, 62, y(power) + 14, time(2 ** power), "end");
  $("heat").replaceChildren(svg);
}

function flame() {
  const ways = data.graph.map(([caller, name, calls, total, own]) => ({ caller, name, calls, total, own, weight: total, inner: [] }));
  for (let place = ways.length - 1; place >= 0; place--) {
    const way = ways[place];
    way.weight = Math.max(way.weight, way.inner.reduce((sum, inner) => sum + ways[inner].weight, 0));
    if (way.caller >= 0) ways[way.caller].inner.push(place);
  }
  $("calls").hidden = ways.length === 0;
  if (zoom >= ways.length) zoom = -1;
  const tops = zoom >= 0 ? [zoom] : ways.map((way, place) => way.caller < 0 ? place : -1).filter(place => place >= 0);
  const all = tops.reduce((sum, place) => sum + ways[place].weight, 0) || 1, boxes = [];
  let deepest = 0;
  const left = [[tops, 0, 1]];
  while (left.length > 0) {
    const [places, from, depth] = left.pop();
    let x = from;
    for (const place of places) {
      const width = ways[place].weight / all * 960;
      if (width >= 0.5) {
        deepest = Math.max(deepest, depth);
        boxes.push([place, x, depth, width]);
        left.push([ways[place].inner, x, depth + 1]);
      }
      x += width;
    }
  }
  const svg = draw("svg", { viewBox: "0 0 960 " + (deepest + 1) * 20, role: "img", "aria-label": "calls" });
  const box = (x, depth, width, name, title, to, colour) => {
    const made = draw("rect", { class: "s" + colour, x, y: depth * 20, width, height: 20, "fill-opacity": 0.75 }, title);
    made.addEventListener("click", () => { zoom = to; flame(); });
    svg.append(made);
    const letters = Math.floor((width - 8) / 7);
    if (letters < 3) return;
    const text = svg.appendChild(draw("text", { x: x + 4, y: depth * 20 + 14, class: "name" }));
    text.textContent = name.length > letters ? name.slice(0, letters - 1) + "…" : name;
  };
  box(0, 0, 960, "all", "all calls", -1, 6);
  for (const [place, x, depth, width] of boxes) {
    const { name, calls, total, own } = ways[place];
    const title = name + "\n" + (calls ? count(calls) + " calls, total " + time(total) + ", self " + time(own) : "has not returned");
    box(x, depth, width, name, title, place, [...name].reduce((sum, letter) => sum + letter.codePointAt(0), 0) % 6);
  }
  $("flame").replaceChildren(svg);
}

function tables() {
  const columns = [["name", "function"], ["calls", "calls"], ["total", "total"], ["self", "self"], ["mean", "mean"], ["slow", "99.9%"], ["max", "max"]];
  const heads = columns.map(([key, name]) => {
    const head = make("th", name + (key === order ? " ▾" : ""));
    head.dataset.key = key;
    head.addEventListener("click", () => { order = key; tables(); });
    return head;
  });
  const sorted = [...data.functions].sort((one, other) => order === "name" ? (one.name < other.name ? -1 : 1) : other[order] - one[order]);
  table("functions", heads, sorted.map(each => [each.name, count(each.calls), ...["total", "self", "mean", "slow", "max"].map(key => time(each[key]))]));
  const known = number => number === undefined ? "?" : count(number);
  table("probes", ["probe", "records", "hits", "missed", "dropped"],
    data.probes.map(each => [each.name, count(each.records), known(each.hits), known(each.missed), known(each.dropped)]));
  table("processes", ["process, thread", "records"], data.processes.flatMap(each => [[each.name + " " + each.pid, count(each.records)],
    ...(each.threads.length > 1 ? each.threads.map(thread => [{ text: thread.name + " " + thread.tid, name: "sub" }, count(thread.records)]) : [])]));
  $("messages").hidden = data.notes.length === 0;
  $("notes").replaceChildren(...data.notes.map(note => make("p", note)));
}

const chosen = more => {
  const query = new URLSearchParams({ key, ...more });
  for (const [name, value] of new FormData($("filter"))) if (value) query.set(name, value);
  return query;
};
const ask = async (path, query) => {
  const answer = await fetch(path + "?" + query);
  if (!answer.ok) throw new Error((await answer.text()).trim());
  return answer.json();
};
const tell = (text, warn) => {
  $("state").textContent = text;
  $("state").className = warn ? "warn" : "";
};

async function refresh(whole) {
  const own = ++asked;
  try {
    const answer = await ask("/data", chosen({ seen: whole ? "" : seen }));
    if (own !== asked) return;
    seen = answer.seen;
    tell("");
    if (!answer.overview) return;
    data = answer.overview;
    tiles();
    rates();
    heat();
    flame();
    tables();
    if (skip === 0) await records();
    document.body.dataset.shown = "yes";
  } catch (error) {
    if (own === asked) tell(error.message, true);
  }
}

async function records() {
  const find = new FormData($("find")).get("text");
  const answer = await ask("/records", chosen({ skip, text: find }));
  const values = record => record.fields ? JSON.stringify(record.fields) : record.values || record.data || "";
  table("records", ["time", "thread", "probe", "values"], answer.records.map(record =>
    [record.iso || "", (record.comm || "") + "[" + [...new Set([record.pid, record.tid])].join(":") + "]",
      (record.module || "?") + ":" + (/[*?[]/.test(record.probe || "?") ? record.symbol || record.probe || "?" : record.probe), values(record)]));
  $("where").textContent = answer.records.length ? count(skip + 1) + " to " + count(skip + answer.records.length) : "none";
  $("before").disabled = skip === 0;
  $("next").disabled = !answer.more;
}
const page = step => {
  skip = Math.max(0, skip + step);
  records().catch(error => tell(error.message, true));
};

$("filter").addEventListener("submit", event => { event.preventDefault(); skip = 0; zoom = -1; refresh(true); });
$("filter").addEventListener("reset", () => setTimeout(() => { skip = 0; zoom = -1; refresh(true); }));
$("find").addEventListener("submit", event => { event.preventDefault(); skip = 0; page(0); });
$("before").addEventListener("click", () => page(-500));
$("next").addEventListener("click", () => page(500));
$("which").addEventListener("change", heat);
refresh(true);
setInterval(() => { if ($("live").checked && !document.hidden) refresh(false); }, 1000);
