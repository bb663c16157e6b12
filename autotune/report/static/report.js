"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("script");

  // Theme: the system's until the button says otherwise; storage may be refused to a local file.
  const system = matchMedia("(prefers-color-scheme: dark)");
  const button = document.getElementById("theme");
  const keep = (value) => { try { localStorage.setItem("autotune-theme", value); } catch { /* not kept */ } };
  const kept = () => { try { return localStorage.getItem("autotune-theme"); } catch { return null; } };
  const isDark = () => (root.dataset.theme || (system.matches ? "dark" : "light")) === "dark";
  const showTheme = () => {
    button.setAttribute("aria-pressed", String(isDark()));
    drawAll();
  };
  if (kept() === "dark" || kept() === "light") root.dataset.theme = kept();
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    keep(root.dataset.theme);
    showTheme();
  });
  system.addEventListener("change", showTheme);

  // Figures: colours are names of the page's variables until they are drawn.
  const source = document.getElementById("figures");
  const { figures, texts } = source ? JSON.parse(source.textContent) : { figures: {}, texts: {} };
  for (const figure of Object.values(figures)) {
    for (const trace of figure.data) trace.text = trace.customdata?.map((number) => texts[number]);
  }
  const NARROW = 520;
  const colored = (value, style) => {
    if (typeof value === "string") {
      const name = /^var\((--[\w-]+)\)$/.exec(value);
      return name ? style.getPropertyValue(name[1]).trim() : value;
    }
    if (Array.isArray(value)) return value.map((item) => colored(item, style));
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, colored(item, style)]));
    }
    return value;
  };
  let highlighted = null;
  const highlight = (traces) => {
    if (!highlighted) return traces;
    const wanted = new Set(highlighted);
    const chosen = traces.map((trace) => ({
      ...trace,
      showlegend: false,
      line: { ...trace.line, width: 3.5 },
      y: trace.y.map((height, index) => (wanted.has(trace.customdata[index]) ? height : null)),
    }));
    return [...traces.map((trace) => ({ ...trace, opacity: 0.15, hoverinfo: "skip", hovertemplate: null })), ...chosen];
  };
  const draw = (plot) => {
    const name = plot.dataset.figure;
    const figure = colored(figures[name], getComputedStyle(root));
    if (figure.short) plot.style.height = "11rem";
    const layout = figure.layout;
    layout.font.family = getComputedStyle(document.body).fontFamily;
    layout.autosize = true;
    const touch = !matchMedia("(hover: hover)").matches;
    // A finger has to be able to scroll past the figure.
    layout.dragmode = touch || plot.classList.contains("wide") ? false : "zoom";
    for (const axis of touch ? [layout.xaxis, layout.yaxis] : []) axis.fixedrange = true;
    if (plot.clientWidth < NARROW) {
      layout.font.size = 11;
      layout.margin = { ...layout.margin, l: 44, r: 6 };
      layout.xaxis.nticks = 5;
      // The legend has a line for each trace here.
      if (!figure.short && !plot.classList.contains("wide")) plot.style.height = `${290 + 19 * figure.data.length}px`;
    }
    const data = name === "parallel" ? highlight(figure.data) : figure.data;
    return Plotly.react(plot, data, layout, { responsive: true, displayModeBar: false });
  };
  const drawAll = () => {
    const drawn = [...document.querySelectorAll("[data-figure]")].map(draw);
    Promise.all(drawn).then(() => { root.dataset.drawn = String(drawn.length); });
  };

  const select = document.getElementById("highlight");
  if (select) {
    select.addEventListener("change", () => {
      highlighted = select.value === "" ? null : figures.parallel.highlights[Number(select.value)].trials;
      draw(document.querySelector('[data-figure="parallel"]'));
    });
  }

  // Tables that sort by the column whose title is pressed.
  for (const table of document.querySelectorAll("table.sortable")) {
    const body = table.tBodies[0];
    const titles = [...table.tHead.rows[0].cells];
    titles.forEach((title, column) => {
      const press = document.createElement("button");
      press.type = "button";
      press.textContent = title.textContent.trim();
      title.replaceChildren(press);
      press.addEventListener("click", () => {
        const up = title.getAttribute("aria-sort") === "descending" || !title.hasAttribute("aria-sort");
        const key = (row) => row.cells[column].dataset.sort ?? row.cells[column].textContent.trim();
        const compare = (a, b) => key(a).localeCompare(key(b), "en", { numeric: true });
        const number = (a, b) => Number(key(a)) - Number(key(b));
        const order = title.classList.contains("number") ? number : compare;
        body.append(...[...body.rows].sort((a, b) => (up ? order(a, b) : order(b, a))));
        titles.forEach((other) => other.removeAttribute("aria-sort"));
        title.setAttribute("aria-sort", up ? "ascending" : "descending");
      });
    });
  }

  for (const copy of document.querySelectorAll("[data-copy]")) {
    copy.addEventListener("click", async () => {
      const text = document.getElementById(copy.dataset.copy);
      const said = copy.firstChild;
      try {
        await navigator.clipboard.writeText(text.textContent);
        said.textContent = "Copied";
      } catch {
        getSelection().selectAllChildren(text);
        said.textContent = "Selected";
      }
      setTimeout(() => { said.textContent = "Copy"; }, 2000);
    });
  }

  showTheme();
})();
