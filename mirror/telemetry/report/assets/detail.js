// The details of one partition: its outcome, its curve, its events, where the time went, and all its figures.

const PANEL = document.getElementById("detail");
const OPEN = { part: null, from: null };

/** Open a partition and, with `number`, one of its marks. */
function open(part, number = null) {
  const hash = link(part);
  OPEN.wanted = number;
  if (location.hash === hash) show(part, number);
  else location.hash = hash; // the hashchange event opens it, so that links and the back button work
}

function close() {
  history.pushState(null, "", location.pathname + location.search);
  hide();
}

function hide() {
  PANEL.hidden = true;
  OPEN.part = null;
  OPEN.from?.focus?.({ preventScroll: true });
}

function tile(name, value, more) {
  return make(
    "div",
    { class: "tile" },
    make("dt", {}, name),
    make("dd", {}, make("div", { class: "value num" }, value), make("div", { class: "more" }, more)),
  );
}

function show(part, number = null) {
  if (PANEL.hidden) OPEN.from = document.activeElement;
  OPEN.part = part;
  const chart = make("div", { class: "chart one", "data-chart": "one" });
  const drawn = part.curve.time.length > 1;
  const list = events(part);
  PANEL.replaceChildren(
    ...[
      head(part),
      part.target && part.target !== part.topic
        ? make("p", { class: "quiet" }, `copied to ${part.target}-${part.number}`)
        : null,
      part.error ? make("div", { class: `error ${part.outcome}` }, part.error) : null,
      figures(part),
      advice(part),
      make("h3", {}, "Catch-up"),
      drawn
        ? make("div", { class: "card" }, chart)
        : make("p", { class: "quiet" }, "No curve: no task of this run has reported a copy of this partition."),
      list,
      phases(part),
      everything(part),
    ].filter(Boolean),
  );
  PANEL.hidden = false;
  PANEL.scrollTop = 0;
  PANEL.focus({ preventScroll: true });
  if (drawn) LIBRARY.then(() => OPEN.part === part && drawOne(chart, part));
  if (number !== null) choose(part, number);
}

function head(part) {
  const order = TABLES.get(part.flow)?.found || part.flow.parts;
  const at = order.indexOf(part);
  const step = (to, sign, name) =>
    make(
      "button",
      { type: "button", class: "plain", "aria-label": name, title: name, disabled: !to, onclick: () => to && open(to) },
      sign,
    );
  return make(
    "div",
    { class: "detail-head" },
    make("h2", {}, part.name),
    make("span", { class: `badge ${part.outcome}` }, part.outcome),
    make("span", { class: "grow" }),
    step(order[at - 1], "‹", "previous partition in the table"),
    step(order[at + 1], "›", "next partition in the table"),
    make(
      "button",
      {
        type: "button",
        class: "plain",
        "aria-label": "Close",
        title: "Close (Esc)",
        "data-close": true,
        onclick: close,
      },
      "✕",
    ),
  );
}

function figures(part) {
  const waits = part.later ? `; the oldest waits for ${span(part.later)}` : "";
  return make(
    "dl",
    { class: "tiles" },
    tile("Records", whole(part.records), `${whole(part.batches)} batches, ${size(part.bytes)}`),
    tile("Rate", rate(part.bytes, part.busy), `active for ${span(part.busy)}`),
    tile("Left", whole(part.after), part.before === null ? "" : `of ${whole(part.before)} at the start${waits}`),
    tile(
      "Expiries",
      whole(part.expired),
      part.retries === 1 ? "1 retry" : `${part.retries ? whole(part.retries) : "no"} retries`,
    ),
    part.stuck ? tile("Stuck", span((part.until || DATA.made) - part.stuck), `since ${clock(part.stuck)}`) : null,
  );
}

/** The advice, with the same texts as at the top of the page. */
function advice(part) {
  const steps = part.findings.map((finding) => {
    const todo = document.querySelector(`#finding-${part.flow.number}-${finding} .steps`).cloneNode(true);
    const level = part.flow.levels[finding];
    const remark = document.querySelector(`#finding-${part.flow.number}-${finding} .remark`)?.cloneNode(true);
    return make(
      "div",
      { class: `finding ${level}` },
      make("h3", {}, make("span", { class: "level" }, level), part.flow.titles[finding]),
      make("div", { class: "label" }, "What to do"),
      todo,
      remark,
    );
  });
  return steps.length ? make("div", { class: "findings advice" }, ...steps) : null;
}

