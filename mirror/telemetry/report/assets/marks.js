// What happened to a partition: its expiries and events, as marks on its curve and as entries of its list.

/** By kind: how it is called, what it looks like, and in which colour (a variable of the style sheet). */
const KINDS = {
  expiry: { name: "expiry", symbol: "x", sign: "✕", colour: "critical", size: 11 },
  "mirror.retry": { name: "retry", symbol: "triangle-up", sign: "▲", colour: "serious", size: 10 },
  "mirror.leader_change": { name: "leader change", symbol: "diamond", sign: "◆", colour: "committing", size: 10 },
  "mirror.throttled": { name: "throttled", symbol: "square", sign: "■", colour: "memory", size: 9 },
  "mirror.gap": { name: "gap", symbol: "star", sign: "★", colour: "aborting", size: 12 },
  "mirror.fenced": { name: "shut out", symbol: "hexagon", sign: "⬢", colour: "fenced", size: 11 },
  "mirror.catch_up": { name: "caught up", symbol: "circle", sign: "✓", colour: "good", size: 9 },
  "mirror.earlier_attempt": { name: "earlier attempt", symbol: "circle", sign: "●", colour: "neutral", size: 9 },
};
const OTHER = { name: "event", symbol: "circle-open", sign: "○", colour: "neutral", size: 9 };

/** What the fields of marks are called, in the order in which they are shown, and how their values are written. */
const FIELDS = {
  time_ms: ["when", moment],
  phase: ["where it was", String],
  cause: ["cause", String],
  error: ["error", String],
  last_error: ["last error", String],
  age_ms: ["age", exactly],
  queued_ms: ["of that queued", exactly],
  in_flight_ms: ["of that in flight", exactly],
  attempts: ["attempts", whole],
  attempt: ["attempt", whole],
  task: ["Spark task", whole],
  outcome: ["outcome", String],
  backoff_ms: ["waits before the next", exactly],
  record_count: ["records in the batch", whole],
  start: ["source offsets, from", whole],
  end: ["up to, not included", whole],
  may_have_been_written: ["may have been written", (value) => (value ? "yes: its outcome is not known" : "no")],
  side: ["side", String],
  leader_epoch: ["leader epoch", whole],
  node: ["broker", String],
  throttle_ms: ["had to wait", exactly],
  took_ms: ["took", exactly],
  records: ["records", whole],
  bytes: ["bytes", size],
  kind: ["kind", String],
  offsets: ["source offsets", whole],
};

function exactly(ms) {
  return ms < 1000 ? `${whole(ms)} ms` : `${span(ms)} (${whole(ms)} ms)`;
}

/** One line about a mark, beyond its kind. */
function said(mark) {
  const it = mark.fields;
  switch (mark.kind) {
    case "expiry":
      return `${it.cause || "cause unknown"}, ${it.phase || "phase unknown"}${it.age_ms === undefined ? "" : `, after ${span(it.age_ms)}`}`;
    case "mirror.retry":
      return `${it.attempt === undefined ? "" : `attempt ${it.attempt}: `}${it.error || ""}`;
    case "mirror.leader_change":
      return `on the ${it.side || "?"}${it.node === undefined ? "" : `, now broker ${it.node}`}${it.leader_epoch === undefined ? "" : `, epoch ${it.leader_epoch}`}`;
    case "mirror.throttled":
      return `had to wait ${span(it.throttle_ms)}`;
    case "mirror.gap":
      return `${it.kind || "?"}: ${whole(it.offsets)} offsets`;
    case "mirror.catch_up":
      return `after ${span(it.took_ms)}: ${whole(it.records)} records, ${size(it.bytes)}`;
    case "mirror.earlier_attempt":
      return `${it.outcome || "?"}${it.error ? `: ${it.error}` : ""}`;
    default:
      return it.error || "";
  }
}

/** A partition's marks by time. One without a time is at the end. */
function marksOf(part) {
  if (!part.marks) {
    const until = part.until || part.flow.ended || DATA.made;
    const all = [
      ...part.expiries.map((fields) => ({ kind: "expiry", fields })),
      ...part.events.map(({ name, ...fields }) => ({ kind: name, fields })),
    ];
    for (const mark of all) {
      mark.part = part;
      mark.look = KINDS[mark.kind] || { ...OTHER, name: String(mark.kind) };
      mark.time = typeof mark.fields.time_ms === "number" ? mark.fields.time_ms : until;
    }
    all.sort((one, other) => one.time - other.time);
    all.forEach((mark, number) => (mark.number = number));
    part.marks = all;
  }
  return part.marks;
}

/** All fields of a mark, the known ones first; also those that this page does not know yet. */
function fieldsOf(mark) {
  const names = [
    ...Object.keys(FIELDS).filter((name) => name in mark.fields),
    ...Object.keys(mark.fields).filter((name) => !(name in FIELDS)),
  ];
  const rows = names
    .filter((name) => mark.fields[name] !== null)
    .map((name) => {
      const [label, write] = FIELDS[name] || [
        name.replaceAll("_", " "),
        (value) => (typeof value === "object" ? JSON.stringify(value) : String(value)),
      ];
      const value = mark.fields[name];
      const fits = typeof value === "number" || write === String || typeof value === "boolean";
      return [make("dt", {}, label), make("dd", { class: "num" }, fits ? write(value) : String(value))];
    });
  return make("dl", { class: "fields" }, ...rows);
}
