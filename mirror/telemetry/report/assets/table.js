// The table of a flow's partitions. It can be searched, filtered and sorted, and shows a hundred rows at a time.

const OUTCOMES = ["complete", "unfinished", "fenced", "expired", "failed"];
const PAGE = 100;
const COLUMNS = [
  { key: "name", title: "Partition", value: (part) => part.name },
  { key: "outcome", title: "Outcome", value: (part) => 10 * OUTCOMES.indexOf(part.outcome) + (part.unhealthy ? 1 : 0) },
  { key: "curve", title: "Catch-up", value: (part) => part.largest },
  { key: "records", title: "Records", value: (part) => part.records, number: whole },
  { key: "bytes", title: "Bytes", value: (part) => part.bytes, number: size },
  {
    key: "rate",
    title: "Rate",
    value: (part) => part.bytes / Math.max(1, part.busy),
    cell: (part) => rate(part.bytes, part.busy),
  },
  { key: "busy", title: "Active", value: (part) => part.busy, number: span },
  { key: "before", title: "Left at start", value: (part) => part.before ?? -1, cell: (part) => whole(part.before) },
  { key: "after", title: "Left now", value: (part) => part.after ?? -1, cell: (part) => whole(part.after) },
  { key: "expired", title: "Expiries", value: (part) => part.expired, number: whole, bad: true },
  { key: "retries", title: "Retries", value: (part) => part.retries, number: whole },
  {
    key: "way",
    title: "Way",
    shown: (flow) => flow.ways,
    value: (part) => part.way,
    text: (part) => make("span", { title: part.way_reason }, part.way || "–"),
  },
];

class Table {
  constructor(section, flow) {
    this.flow = flow;
    this.section = section;
    this.columns = COLUMNS.filter((column) => !column.shown || column.shown(flow));
    this.words = [];
    this.outcome = null;
    this.sort = { key: "outcome", down: true };
    this.shown = PAGE;
    this.head();
    this.chips();
    section.querySelector("[data-search]").addEventListener("input", (event) => {
      this.words = event.target.value.toLowerCase().split(/\s+/).filter(Boolean);
      this.shown = PAGE;
      this.draw();
    });
    this.draw();
  }

  head() {
    const cells = this.columns.map((column) => {
      const button = make("button", { type: "button", onclick: () => this.sortBy(column) }, column.title);
      return make(
        "th",
        { "data-key": column.key, class: column.number || column.cell ? "num" : null, scope: "col" },
        button,
      );
    });
    this.section.querySelector("thead").append(make("tr", {}, ...cells));
  }

  chips() {
    const container = this.section.querySelector("[data-chips]");
    const counts = new Map(
      OUTCOMES.map((outcome) => [outcome, this.flow.parts.filter((part) => part.outcome === outcome).length]),
    );
    for (const outcome of [...OUTCOMES].reverse()) {
      if (!counts.get(outcome)) continue;
      const chip = make(
        "button",
        { type: "button", class: "chip", "aria-pressed": "false", "data-outcome": outcome },
        `${outcome} ${whole(counts.get(outcome))}`,
      );
      chip.addEventListener("click", () => {
        this.outcome = this.outcome === outcome ? null : outcome;
        for (const other of container.children)
          other.setAttribute("aria-pressed", String(other.dataset.outcome === this.outcome));
        this.shown = PAGE;
        this.draw();
      });
      container.append(chip, " ");
    }
  }

  sortBy(column) {
    const text = column.key === "name";
    this.sort = { key: column.key, down: this.sort.key === column.key ? !this.sort.down : !text };
    this.draw();
  }

  /** The partitions that match the search and the filter, in the chosen order. */
  rows() {
    const { value } = COLUMNS.find((column) => column.key === this.sort.key);
    const direction = this.sort.down ? -1 : 1;
    const found = this.flow.parts.filter((part) => {
      if (this.outcome && part.outcome !== this.outcome) return false;
      const text = `${part.name} ${part.target || ""} ${part.outcome} ${part.error}`.toLowerCase();
      return this.words.every((word) => text.includes(word));
    });
    const compare = (a, b) => {
      const [first, second] = [value(a), value(b)];
      if (typeof first === "string") return direction * NAMES.compare(first, second);
      return direction * (first - second) || b.largest - a.largest || a.index - b.index;
    };
    return found.sort(compare);
  }

