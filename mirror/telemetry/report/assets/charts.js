// The charts. Each is drawn soon after the library has loaded, and again when the colours change.

// An explicit list: by default, Plotly also offers to upload a chart to its vendor's site.
const BUTTONS = [["zoom2d", "pan2d", "resetScale2d", "toImage"]];
const CONFIG = {
  displaylogo: false,
  showSendToCloud: false,
  responsive: true,
  modeBarButtons: BUTTONS,
  displayModeBar: "hover",
};
const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif';
const MAX_LINES = 10;
const LINES = [
  ["#2f6fde", "solid"],
  ["#d97706", "solid"],
  ["#0f9d76", "solid"],
  ["#d6336c", "solid"],
  ["#8250df", "solid"],
  ["#0891b2", "dash"],
  ["#a16207", "dash"],
  ["#5b8c00", "dash"],
  ["#e0523f", "dash"],
  ["#6b7b93", "dash"],
];
const MAX_MARKS = 1500;

function layout(more) {
  const axis = {
    gridcolor: colour("line"),
    linecolor: colour("line-2"),
    zeroline: false,
    tickfont: { color: colour("ink-3"), size: 12 },
  };
  const { xaxis, yaxis, yaxis2, ...rest } = more;
  return {
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: FONT, size: 13, color: colour("ink-2") },
    margin: { l: 74, r: 18, t: 8, b: 36 },
    hovermode: "closest",
    modebar: { bgcolor: "rgba(0,0,0,0)", color: colour("ink-3"), activecolor: colour("accent") },
    hoverlabel: {
      bgcolor: colour("raised"),
      bordercolor: colour("line-2"),
      font: { family: FONT, size: 13, color: colour("ink") },
      align: "left",
    },
    legend: { orientation: "h", x: 0, y: 1.02, yanchor: "bottom", font: { size: 12.5 }, itemclick: "toggle" },
    xaxis: { ...axis, ...xaxis },
    yaxis: { ...axis, ...yaxis },
    ...(yaxis2 ? { yaxis2: { ...axis, ...yaxis2 } } : {}),
    ...rest,
  };
}

const TIME = { type: "date", hoverformat: "%H:%M:%S.%L", showspikes: false };
const titled = (text) => ({ text, font: { size: 12.5 } });

/** Clickable points, one trace for each kind of mark; `y` returns the height of a mark. */
function markTraces(marks, y, more = {}) {
  const traces = [];
  const kinds = [...new Set(marks.map((mark) => mark.kind))].sort((a, b) => (a === "expiry") - (b === "expiry"));
  for (const kind of kinds) {
    const ofKind = marks.filter((mark) => mark.kind === kind); // expiries come last, so that they are on top
    const { style } = ofKind[0];
    traces.push({
      type: "scatter",
      mode: "markers",
      name: plain(style.name),
      x: ofKind.map((mark) => mark.time),
      y: ofKind.map(y),
      customdata: ofKind.map((mark) => [mark.part.index, mark.number]),
      text: ofKind.map(
        (mark) =>
          `<b>${plain(mark.part.name)}</b><br>${plain(style.name)} at ${clock(mark.time)}<br>${plain(summaryOf(mark), 90)}<br><i>click for details</i>`,
      ),
      hovertemplate: "%{text}<extra></extra>",
      marker: {
        symbol: style.symbol,
        size: style.size,
        color: colour(style.colour),
        line: { width: 1.5, color: colour("card") },
      },
      ...more,
    });
  }
  return traces;
}

