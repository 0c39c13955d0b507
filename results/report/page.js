// Draws every chart of the page from the specifications in #charts, again when the colour scheme or the width changes.
// Without this script the page still has every number, in tables.
(function () {
  "use strict";
  const vega = (() => {
    const m = headsweepModules;
    const dataflow = m.require("vega-dataflow");
    for (const name of ["vega-transforms", "vega-view-transforms", "vega-encode"]) {
      Object.assign(dataflow.transforms, m.require(name));
    }
    return {
      parse: m.require("vega-parser").parse,
      View: m.require("vega-view").View,
      interpreter: m.require("vega-interpreter").expressionInterpreter,
    };
  })();

  // Colours that people with any of the common colour deficiencies can tell apart (Okabe and Ito), darkened or lightened until
  // they stand out from the background; every line also has a symbol of its own.
  const light = {
    ink: "#1c2024", quiet: "#5d6670", line: "#dfe2e6", grid: "#eceef0", panel: "#ffffff",
    category: ["#0072b2", "#d55e00", "#008f68", "#a84f86", "#b38600", "#444b52", "#7a6ad8", "#3a9bd0"],
    ordered: ["#440154", "#31688e", "#35b779", "#b5b41b"], ramp: ["#eef4fa", "#9dc3e6", "#3a83c4", "#0b3c6f"],
    diverging: ["#0b7a5b", "#f2f2f0", "#b3400e"],
    outcome: ["#0072b2", "#b38600", "#8d969e", "#c2410c", "#c9ced3"],
  };
  const dark = {
    ink: "#e6e8ea", quiet: "#a0a8b0", line: "#343a41", grid: "#272c31", panel: "#1b1f23",
    category: ["#58a9e0", "#f08a4b", "#3dc49a", "#dd8fc0", "#dcb33c", "#c4cad0", "#a89cf0", "#9fd4f5"],
    ordered: ["#8f7bdc", "#4aa3df", "#4fd08f", "#f2e34c"], ramp: ["#20272e", "#23507a", "#4691cf", "#cfe8fb"],
    diverging: ["#3dc49a", "#2a2f34", "#f08a4b"],
    outcome: ["#58a9e0", "#dcb33c", "#7f8890", "#f08a4b", "#4a5158"],
  };
  // n colours along the stops, for values that have an order (1, 2, 4 heads).
  function ordered(stops, n) {
    const channel = (color, i) => parseInt(color.slice(1 + 2 * i, 3 + 2 * i), 16);
    return Array.from({ length: n }, (_, k) => {
      const at = n > 1 ? (k * (stops.length - 1)) / (n - 1) : 0;
      const from = Math.min(Math.floor(at), stops.length - 2), part = at - from;
      return "rgb(" + [0, 1, 2].map((i) => Math.round((1 - part) * channel(stops[from], i) + part * channel(stops[from + 1], i))) + ")";
    });
  }
  const font = getComputedStyle(document.body).fontFamily;
  const config = (c) => ({
    background: null,
    axis: {
      domainColor: c.line, gridColor: c.grid, tickColor: c.line, labelColor: c.quiet, titleColor: c.quiet, labelFont: font,
      titleFont: font, labelFontSize: 12, titleFontSize: 13, titleFontWeight: "normal", titlePadding: 10, labelPadding: 5,
    },
    legend: {
      labelColor: c.ink, titleColor: c.quiet, labelFont: font, titleFont: font, labelFontSize: 13, titleFontSize: 13,
      titleFontWeight: "normal", labelLimit: 420, symbolSize: 90, rowPadding: 4, columnPadding: 18,
    },
    title: { color: c.ink, font, fontSize: 13, fontWeight: 600, anchor: "start", offset: 8 },
    group: { fill: null },
    text: { font, fontSize: 12, fill: c.quiet },
    range: {
      category: c.category, ramp: c.ramp, heatmap: c.ramp, diverging: c.diverging,
      symbol: ["circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left"],
    },
  });

  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;
  document.body.append(tip);
  // Everything is set by textContent: names in a sweep are never read as HTML.
  function showTip(_, event, item, value) {
    if (value == null || value === "") { tip.hidden = true; return; }
    const rows = typeof value === "object" ? Object.entries(value) : [["", String(value)]];
    const table = document.createElement("table");
    for (const [key, text] of rows) {
      const row = table.insertRow();
      const head = document.createElement("th");
      head.textContent = key;
      row.append(head);
      row.insertCell().textContent = text;
    }
    tip.replaceChildren(table);
    tip.hidden = false;
    const x = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
    const y = event.clientY + 18 + tip.offsetHeight > innerHeight ? event.clientY - tip.offsetHeight - 12 : event.clientY + 18;
    tip.style.left = Math.max(4, x) + "px";
    tip.style.top = Math.max(4, y) + "px";
  }

  const charts = JSON.parse(document.getElementById("charts").textContent);
  const views = new Map();
  const scheme = matchMedia("(prefers-color-scheme: dark)");

  function setSignal(view, name, value) {
    try { view.signal(name, value); } catch { /* this chart has no such signal */ }
  }

  function chosen() {
    return [...document.querySelectorAll("select[data-signal]")].map((s) => [s.dataset.signal, s.value, s.dataset.charts.split(" ")]);
  }

  async function draw(id) {
    const place = document.getElementById(id);
    if (!place) return;
    if (views.has(id)) views.get(id).finalize();
    const colours = scheme.matches ? dark : light;
    const spec = structuredClone(charts[id]);
    for (const scale of spec.scales) if (scale.range === "ordered") scale.range = ordered(colours.ordered, spec.usermeta.ordered);
    const signals = { available: Math.max(320, place.clientWidth), ink: colours.ink, quiet: colours.quiet, panel: colours.panel, outcomeColors: colours.outcome };
    for (const [name, value, targets] of chosen()) if (targets.includes(id)) signals[name] = value;
    for (const signal of spec.signals || []) {
      if (!(signal.name in signals)) continue;
      delete signal.init;
      delete signal.update;
      signal.value = signals[signal.name];
    }
    const view = new vega.View(vega.parse(spec, config(colours), { ast: true }), {
      expr: vega.interpreter, renderer: "svg", container: place, hover: true, tooltip: showTip, logLevel: 1,
    });
    views.set(id, view);
    await view.runAsync();
    place.dataset.drawn = "yes";
  }

  async function drawAll() {
    const failed = [];
    for (const id of Object.keys(charts)) {
      try {
        await draw(id);
      } catch (error) {
        failed.push(id + ": " + error.message);
        const place = document.getElementById(id);
        if (place) place.textContent = "This chart could not be drawn (" + error.message + "); its numbers are in the table.";
      }
    }
    document.body.dataset.charts = failed.length ? "failed: " + failed.join("; ") : "drawn";
    if (failed.length) console.error(failed.join("\n"));
  }

  for (const select of document.querySelectorAll("select[data-signal]")) {
    select.addEventListener("change", () => { for (const id of select.dataset.charts.split(" ")) if (charts[id]) draw(id); });
  }
  for (const head of document.querySelectorAll("table.sortable th")) {
    head.style.cursor = "pointer";
    head.title = "sort";
    head.addEventListener("click", () => {
      const column = head.cellIndex, body = head.closest("table").tBodies[0];
      const down = head.dataset.sorted === "up";
      const key = (row) => { const cell = row.cells[column]; const text = cell.dataset.value ?? cell.textContent; return text === "–" ? "" : text; };
      const rows = [...body.rows].sort((a, b) => {
        const x = key(a), y = key(b), n = Number(x) - Number(y);
        return (x === "" ? 1 : y === "" ? -1 : Number.isNaN(n) ? x.localeCompare(y) : n) * (down && x !== "" && y !== "" ? -1 : 1);
      });
      head.dataset.sorted = down ? "down" : "up";
      body.append(...rows);
    });
  }
  scheme.addEventListener("change", drawAll);
  let width = innerWidth, timer = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(timer);
    timer = setTimeout(drawAll, 200);
  });
  drawAll();
})();
