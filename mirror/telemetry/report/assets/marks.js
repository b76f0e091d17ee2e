// The expiries and events of a partition, as marks on its curve and as entries of its list.

/** By kind: the name, the symbol in charts, the sign in lists, and the colour (a variable of the style sheet). */
const KINDS = {
  expiry: { name: "expiry", symbol: "x", sign: "✕", colour: "critical", size: 11 },
  "mirror.retry": { name: "retry", symbol: "triangle-up", sign: "▲", colour: "serious", size: 10 },
  "mirror.leader_change": { name: "leader change", symbol: "diamond", sign: "◆", colour: "committing", size: 10 },
  "mirror.throttled": { name: "throttled", symbol: "square", sign: "■", colour: "memory", size: 9 },
  "mirror.gap": { name: "gap", symbol: "star", sign: "★", colour: "aborting", size: 12 },
  "mirror.target_loss": { name: "target loss", symbol: "cross", sign: "✚", colour: "serious", size: 12 },
  "mirror.difference": { name: "difference", symbol: "x", sign: "≠", colour: "critical", size: 12 },
  "mirror.fenced": { name: "fenced", symbol: "hexagon", sign: "⬢", colour: "fenced", size: 11 },
  "mirror.catch_up": { name: "caught up", symbol: "circle", sign: "✓", colour: "good", size: 9 },
  "mirror.earlier_attempt": { name: "earlier attempt", symbol: "circle", sign: "●", colour: "neutral", size: 9 },
};
const OTHER = { name: "event", symbol: "circle-open", sign: "○", colour: "neutral", size: 9 };

/** The labels and formats of the fields of marks, in the order in which they are shown. */
const FIELDS = {
  time_ms: ["time", moment],
  phase: ["phase", String],
  cause: ["cause", String],
  error: ["error", String],
  last_error: ["last error", String],
  age_ms: ["age", exactly],
  queued_ms: ["time queued", exactly],
  in_flight_ms: ["time in flight", exactly],
  attempts: ["attempts", whole],
  attempt: ["attempt", whole],
  task: ["Spark task", whole],
  outcome: ["outcome", String],
  backoff_ms: ["backoff before the retry", exactly],
  record_count: ["records in the batch", whole],
  start: ["first source offset", whole],
  target_offset: ["target offset", whole],
  target_start: ["first target offset", whole],
  target_end: ["end of the target", whole],
  end: ["end offset (exclusive)", whole],
  may_have_been_written: ["may have been written", (value) => (value ? "yes: its outcome is unknown" : "no")],
  side: ["side", String],
  leader_epoch: ["leader epoch", whole],
  node: ["broker", String],
  throttle_ms: ["throttled for", exactly],
  took_ms: ["duration", exactly],
  records: ["records", whole],
  bytes: ["bytes", size],
  kind: ["kind", String],
  offsets: ["source offsets", whole],
};

function exactly(ms) {
  return ms < 1000 ? `${whole(ms)} ms` : `${span(ms)} (${whole(ms)} ms)`;
}

/** A line with the details of a mark. */
function summaryOf(mark) {
  const { fields } = mark;
  switch (mark.kind) {
    case "expiry":
      return `${fields.cause || "cause unknown"}, ${fields.phase || "phase unknown"}${fields.age_ms === undefined ? "" : `, after ${span(fields.age_ms)}`}`;
    case "mirror.retry":
      return `${fields.attempt === undefined ? "" : `attempt ${fields.attempt}: `}${fields.error || ""}`;
    case "mirror.leader_change":
      return `on the ${fields.side || "?"}${fields.node === undefined ? "" : `, now broker ${fields.node}`}${fields.leader_epoch === undefined ? "" : `, epoch ${fields.leader_epoch}`}`;
    case "mirror.throttled":
      return `for ${span(fields.throttle_ms)}`;
    case "mirror.gap":
      return `${fields.kind || "?"}: ${whole(fields.offsets)} offsets`;
    case "mirror.target_loss":
      return `${fields.kind || "?"}: ${whole(fields.end - fields.start)} offsets sent again`;
    case "mirror.difference":
      return `${fields.kind || "?"} at target offset ${whole(fields.target_offset)}: ${fields.reason || ""}`;
    case "mirror.catch_up":
      return `after ${span(fields.took_ms)}: ${whole(fields.records)} records, ${size(fields.bytes)}`;
    case "mirror.earlier_attempt":
      return `${fields.outcome || "?"}${fields.error ? `: ${fields.error}` : ""}`;
    default:
      return fields.error || "";
  }
}

/** A partition's marks by time. A mark without a time is placed at the end. */
function marksOf(part) {
  if (!part.marks) {
    const until = part.until || part.flow.ended || DATA.made;
    const all = [
      ...part.expiries.map((fields) => ({ kind: "expiry", fields })),
      ...part.events.map(({ name, ...fields }) => ({ kind: name, fields })),
    ];
    for (const mark of all) {
      mark.part = part;
      mark.style = KINDS[mark.kind] || { ...OTHER, name: String(mark.kind) };
      mark.time = typeof mark.fields.time_ms === "number" ? mark.fields.time_ms : until;
    }
    all.sort((a, b) => a.time - b.time);
    all.forEach((mark, number) => (mark.number = number));
    part.marks = all;
  }
  return part.marks;
}

/** All fields of a mark: first those with a label, then those that this page does not know. */
function fieldsOf(mark) {
  const names = [
    ...Object.keys(FIELDS).filter((name) => name in mark.fields),
    ...Object.keys(mark.fields).filter((name) => !(name in FIELDS)),
  ];
  const rows = names
    .filter((name) => mark.fields[name] !== null)
    .map((name) => {
      const [label, format] = FIELDS[name] || [
        name.replaceAll("_", " "),
        (value) => (typeof value === "object" ? JSON.stringify(value) : String(value)),
      ];
      const value = mark.fields[name];
      const fits = typeof value === "number" || format === String || typeof value === "boolean";
      return [make("dt", {}, label), make("dd", { class: "num" }, fits ? format(value) : String(value))];
    });
  return make("dl", { class: "fields" }, ...rows);
}