/** The sums of all partitions at some hundred times: the records left, and the bytes copied since the previous time. */
function sums(flow) {
  const curves = flow.parts.map((part) => part.curve).filter((curve) => curve.time.length);
  const [begin, end] = rangeOf(flow);
  const steps = 240;
  const step = Math.max(1, (end - begin) / steps);
  const total = { time: [], left: new Array(steps + 1).fill(0), bytes: new Array(steps + 1).fill(0), step };
  for (let number = 0; number <= steps; number++) total.time.push(begin + number * step);
  for (const { time, left, bytes } of curves) {
    let at = 0;
    for (let number = 0; number <= steps; number++) {
      const now = total.time[number];
      while (at < time.length - 1 && time[at + 1] <= now) at++;
      const next = Math.min(at + 1, time.length - 1);
      const share =
        now <= time[at] || next === at ? 0 : Math.min(1, (now - time[at]) / Math.max(1, time[next] - time[at]));
      total.left[number] += left[at] + share * (left[next] - left[at]);
      if (now >= time[0]) total.bytes[number] += bytes[at] + share * (bytes[next] - bytes[at]);
    }
  }
  total.rate = total.bytes.map((bytes, number) => (number ? ((bytes - total.bytes[number - 1]) * 1000) / step : 0));
  return total;
}

function drawTotal(node, flow) {
  const total = sums(flow);
  const expiries = flow.parts
    .flatMap((part) => marksOf(part).filter((mark) => mark.kind === "expiry"))
    .slice(0, MAX_MARKS);
  const traces = [
    {
      type: "scatter",
      mode: "lines",
      name: "records left",
      x: total.time,
      y: total.left,
      fill: "tozeroy",
      line: { color: colour("accent"), width: 2 },
      fillcolor: colour("accent-wash"),
      hovertemplate: "%{x|%H:%M:%S}<br><b>%{y:,.0f}</b> records left<extra></extra>",
    },
    ...markTraces(expiries, (mark) => leftAt(total, mark.time)),
    {
      type: "scatter",
      mode: "lines",
      name: "bytes per second",
      x: total.time,
      y: total.rate,
      yaxis: "y2",
      fill: "tozeroy",
      showlegend: false,
      line: { color: colour("fetching"), width: 1.5 },
      fillcolor: colour("rate-wash"),
      text: total.rate.map((bytes) => `${size(bytes)}/s`),
      hovertemplate: "%{x|%H:%M:%S}<br><b>%{text}</b><extra></extra>",
    },
  ];
  const shown = layout({
    xaxis: { ...TIME, anchor: "y2", range: rangeOf(flow) },
    yaxis: { domain: [0.36, 1], rangemode: "tozero", title: titled("records left"), tickformat: "~s" },
    yaxis2: { domain: [0, 0.24], rangemode: "tozero", title: titled("bytes/s"), tickformat: "~s", nticks: 3 },
    showlegend: expiries.length > 0,
    margin: { l: 74, r: 18, t: expiries.length ? 28 : 8, b: 36 },
  });
  return Plotly.react(node, traces, shown, CONFIG).then(() => clicks(node, flow));
}

/** The partitions in the order of their importance: first unhealthy ones, then those with most records to copy. */
function byImportance(flow) {
  return flow.parts
    .filter((part) => part.curve.time.length > 1)
    .sort((a, b) => b.unhealthy - a.unhealthy || b.largest - a.largest);
}

/** Two lines for the partitions without a line of their own: the mean and the maximum of their records left. */
function otherLines(flow, rest, height) {
  const [begin, end] = rangeOf(flow);
  const steps = 160;
  const times = Array.from({ length: steps + 1 }, (_, number) => begin + (number * (end - begin)) / steps);
  const mean = new Array(steps + 1).fill(0);
  const maximum = new Array(steps + 1).fill(0);
  for (const part of rest) {
    times.forEach((time, at) => {
      const left = height(part, leftAt(part.curve, time));
      mean[at] += left / rest.length;
      maximum[at] = Math.max(maximum[at], left);
    });
  }
  const name = `the other ${whole(rest.length)}`;
  const trace = (kind, y, more) => ({
    type: "scatter",
    mode: "lines",
    name: `${name}: ${kind}`,
    x: times,
    y,
    hovertemplate: `%{x|%H:%M:%S}<br><b>${name}</b>, ${kind}: %{y:,.0f}<extra></extra>`,
    ...more,
  });
  const line = { color: colour("ink-3"), width: 1.2 };
  return [
    trace("mean", mean, { line, fill: "tozeroy", fillcolor: colour("rate-wash") }),
    trace("maximum", maximum, { line: { ...line, dash: "dot" } }),
  ];
}

