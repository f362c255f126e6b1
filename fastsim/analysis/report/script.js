// Draws the charts, filters and sorts the table. Everything it reads is in the page.
(() => {
  "use strict";
  const specs = JSON.parse(document.getElementById("charts").textContent);
  const config = JSON.parse(document.getElementById("config").textContent);

  const draw = (element) => {
    const narrow = element.clientWidth < 520;
    const small = narrow ? { axis: { ...config.axis, labelFontSize: 11, labelLimit: Math.round(element.clientWidth * 0.45) }, legend: { ...config.legend, columns: 2 } } : {};
    const spec = { ...specs[element.dataset.chart] };
    if (narrow && spec.layer) spec.layer = spec.layer.filter((layer) => !(layer.name ?? "").startsWith("texts"));
    return vegaEmbed(element, spec, {
      actions: false,
      renderer: "svg",
      config: { ...config, ...small },
      tooltip: { theme: "custom" },
    }).catch((error) => {
      element.textContent = "This chart could not be drawn; its figures are in the table below it.";
      console.error(error);
    });
  };
  const waiting = [...document.querySelectorAll("[data-chart]")].map(draw);
  Promise.all(waiting).then(() => { document.documentElement.dataset.drawn = waiting.length; });

  const search = document.getElementById("search");
  const table = document.getElementById("settings");
  if (!search || !table) return;
  const body = table.tBodies[0];
  const rows = [...body.rows];
  const texts = rows.map((row) => row.textContent.toLowerCase());
  const count = document.getElementById("count");
  search.addEventListener("input", () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, k) => {
      row.hidden = !words.every((word) => texts[k].includes(word));
      shown += !row.hidden;
    });
    count.textContent = `${shown.toLocaleString("en")} of ${rows.length.toLocaleString("en")} rows shown`;
  });
  table.querySelectorAll("th button").forEach((button) => {
    button.addEventListener("click", () => {
      const head = button.closest("th");
      const descending = head.getAttribute("aria-sort") === "ascending";
      table.querySelectorAll("th[aria-sort]").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      const key = (row) => row.cells[head.cellIndex].dataset.value ?? row.cells[head.cellIndex].textContent;
      const numeric = rows.every((row) => key(row) === "" || !Number.isNaN(Number(key(row))));
      const sorted = [...rows].sort((a, b) => {
        const [x, y] = [key(a), key(b)];
        if (x === "" || y === "") return (x === "") - (y === "");
        const order = numeric ? Number(x) - Number(y) : x.localeCompare(y, "en", { numeric: true });
        return descending ? -order : order;
      });
      body.append(...sorted);
    });
  });
})();
