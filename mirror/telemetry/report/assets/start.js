// Connects the controls: colours, flows, scales, and the partition that the URL names.

const TABLES = new Map();
const SECTIONS = DATA.flows.map((flow) => document.getElementById(`flow-${flow.number}`));
const DRAW = { total: drawTotal, lines: drawLines, slow: drawSlow };

const LIBRARY = new Promise((resolve) => document.addEventListener("mirror-plotly", resolve, { once: true }));

/** Draw a chart of a flow. The library has loaded. */
function drawNow(node) {
  return DRAW[node.dataset.chart](node, DATA.flows[SECTIONS.indexOf(node.closest(".flow"))]);
}

/** Draw a chart as soon as the library has loaded. */
function draw(node) {
  return LIBRARY.then(() => drawNow(node));
}

/** Draw all charts of a flow from the top, so that none is blank when the user scrolls to it, or prints the page. */
async function drawAll(section) {
  for (const node of section.querySelectorAll("[data-chart]")) {
    await LIBRARY;
    if (section.hidden) return; // a hidden section has no width; it is drawn when it is shown
    if (!node.dataset.drawn) await drawNow(node);
    await new Promise((resolve) => setTimeout(resolve)); // the page handles events in between
  }
}

/** Offer the choice of a time range if a stream's first catch-up would be a mere spike in the whole run. */
function offerRanges(section, flow) {
  const ranges = section.querySelector("[data-ranges]");
  if (!ranges || !flow.catchUp) return;
  ranges.hidden = false;
  for (const button of ranges.children) button.setAttribute("aria-pressed", String(button.dataset.range === flow.range));
}

function showFlow(number) {
  SECTIONS.forEach((section, at) => (section.hidden = at !== number));
  for (const button of document.querySelectorAll("#flows button"))
    button.setAttribute("aria-pressed", String(Number(button.dataset.flow) === number));
  const flow = DATA.flows[number];
  if (!TABLES.has(flow) && flow.parts.length) {
    TABLES.set(flow, new Table(SECTIONS[number], flow));
    flow.range = "catch-up";
    rangeOf(flow);
    if (!flow.catchUp || flow.parts.some((part) => part.unhealthy)) flow.range = "all"; // problems must be visible first
    offerRanges(SECTIONS[number], flow);
  }
  drawAll(SECTIONS[number]);
}

/** The partition of `#flow:topic-3`, or of `#topic-3` in the first flow that has it. */
function partOf(hash) {
  const decode = (text) => {
    try {
      return decodeURIComponent(text);
    } catch {
      return text;
    }
  };
  const text = hash.slice(1);
  const colon = text.indexOf(":");
  const [wanted, name] =
    colon < 0 ? [null, decode(text)] : [decode(text.slice(0, colon)), decode(text.slice(colon + 1))];
  for (const flow of DATA.flows) {
    const part = wanted === null || wanted === flow.name ? flow.parts.find((candidate) => candidate.name === name) : null;
    if (part) return part;
  }
  return null;
}

function follow() {
  const part = location.hash.length > 1 ? partOf(location.hash) : null;
  if (!part) {
    if (!PANEL.hidden) hide();
    return;
  }
  showFlow(part.flow.number);
  show(part, OPEN.wanted ?? null);
  OPEN.wanted = null;
}

function colours() {
  for (const button of document.querySelectorAll("#theme button"))
    button.setAttribute("aria-pressed", String(button.dataset.theme === window.mirrorTheme.choice));
  for (const node of document.querySelectorAll('[data-drawn="yes"]')) {
    if (node.dataset.chart === "one") drawOne(node, OPEN.part);
    else draw(node);
  }
}

for (const node of document.querySelectorAll("[data-phase]")) {
  node.style.setProperty("--p", `var(--${node.dataset.phase})`);
  if (node.dataset.share) node.style.flex = `${node.dataset.share} 0 0`;
}
for (const button of document.querySelectorAll("#theme button"))
  button.addEventListener("click", () => window.mirrorTheme.choose(button.dataset.theme));
for (const button of document.querySelectorAll("#flows button")) {
  button.addEventListener("click", () => {
    if (OPEN.part) close();
    showFlow(Number(button.dataset.flow));
  });
}
for (const button of document.querySelectorAll("button[data-scale]")) {
  button.addEventListener("click", () => {
    const section = button.closest(".flow");
    DATA.flows[SECTIONS.indexOf(section)].scale = button.dataset.scale;
    for (const other of button.parentElement.children) other.setAttribute("aria-pressed", String(other === button));
    draw(section.querySelector('[data-chart="lines"]'));
  });
}
for (const button of document.querySelectorAll("button[data-range]")) {
  button.addEventListener("click", () => {
    const section = button.closest(".flow");
    const flow = DATA.flows[SECTIONS.indexOf(section)];
    flow.range = button.dataset.range;
    offerRanges(section, flow);
    for (const chart of ["total", "lines"]) draw(section.querySelector(`[data-chart="${chart}"]`));
  });
}
let libraryLoaded = false;
LIBRARY.then(() => (libraryLoaded = true));
window.addEventListener("beforeprint", () => {
  for (const node of document.querySelectorAll(".flow:not([hidden]) [data-chart]"))
    if (libraryLoaded && !node.dataset.drawn) drawNow(node);
});
document.addEventListener("mirror-theme", colours);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && OPEN.part) close();
});
window.addEventListener("hashchange", follow);

colours();
showFlow(0);
follow();
LIBRARY.then(() => (document.documentElement.dataset.ready = "yes"));