function drawLines(node, flow) {
  const share = flow.scale === "share";
  const all = byImportance(flow);
  const parts = all.slice(0, MAX_LINES);
  const rest = all.slice(MAX_LINES);
  const height = (part, left) => (share ? (100 * left) / Math.max(1, part.largest) : left);
  const traces = rest.length ? otherLines(flow, rest, height) : [];
  parts.forEach((part, number) => {
    const { time, left, bytes } = part.curve;
    const [tint, dash] = LINES[number];
    traces.push({
      type: "scatter",
      mode: "lines",
      name: plain(part.name, 32) + (part.outcome === "complete" ? "" : ` (${part.outcome})`),
      x: time,
      y: left.map((records) => height(part, records)),
      customdata: time.map(() => [part.index, -1]),
      text: time.map(
        (now, at) => `<b>${plain(part.name)}</b><br>${clock(now)}: ${whole(left[at])} left, ${size(bytes[at])} copied`,
      ),
      line: { color: tint, width: part.outcome === "complete" ? 1.8 : 2.6, dash },
      hovertemplate: "%{text}<extra></extra>",
    });
  });
  const marks = parts
    .flatMap(marksOf)
    .filter((mark) => mark.kind !== "mirror.catch_up")
    .slice(0, MAX_MARKS);
  traces.push(...markTraces(marks, (mark) => height(mark.part, leftAt(mark.part.curve, mark.time))));
  const shown = layout({
    xaxis: { ...TIME, range: rangeOf(flow) },
    yaxis: {
      rangemode: "tozero",
      title: titled(share ? "% left" : "records left"),
      ...(share ? {} : { tickformat: "~s" }),
    },
    showlegend: true,
    legend: { orientation: "h", x: 0, y: -0.12, yanchor: "top", font: { size: 12.5 } },
    margin: { l: 74, r: 18, t: 8, b: 96 },
  });
  const caption = rest.length
    ? `${whole(parts.length)} unhealthy partitions or those with most to copy, and the other ${whole(rest.length)} combined`
    : `${whole(parts.length)} with records to copy`;
  node.closest(".flow").querySelector('[data-caption="lines"]').textContent = caption;
  return Plotly.react(node, traces, shown, CONFIG).then(() => clicks(node, flow));
}

function drawSlow(node, flow) {
  const parts = flow.slow.map((index) => flow.parts[index]).reverse();
  const names = parts.map((part) => part.name);
  const traces = Object.keys(PHASES)
    .filter((phase) => phase !== "idle" && parts.some((part) => part.phases[phase]))
    .map((phase) => ({
      type: "bar",
      orientation: "h",
      name: phase,
      y: parts.map((part) => part.index),
      x: parts.map((part) => (part.phases[phase] || 0) / 1000),
      customdata: parts.map((part) => [part.index, -1]),
      marker: { color: colour(phase), line: { width: 1, color: colour("card") } },
      text: parts.map(
        (part) =>
          `<b>${plain(part.name)}</b><br>${phase}: ${span(part.phases[phase] || 0)} of ${span(part.busy)}<br>${rate(part.bytes, part.busy)}`,
      ),
      textposition: "none",
      hovertemplate: "%{text}<extra></extra>",
    }));
  const widest = Math.min(260, 7.2 * names.reduce((longest, name) => Math.max(longest, Math.min(34, name.length)), 8) + 16);
  const shown = layout({
    barmode: "stack",
    bargap: 0.32,
    xaxis: { title: titled("seconds"), rangemode: "tozero" },
    yaxis: {
      type: "category",
      tickvals: parts.map((part) => part.index),
      ticktext: names.map((name) => plain(name, 34)),
      gridcolor: "rgba(0,0,0,0)",
    },
    legend: { orientation: "h", x: 0, y: 1, yanchor: "bottom", traceorder: "normal", font: { size: 12.5 } },
    margin: { l: widest, r: 18, t: 30, b: 44 },
  });
  return Plotly.react(node, traces, shown, CONFIG).then(() => clicks(node, flow));
}

