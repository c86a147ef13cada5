"use strict";
// The page is whole without this: it adds sorting and filtering to what is already there.
(() => {
  const plain = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
  const rows = [...document.querySelectorAll("[data-find]")];
  const finder = document.querySelector(".finder");
  const input = finder.querySelector("input");
  const found = finder.querySelector("output");
  const total = Number(finder.dataset.total);

  function filter() {
    const words = plain(input.value).split(/\s+/).filter(Boolean);
    const codes = new Set();
    for (const row of rows) {
      const shown = words.every((word) => plain(row.dataset.find).includes(word));
      row.hidden = !shown;
      if (shown) codes.add(row.dataset.code);
    }
    found.textContent = words.length ? `${codes.size} of ${total} languages` : `${total} languages`;
  }

  const value = (row, column) => {
    const cell = row.cells[column];
    return "v" in cell.dataset ? Number(cell.dataset.v) : cell.textContent.trim();
  };

  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en");

  function sort(header) {
    const table = header.closest("table");
    const column = header.cellIndex;
    const first = "numeric" in header.dataset ? "descending" : "ascending";
    const other = first === "ascending" ? "descending" : "ascending";
    const order = header.getAttribute("aria-sort") === first ? other : first;
    for (const each of header.parentNode.cells) each.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    for (const group of table.tBodies) {
      const sorted = [...group.rows].filter((row) => row.dataset.code);
      sorted.sort((a, b) => sign * compare(value(a, column), value(b, column)));
      // Averages stay at the end of their group.
      const end = group.querySelector("tr.average");
      for (const row of sorted) group.insertBefore(row, end);
    }
  }

  for (const header of document.querySelectorAll(".scores thead th")) {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...header.childNodes);
    button.addEventListener("click", () => sort(header));
    header.append(button);
  }

  function open() {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    const details = target && target.closest("details");
    if (details) {
      details.open = true;
      target.scrollIntoView();
    }
  }

  finder.hidden = false;
  input.addEventListener("input", filter);
  window.addEventListener("hashchange", open);
  filter();
  open();
})();
