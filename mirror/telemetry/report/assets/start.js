// What is shown when: colours, flows, scales, the partition that the address names.

const TABLES = new Map();
const SECTIONS = DATA.flows.map((flow) => document.getElementById(`flow-${flow.number}`));
const DRAW = { total: drawTotal, lines: drawLines, slow: drawSlow };

const LIBRARY = new Promise((here) => document.addEventListener("mirror-plotly", here, { once: true }));

/** Each chart when it comes into view: the page is there before its last chart is drawn. */
const seen = new IntersectionObserver(
  (entries) => {
    for (const entry of entries) {
      if (!entry.isIntersecting) continue;
      seen.unobserve(entry.target);
      draw(entry.target);
    }
  },
  { rootMargin: "300px" },
);

/** One of a flow's charts, as soon as there is what draws it. */
function draw(node) {
  const flow = DATA.flows[SECTIONS.indexOf(node.closest(".flow"))];
  LIBRARY.then(() => DRAW[node.dataset.chart](node, flow));
}

function showFlow(number) {
  SECTIONS.forEach((section, at) => (section.hidden = at !== number));
  for (const button of document.querySelectorAll("#flows button"))
    button.setAttribute("aria-pressed", String(Number(button.dataset.flow) === number));
  const flow = DATA.flows[number];
  if (!TABLES.has(flow) && flow.parts.length) {
    TABLES.set(flow, new Table(SECTIONS[number], flow));
    for (const node of SECTIONS[number].querySelectorAll("[data-chart]")) seen.observe(node);
  }
}

/** `#flow:topic-3`, or `#topic-3` in the first flow that has it. */
function named(hash) {
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
    const part = wanted === null || wanted === flow.name ? flow.parts.find((one) => one.name === name) : null;
    if (part) return part;
  }
  return null;
}

function follow() {
  const part = location.hash.length > 1 ? named(location.hash) : null;
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
document.addEventListener("mirror-theme", colours);
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape" && OPEN.part) close();
});
window.addEventListener("hashchange", follow);

colours();
showFlow(0);
follow();
LIBRARY.then(() => (document.documentElement.dataset.ready = "yes"));