/** The heights of a partition's marks: on the curve, and a little higher if a mark would hide another one. */
function heights(part) {
  const close = (part.curve.time.at(-1) - part.curve.time[0]) / 60;
  const height = new Map();
  let [level, before] = [0, -Infinity];
  for (const mark of marksOf(part)) {
    level = mark.time - before < close ? level + 1 : 0;
    before = mark.time;
    height.set(mark, (leftAt(part.curve, mark.time) ?? 0) + Math.min(level, 6) * 0.075 * part.largest);
  }
  return (mark) => height.get(mark);
}

/** Draws one partition: its curve with all its marks, and its rate below. */
function drawOne(node, part) {
  const { time, left, offset, bytes } = part.curve;
  const rates = bytes.map((now, at) =>
    at && time[at] > time[at - 1] ? ((now - bytes[at - 1]) * 1000) / (time[at] - time[at - 1]) : 0,
  );
  const traces = [
    {
      type: "scatter",
      mode: time.length > 40 ? "lines" : "lines+markers",
      name: "records left",
      x: time,
      y: left,
      fill: "tozeroy",
      fillcolor: colour("accent-wash"),
      line: { color: colour("accent"), width: 2 },
      marker: { size: 4 },
      text: time.map(
        (now, at) =>
          `${clock(now)}<br><b>${whole(left[at])}</b> records left<br>next offset ${whole(offset[at])} of ${whole(offset[at] + left[at])}<br>${size(bytes[at])} copied`,
      ),
      hovertemplate: "%{text}<extra></extra>",
    },
    {
      type: "scatter",
      mode: "lines",
      name: "bytes per second",
      x: time,
      y: rates,
      yaxis: "y2",
      fill: "tozeroy",
      showlegend: false,
      line: { color: colour("fetching"), width: 1.5, shape: "vh" },
      fillcolor: colour("rate-wash"),
      text: rates.map((now) => `${size(now)}/s`),
      hovertemplate: "%{text}<extra></extra>",
    },
    ...markTraces(marksOf(part), heights(part), { cliponaxis: false }),
  ];
  const shown = layout({
    xaxis: { ...TIME, anchor: "y2" },
    yaxis: { domain: [0.34, 1], rangemode: "tozero", title: titled("records left"), tickformat: "~s" },
    yaxis2: { domain: [0, 0.22], rangemode: "tozero", title: titled("bytes/s"), tickformat: "~s", nticks: 3 },
    showlegend: true,
    margin: { l: 70, r: 18, t: 34, b: 36 },
    shapes: marksOf(part)
      .filter((mark) => mark.kind === "expiry")
      .map((mark) => ({
        type: "line",
        x0: mark.time,
        x1: mark.time,
        y0: 0,
        y1: 1,
        yref: "paper",
        layer: "below",
        line: { color: colour("critical"), width: 1, dash: "dot" },
      })),
  });
  return Plotly.react(node, traces, shown, CONFIG).then(() => clicks(node, part.flow));
}

function clicks(node, flow) {
  node.dataset.drawn = "yes";
  if (node.clicks) return;
  node.clicks = true;
  node.on("plotly_click", ({ points }) => {
    const [index, number] = points.find((point) => point.customdata)?.customdata || [];
    if (index !== undefined) open(flow.parts[index], number >= 0 ? number : null);
  });
}

const PHASES = Object.fromEntries(
  [
    "fencing",
    "settling",
    "fetching",
    "memory",
    "producing",
    "committing",
    "looking",
    "aborting",
    "resting",
    "idle",
  ].map((name) => [name, true]),
);
