// One partition: what became of it, its curve, what happened, where the time went, and all its figures.

const PANEL = document.getElementById("detail");
const OPEN = { part: null, from: null };

/** Show a partition; with `number`, that mark of it. */
function open(part, number = null) {
  const hash = link(part);
  OPEN.wanted = number;
  if (location.hash === hash) show(part, number);
  else location.hash = hash; // the rest follows from there, so that links, and the way back, work
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
        : make("p", { class: "quiet" }, "No curve: no task has told of copying it in this run."),
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
    step(order[at - 1], "‹", "the one before, in the table's order"),
    step(order[at + 1], "›", "the next, in the table's order"),
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
    tile("Rate", rate(part.bytes, part.busy), `busy for ${span(part.busy)}`),
    tile("Left", whole(part.after), part.before === null ? "" : `of ${whole(part.before)} at the start${waits}`),
    tile(
      "Expiries",
      whole(part.expired),
      part.retries === 1 ? "1 retry" : `${part.retries ? whole(part.retries) : "no"} retries`,
    ),
    part.stuck ? tile("Stuck", span((part.until || DATA.made) - part.stuck), `since ${clock(part.stuck)}`) : null,
  );
}

/** What to do: the same words as at the top of the page. */
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
      make("span", { class: "sign" }, mark.look.sign),
      make("span", { class: "faint num" }, clock(mark.time)),
      make(
        "span",
        {},
        make("span", { class: "title" }, mark.look.name),
        make("span", { class: "quiet" }, ` · ${said(mark)}`),
      ),
    );
    return make(
      "li",
      { class: "event", "data-mark": mark.number, "data-kind": mark.kind, "--k": `var(--${mark.look.colour})` },
      button,
    );
  });
  const left = part.unsaid ? make("p", { class: "faint" }, `${whole(part.unsaid)} earlier events are not kept.`) : null;
  const fewer =
    part.expired > part.expiries.length
      ? make("p", { class: "faint" }, `The last ${whole(part.expiries.length)} of ${whole(part.expired)} expiries.`)
      : null;
  return make("section", {}, make("h3", {}, "What happened"), make("ol", { class: "events" }, ...items), left, fewer);
}

/** Open a mark's entry, with all its fields, and close the others. */
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
  const whole_ms = Object.values(part.phases).reduce((sum, ms) => sum + ms, 0);
  if (!whole_ms) return null;
  const spent = Object.entries(part.phases).sort(([, one], [, other]) => other - one);
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
      make("td", { class: "num" }, `${((100 * ms) / whole_ms).toFixed(0)}%`),
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
  const counts = (each) =>
    Object.entries(each)
      .map(([name, count]) => `${name} ${whole(count)}`)
      .join(", ") || "none";
  const rows = [
    ["source", `${part.topic}-${part.number}`],
    ["target", `${part.target}-${part.number}`],
    ["source offsets", `from ${whole(part.start)} up to ${whole(part.end)}, not included`],
    ["from", part.began ? moment(part.began) : "–"],
    ["to", part.until ? moment(part.until) : "–"],
    ["attempts' time", span(part.ms)],
    ["encoded anew", counts(part.deep)],
    ["skipped", counts(part.skipped)],
    ["gaps", counts(part.gaps)],
    [
      "commits",
      part.commits
        ? `${whole(part.commits)}, ${span(part.committing / part.commits)} each, the longest ${span(part.longest)}`
        : "none told",
    ],
    ["throttled by the target", part.throttled ? span(part.throttled) : "never"],
    ["oldest record left", part.after ? (part.later === null ? "not known" : `waits for ${span(part.later)}`) : "–"],
    part.sick_trace ? ["trace of the epoch in which its trouble began", part.sick_trace] : null,
    part.last_trace ? ["trace of the epoch before", part.last_trace] : null,
    ["traces that records carried", part.traces.join(", ") || "none"],
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
