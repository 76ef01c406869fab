// What does a page do by itself? It follows its stream, draws its charts, shows local times, and reports what was done.
"use strict";
(() => {
  const content = document.getElementById("content");
  const trouble = document.getElementById("trouble");
  const state = document.getElementById("pulse-state");
  const charts = new Map(); // by id: what was drawn, and from which data

  // --- time

  const full = new Intl.DateTimeFormat(undefined, { dateStyle: "medium", timeStyle: "medium" });
  const UNITS = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]];

  function length(seconds) {
    const from = UNITS.findIndex(([, size]) => seconds >= size);
    if (from < 0) return "0s";
    let rest = seconds, text = "";
    for (const [name, size] of UNITS.slice(from, from + 2)) {
      const whole = Math.floor(rest / size);
      rest -= whole * size;
      if (whole || !text) text += whole + name;
    }
    return text;
  }

  function showLocalTimes(root) {
    for (const time of root.querySelectorAll("time[datetime]")) {
      const at = new Date(time.dateTime);
      if (Number.isNaN(at.getTime())) continue;
      const away = (Date.now() - at.getTime()) / 1000;
      let text = full.format(at);
      if (time.dataset.form === "ago") text = away >= 0 ? length(away) : "in " + length(-away);
      if (time.textContent !== text) time.textContent = text;
      if (!time.title) time.title = full.format(at) + " (" + at.toISOString() + ")";
    }
  }
  setInterval(() => { if (!document.hidden) showLocalTimes(document); }, 1000);

  // --- charts

  function colour(name) {
    return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  }

  function seconds(value) {
    if (value == null) return "–";
    return value < 1 ? Math.round(value * 1000) + " ms" : value < 100 ? +value.toFixed(1) + " s" : length(value);
  }

  function drawChart(figure) {
    const canvas = figure.querySelector(".canvas");
    const known = charts.get(figure.id);
    const isDark = document.documentElement.dataset.theme + matchMedia("(prefers-color-scheme: dark)").matches;
    const width = canvas.clientWidth;
    if (known && known.points === figure.dataset.points && known.width === width && known.isDark === isDark) return;
    const points = JSON.parse(figure.dataset.points);
    const names = Object.keys(points.series);
    const data = [points.times, ...names.map((name) => points.series[name])];
    if (known && known.width === width && known.isDark === isDark && known.canvas === canvas) {
      known.plot.setData(data);
      known.points = figure.dataset.points;
      return;
    }
    if (known) known.plot.destroy();
    const format = points.unit === "seconds" ? (_, value) => seconds(value) : (_, value) => (value == null ? "–" : value.toLocaleString());
    const isSparse = data[1].filter((value) => value != null).length < 20; // a line needs two neighbours
    const colours = names.includes("failed") ? ["--bad"] : ["--line-1", "--line-2"];
    const axis = { stroke: colour("--soft"), grid: { stroke: colour("--edge"), width: 1 }, ticks: { stroke: colour("--edge"), width: 1 }, font: "11px system-ui" };
    const plot = new uPlot({
      width, height: 150,
      cursor: { y: false },
      legend: { live: true },
      scales: { y: { range: (_, low, high) => [0, high > 0 ? high * 1.1 : 1] } },
      axes: [axis, { ...axis, size: 56, values: (_, values) => values.map((value) => (points.unit === "seconds" ? seconds(value) : value >= 1e6 ? value / 1e6 + "M" : value >= 1e3 ? value / 1e3 + "k" : value)) }],
      series: [{}, ...names.map((name, place) => ({ label: name, stroke: colour(colours[place]), width: 1.6, fill: place || points.unit === "seconds" ? undefined : colour("--fill"), points: { show: isSparse, size: 4 }, spanGaps: false, value: format }))],
    }, data, canvas);
    charts.set(figure.id, { plot, width, isDark, canvas, points: figure.dataset.points });
  }

  function drawCharts() {
    for (const figure of document.querySelectorAll("figure.chart")) drawChart(figure);
  }
  addEventListener("resize", drawCharts);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawCharts);

  // --- the stream

  let stream = null;
  let retry = 1000;
  let waiting = null;

  function show(kind, text) {
    state.className = "dot " + kind;
    state.firstElementChild.textContent = text;
    state.title = text;
  }

  function warn(text) {
    trouble.hidden = !text;
    trouble.textContent = text;
  }

  const callbacks = {
    // Do not replace what a person is using: a field with the focus, a chart's canvas, a row that is open.
    beforeNodeMorphed(old) {
      if (!(old instanceof Element)) return true;
      if (old.classList.contains("canvas") || old.hasAttribute("data-keep")) return false;
      if (old.matches("input, select, textarea") && (old === document.activeElement || old.dataset.touched)) return false;
      return true;
    },
    beforeAttributeUpdated(name, node) {
      return !(name === "open" && node.matches("details, dialog")) && !(name === "title" && node.matches("time"));
    },
  };

  function fresh(html) {
    Idiomorph.morph(content, html, { morphStyle: "innerHTML", callbacks });
    htmx.process(content);
    settle(content);
  }

  function settle(root) {
    showLocalTimes(root);
    drawCharts();
    const heading = content.querySelector("h1");
    if (heading) document.title = heading.textContent.trim() + " · Pulse";
  }

  function follow() {
    state.hidden = !content.dataset.live;
    if (stream || state.hidden) return;
    stream = new EventSource(content.dataset.live);
    stream.addEventListener("page", (event) => {
      retry = 1000;
      show("live", "live");
      warn("");
      fresh(event.data);
    });
    stream.addEventListener("trouble", (event) => {
      show("stale", "not up to date");
      warn(event.data + " The page shows an older state, and updates itself as soon as it can.");
    });
    stream.addEventListener("full", (event) => {
      leave();
      show("stale", "not updated");
      warn(event.data + " This page stays as it was loaded, and updates itself as soon as it can.");
      waiting = setTimeout(follow, 15000);
    });
    stream.addEventListener("signed-out", () => location.reload());
    stream.onerror = () => {
      leave();
      show("stale", "not connected");
      if (!document.hidden) {
        warn("The server cannot be reached. The page shows an older state, and updates itself as soon as it can.");
        waiting = setTimeout(follow, retry);
        retry = Math.min(retry * 2, 15000);
      }
    };
  }

  function leave() {
    clearTimeout(waiting);
    if (stream) stream.close();
    stream = null;
  }

  // A hidden tab closes its connection: browsers have only six connections for each server.
  document.addEventListener("visibilitychange", () => (document.hidden ? leave() : follow()));
  addEventListener("pagehide", leave);
  addEventListener("pageshow", follow);
  content.addEventListener("input", (event) => { event.target.dataset.touched = "yes"; });

  // --- what was done

  const toasts = document.getElementById("said");
  function showToast(kind, text) {
    const toast = document.createElement("p");
    toast.className = kind;
    toast.textContent = text;
    toasts.append(toast);
    setTimeout(() => toast.remove(), kind === "bad" ? 12000 : 6000);
  }
  document.addEventListener("said", (event) => {
    const place = event.target.querySelector && event.target.querySelector("[data-refusal]"); // a long form shows it beside its button
    if (place) { place.hidden = event.detail.kind !== "bad"; place.textContent = event.detail.text; }
    if (!place || place.hidden) showToast(event.detail.kind, event.detail.text);
  });
  document.addEventListener("htmx:sendError", () => showToast("bad", "The server cannot be reached, so it is not known whether anything was done."));
  if (toasts.dataset.said) showToast("good", toasts.dataset.said);

  // Some actions ask for confirmation.
  document.addEventListener("htmx:confirm", (event) => {
    const question = event.detail.question;
    if (!question) return;
    event.preventDefault();
    ask(question).then((yes) => { if (yes) event.detail.issueRequest(true); });
  });
  function ask(question) {
    const dialog = document.createElement("dialog");
    const text = document.createElement("p");
    text.textContent = question;
    const form = document.createElement("form");
    form.method = "dialog";
    form.className = "row";
    for (const [value, name, kind] of [["", "No", "quiet"], ["yes", "Yes", "main"]]) {
      const button = document.createElement("button");
      button.value = value;
      button.textContent = name;
      button.className = kind;
      form.append(button);
    }
    dialog.append(text, form);
    document.body.append(dialog);
    dialog.showModal();
    return new Promise((resolve) => dialog.addEventListener("close", () => { resolve(dialog.returnValue === "yes"); dialog.remove(); }));
  }

  // --- light and dark

  const theme = document.getElementById("theme");
  function setTheme(name) {
    if (name) document.documentElement.dataset.theme = name;
    drawCharts();
  }
  try { setTheme(localStorage.getItem("pulse-theme")); } catch { /* this browser stores nothing */ }
  theme.addEventListener("click", () => {
    const isDark = getComputedStyle(document.documentElement).colorScheme.includes("dark");
    const next = isDark ? "light" : "dark";
    try { localStorage.setItem("pulse-theme", next); } catch { /* likewise */ }
    setTheme(next);
  });

  // --- the reader's own time zone, for a field that asks for one

  document.addEventListener("click", (event) => {
    if (!event.target.matches("[data-own-zone]")) return;
    const field = event.target.parentElement.querySelector("input");
    field.value = Intl.DateTimeFormat().resolvedOptions().timeZone;
    field.dispatchEvent(new Event("input", { bubbles: true }));
  });

  // --- keys: / moves to the search, g and a letter opens a page

  let before = "";
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, select, textarea")) return;
    const places = { o: "/", j: "/jobs", s: "/schedules", a: "/alarms", w: "/workers" };
    if (event.key === "/") {
      const field = document.querySelector("[data-search]");
      if (field) { event.preventDefault(); field.focus(); }
    } else if (before === "g" && places[event.key]) location.href = places[event.key];
    before = event.key;
  });

  document.addEventListener("htmx:afterSettle", (event) => settle(event.target));
  settle(document);
  follow();
})();