function events(part) {
  const marks = marksOf(part);
  if (!marks.length) return null;
  const items = marks.map((mark) => {
    const button = make(
      "button",
      { type: "button", "aria-expanded": "false", onclick: () => choose(part, mark.number, { toggle: true }) },
      make("span", { class: "sign" }, mark.style.sign),
      make("span", { class: "faint num" }, clock(mark.time)),
      make(
        "span",
        {},
        make("span", { class: "title" }, mark.style.name),
        make("span", { class: "quiet" }, ` · ${summaryOf(mark)}`),
      ),
    );
    return make(
      "li",
      { class: "event", "data-mark": mark.number, "data-kind": mark.kind, "--k": `var(--${mark.style.colour})` },
      button,
    );
  });
  const left = part.unsaid ? make("p", { class: "faint" }, `${whole(part.unsaid)} earlier events are not included.`) : null;
  const fewer =
    part.expired > part.expiries.length
      ? make("p", { class: "faint" }, `The last ${whole(part.expiries.length)} of ${whole(part.expired)} expiries.`)
      : null;
  return make("section", {}, make("h3", {}, "Events"), make("ol", { class: "events" }, ...items), left, fewer);
}

/** Open the entry of a mark, with all its fields, and close the others. */
function choose(part, number, { toggle = false } = {}) {
  for (const item of PANEL.querySelectorAll(".event")) {
    const wanted = Number(item.dataset.mark) === number && !(toggle && item.classList.contains("open"));
    item.classList.toggle("open", wanted);
    item.querySelector("button").setAttribute("aria-expanded", String(wanted));
    item.querySelector("dl")?.remove();
    if (wanted) {
      item.append(fieldsOf(marksOf(part)[number]));
      item.scrollIntoView({ block: "nearest" });
    }
  }
}

function phases(part) {
  const total_ms = Object.values(part.phases).reduce((sum, ms) => sum + ms, 0);
  if (!total_ms) return null;
  const spent = Object.entries(part.phases).sort(([, a], [, b]) => b - a);
  const bar = make(
    "div",
    { class: "bar" },
    ...spent.map(([name, ms]) =>
      make("span", { title: `${name}: ${span(ms)}`, style: `flex: ${ms} 0 0`, "--p": `var(--${name})` }),
    ),
  );
  const rows = spent.map(([name, ms]) =>
    make(
      "tr",
      {},
      make("td", { class: "key", "--p": `var(--${name})` }, make("i"), name),
      make("td", { class: "num" }, `${((100 * ms) / total_ms).toFixed(0)}%`),
      make("td", { class: "num" }, span(ms)),
      make("td", {}),
    ),
  );
  return make(
    "section",
    {},
    make("h3", {}, "Where the time went"),
    make("div", { class: "card" }, bar, make("table", { class: "phases" }, make("tbody", {}, ...rows))),
  );
}

function everything(part) {
  const list = (counts) =>
    Object.entries(counts)
      .map(([name, count]) => `${name} ${whole(count)}`)
      .join(", ") || "none";
  const rows = [
    ["source", `${part.topic}-${part.number}`],
    ["target", `${part.target}-${part.number}`],
    ["source offsets", `${whole(part.start)} to ${whole(part.end)} (exclusive)`],
    ["begin", part.began ? moment(part.began) : "–"],
    ["end", part.until ? moment(part.until) : "–"],
    ["duration of all attempts", span(part.ms)],
    ["re-encoded batches", list(part.deep)],
    ["skipped", list(part.skipped)],
    ["aside", list(part.aside)],
    ["gaps", list(part.gaps)],
    [
      "commits",
      part.commits
        ? `${whole(part.commits)}, ${span(part.committing / part.commits)} on average, at most ${span(part.longest)}`
        : "none reported",
    ],
    part.way ? ["way", part.way_reason ? `${part.way}: ${part.way_reason}` : part.way] : null,
    ["throttled by the target", part.throttled ? span(part.throttled) : "never"],
    ["oldest uncopied record", part.after ? (part.later === null ? "not known" : `waits for ${span(part.later)}`) : "–"],
    part.sick_trace ? ["trace of the period in which it became unhealthy", part.sick_trace] : null,
    part.last_trace ? ["trace of the previous period", part.last_trace] : null,
    ["traces in the records' headers", part.traces.join(", ") || "none"],
  ];
  return make(
    "section",
    {},
    make("h3", {}, "All figures"),
    make(
      "div",
      { class: "card" },
      make(
        "dl",
        { class: "fields" },
        ...rows.filter(Boolean).flatMap(([name, value]) => [make("dt", {}, name), make("dd", { class: "num" }, value)]),
      ),
    ),
  );
}
