// The data, and the format of its values. Everything is inserted into the document as text, never as markup.

const DATA = JSON.parse(document.getElementById("data").textContent);

/** Creates an element: `make("a", {href: "#x", class: "y"}, "text", child, ...)`. Children that are null are skipped. */
function make(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name.startsWith("--")) element.style.setProperty(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
  return element;
}

const WHOLE = new Intl.NumberFormat("en-US");
const whole = (number) => (number === null || number === undefined ? "–" : WHOLE.format(Math.round(number)));

function size(bytes) {
  if (!bytes) return "0";
  const units = ["bytes", "kB", "MB", "GB", "TB", "PB"];
  const power = Math.min(units.length - 1, Math.max(0, Math.floor(Math.log10(bytes) / 3)));
  return power === 0 ? `${whole(bytes)} bytes` : `${(bytes / 1000 ** power).toFixed(1)} ${units[power]}`;
}

const rate = (bytes, ms) => (bytes > 0 && ms > 0 ? `${size((bytes * 1000) / ms)}/s` : "–");

function span(ms) {
  if (ms === null || ms === undefined) return "–";
  if (ms < 1000) return `${Math.round(ms)} ms`;
  if (ms < 60_000) return `${(ms / 1000).toFixed(1)} s`;
  for (const [unit, name, smaller, small] of [
    [86_400_000, "d", 3_600_000, "h"],
    [3_600_000, "h", 60_000, "min"],
    [60_000, "min", 1000, "s"],
  ]) {
    if (ms >= unit) {
      const rest = Math.floor((ms % unit) / smaller);
      return `${Math.floor(ms / unit)} ${name}${rest ? ` ${rest} ${small}` : ""}`;
    }
  }
  return "";
}

/** A time in UTC, in the format of logs. */
const moment = (ms) => new Date(ms).toISOString().replace("T", " ").replace("Z", " UTC");
const clock = (ms) => new Date(ms).toISOString().slice(11, 23);

/** A text for Plotly's labels, which interpret some HTML. Long texts are cut; the partition's page has all of them. */
function plain(text, limit = 60) {
  const short = text.length > limit ? `${text.slice(0, limit - 1)}…` : text;
  return short.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();

/** Decodes a curve from its differences: {time, left, offset, bytes}, each an array; times in ms since 1970. */
function decode(flow, differences) {
  const curve = { time: [], left: [], offset: [], bytes: [] };
  let [time, left, offset, bytes] = [flow.started, 0, 0, 0];
  for (let at = 0; at < differences.length; at += 4) {
    time += differences[at];
    left += differences[at + 1];
    offset += differences[at + 2];
    bytes += differences[at + 3];
    curve.time.push(time);
    curve.left.push(left);
    curve.offset.push(offset);
    curve.bytes.push(bytes);
  }
  return curve;
}

/** The records left at `time`: interpolated between the points of a curve, and constant before and after it. */
function leftAt(curve, time) {
  const { time: times, left } = curve;
  if (!times.length) return null;
  let [low, high] = [0, times.length - 1];
  if (time <= times[low]) return left[low];
  if (time >= times[high]) return left[high];
  while (high - low > 1) {
    const middle = (low + high) >> 1;
    if (times[middle] <= time) low = middle;
    else high = middle;
  }
  const share = times[high] === times[low] ? 1 : (time - times[low]) / (times[high] - times[low]);
  return left[low] + share * (left[high] - left[low]);
}

/** The time of the first and of the last point of all of a flow's curves. */
function times(flow) {
  flow.times ??= flow.parts.reduce(
    ([begin, end], { curve: { time } }) =>
      time.length ? [Math.min(begin, time[0]), Math.max(end, time.at(-1))] : [begin, end],
    [Infinity, -Infinity],
  );
  return flow.times;
}

/** The time range in which 95% of the partitions caught up for the first time, or null if the charts can show it anyway. */
function catchUp(flow) {
  const ends = flow.parts
    .filter((part) => part.curve.time.length > 1 && part.largest > 0)
    .map((part) => part.curve.time[part.curve.left.findIndex((left) => left <= 0.02 * part.largest)])
    .filter((time) => time !== undefined)
    .sort((a, b) => a - b);
  const [begin, end] = times(flow);
  const caughtUp = ends[Math.floor(0.95 * (ends.length - 1))];
  if (caughtUp === undefined) return null;
  const shown = begin + Math.max(5000, 1.2 * (caughtUp - begin));
  return shown - begin < 0.1 * (end - begin) ? [begin, shown] : null;
}

/** The time range of the charts: the whole run, or the first catch-up, which would be a mere spike in hours of a stream. */
function rangeOf(flow) {
  flow.catchUp ??= catchUp(flow) ?? false;
  return (flow.range === "catch-up" && flow.catchUp) || times(flow);
}

DATA.flows.forEach((flow, number) => {
  flow.number = number;
  flow.parts.forEach((part, index) => {
    part.flow = flow;
    part.index = index;
    part.name = `${part.topic}-${part.number}`;
    part.curve = decode(flow, part.curve || []);
    for (const count of [
      "start",
      "end",
      "records",
      "batches",
      "bytes",
      "ms",
      "busy",
      "expired",
      "retries",
      "commits",
      "committing",
      "longest",
      "throttled",
      "unsaid",
    ])
      part[count] ||= 0;
    for (const list of ["expiries", "events", "findings", "traces"]) part[list] ||= [];
    for (const counts of ["skipped", "aside", "deep", "gaps", "phases"]) part[counts] ||= {};
    for (const name of ["before", "after", "late", "later"]) part[name] ??= null;
    part.error ||= "";
    part.way ||= "";
    part.way_reason ||= "";
    part.largest = part.curve.left.reduce((largest, left) => Math.max(largest, left), 0);
    part.unhealthy = part.findings.some((finding) => flow.levels[finding] !== "note");
  });
});

const link = (part) => `#${encodeURIComponent(part.flow.name)}:${encodeURIComponent(part.topic)}-${part.number}`;
