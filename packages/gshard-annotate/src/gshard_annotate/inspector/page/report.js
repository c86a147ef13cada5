"use strict";
// The page is whole without this: it adds sorting and filtering to what is already there.
(() => {
  const finder = document.querySelector(".finder");
  const input = document.getElementById("find");
  const flagged = document.getElementById("flagged");
  const tables = [...document.querySelectorAll("table.rows")];
  const rows = tables.flatMap((table) => [...table.tBodies[0].rows]);
  const words = new Map(rows.map((row) => [row, row.textContent.toLowerCase()]));

  const count = (table) => {
    const all = [...table.tBodies[0].rows];
    const shown = all.filter((row) => !row.hidden).length;
    const what = table.closest("section").id;
    return `${shown === all.length ? all.length : `${shown} of ${all.length}`} ${what}`;
  };

  function filter() {
    const wanted = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    for (const row of rows) {
      const fits = wanted.every((word) => words.get(row).includes(word));
      row.hidden = !fits || (flagged.checked && !row.classList.contains("flagged"));
    }
    finder.querySelector("output").textContent = tables.map(count).join(", ");
  }

  const value = (row, column) => {
    const cell = row.cells[column];
    return "v" in cell.dataset ? Number(cell.dataset.v) : cell.textContent.trim();
  };

  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number"
      ? a - b
      : String(a).localeCompare(String(b), "en", { numeric: true });

  function sort(header) {
    const body = header.closest("table").tBodies[0];
    const first = "numeric" in header.dataset ? "descending" : "ascending";
    const other = first === "ascending" ? "descending" : "ascending";
    const order = header.getAttribute("aria-sort") === first ? other : first;
    for (const each of header.parentNode.cells) each.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    const column = header.cellIndex;
    const sorted = [...body.rows].map((row) => [value(row, column), row]);
    sorted.sort((a, b) => sign * compare(a[0], b[0]));
    body.append(...sorted.map(([, row]) => row));
  }

  // On a narrow screen each row is a card (the style's doing), which needs the headings in its
  // cells, and the roles that a table loses when it is laid out otherwise.
  for (const table of tables) {
    const labels = [...table.tHead.rows[0].cells].map((header) => header.textContent);
    table.classList.add("cards");
    table.setAttribute("role", "table");
    for (const part of [table.tHead, table.tBodies[0]]) part.setAttribute("role", "rowgroup");
    for (const header of table.tHead.rows[0].cells) header.setAttribute("role", "columnheader");
    for (const row of table.rows) {
      row.setAttribute("role", "row");
      if (row.parentNode === table.tHead) continue;
      [...row.cells].forEach((cell, i) => {
        cell.dataset.label = labels[i];
        cell.setAttribute("role", cell.tagName === "TH" ? "rowheader" : "cell");
        cell.classList.toggle("empty", cell.childNodes.length === 0);
      });
    }
  }

  for (const header of document.querySelectorAll("table.rows thead th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sort(header));
    header.append(button);
  }

  // A link to a row that the filter hides would lead nowhere.
  function reveal() {
    const row = document.getElementById(location.hash.slice(1));
    if (!row || !row.hidden) return;
    input.value = "";
    flagged.checked = false;
    filter();
    row.scrollIntoView();
  }

  finder.hidden = false;
  finder.addEventListener("submit", (event) => event.preventDefault());
  input.addEventListener("input", filter);
  flagged.addEventListener("change", filter);
  window.addEventListener("hashchange", reveal);
  filter();
  reveal();
})();