  draw() {
    this.found = this.rows();
    const shown = this.found.slice(0, this.shown);
    for (const cell of this.section.querySelectorAll("th")) {
      if (cell.dataset.key === this.sort.key)
        cell.setAttribute("aria-sort", this.sort.down ? "descending" : "ascending");
      else cell.removeAttribute("aria-sort");
    }
    this.section.querySelector(".table tbody").replaceChildren(...shown.map((part) => this.row(part)));
    const of = this.found.length === this.flow.parts.length ? "" : ` of ${whole(this.flow.parts.length)}`;
    this.section.querySelector('[data-caption="table"]').textContent = `${whole(this.found.length)}${of} partitions`;
    this.more(shown.length);
  }

  row(part) {
    const cells = this.columns.map((column) => {
      if (column.key === "name") return make("td", { class: "name" }, make("a", { href: link(part) }, part.name));
      if (column.key === "outcome")
        return make("td", {}, make("span", { class: `badge ${part.outcome}` }, part.outcome), flag(part));
      if (column.key === "curve") return make("td", {}, spark(part));
      if (column.text) return make("td", {}, column.text(part));
      const amount = column.value(part);
      const text = column.cell ? column.cell(part) : column.number(amount);
      return make("td", { class: `num${amount > 0 ? (column.bad ? " bad" : "") : " zero"}` }, text);
    });
    const row = make("tr", { "data-part": part.name }, ...cells);
    row.addEventListener("click", (event) => {
      if (!event.target.closest("a")) open(part);
    });
    return row;
  }

  more(shown) {
    const rest = this.found.length - shown;
    const container = this.section.querySelector(".more-rows");
    container.hidden = rest <= 0;
    const show = (count, text) =>
      make(
        "button",
        {
          type: "button",
          class: "plain",
          onclick: () => {
            this.shown += count;
            this.draw();
          },
        },
        text,
      );
    container.replaceChildren(
      show(PAGE, `Show ${whole(Math.min(PAGE, rest))} more`),
      " ",
      rest > PAGE ? show(rest, `Show all ${whole(this.found.length)}`) : "",
    );
  }
}

/** A sign that a complete partition needs attention. */
function flag(part) {
  if (part.outcome !== "complete" || !part.unhealthy) return null;
  return make(
    "span",
    { class: "flag", title: part.findings.map((finding) => part.flow.titles[finding]).join("; ") },
    "!",
  );
}

const NAMES = new Intl.Collator("en", { numeric: true });
const SVG = "http://www.w3.org/2000/svg";

function shape(tag, attributes) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  return element;
}

/** A partition's curve in its row, with its expiries. All rows have the same time axis. */
function spark(part) {
  const { time, left } = part.curve;
  if (time.length < 2 || !part.largest) return make("span", { class: "faint" }, part.largest ? "" : "nothing to copy");
  const [wide, high] = [132, 26];
  const [begin, end] = times(part.flow);
  const x = (now) => (1 + ((now - begin) / Math.max(1, end - begin)) * (wide - 2)).toFixed(1);
  const y = (now) => (high - 2 - (now / part.largest) * (high - 5)).toFixed(1);
  const line = time.map((now, at) => `${x(now)} ${y(left[at])}`).join("L");
  const marks = part.expiries.map((expiry) => expiry.time_ms).filter(Boolean);
  const picture = shape("svg", {
    class: "spark",
    width: wide,
    height: high,
    viewBox: `0 0 ${wide} ${high}`,
    role: "img",
    "aria-label": "records left over time",
  });
  picture.append(
    shape("path", { class: "fill", d: `M${x(time[0])} ${high - 2}L${line}L${x(time.at(-1))} ${high - 2}Z` }),
    shape("path", { d: `M${line}` }),
  );
  for (const now of marks) picture.append(shape("path", { class: "mark", d: `M${x(now)} 2V${high - 2}` }));
  return picture;
}
