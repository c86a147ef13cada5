"use strict";
// The page is whole without this: it adds sorting, filtering and hiding of columns.
(() => {
  const plain = (text) => text.normalize("NFD").replace(/\p{M}/gu, "").toLowerCase();
  const rows = [...document.querySelectorAll("[data-find]")];
  const marks = [...document.querySelectorAll("[data-mark]")];
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
    for (const mark of marks) mark.classList.toggle("dim", !codes.has(mark.dataset.mark));
    found.textContent = words.length ? `${codes.size} of ${total} languages` : `${total} languages`;
  }

  // A number, a text, or null where a language has no number.
  const value = (row, column) => {
    const cell = row.cells[column];
    if (!("v" in cell.dataset)) return cell.textContent.trim();
    return cell.dataset.v === "" ? null : Number(cell.dataset.v);
  };

  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en");

  function sort(header) {
    const table = header.closest("table");
    const column = header.cellIndex;
    const down = "numeric" in header.dataset && !("ascending" in header.dataset);
    const first = down ? "descending" : "ascending";
    const other = down ? "ascending" : "descending";
    const order = header.getAttribute("aria-sort") === first ? other : first;
    for (const each of header.parentNode.cells) each.removeAttribute("aria-sort");
    header.setAttribute("aria-sort", order);
    const sign = order === "ascending" ? 1 : -1;
    for (const group of table.tBodies) {
      const sorted = [...group.rows].filter((row) => row.dataset.code);
      sorted.sort((one, two) => {
        const [a, b] = [value(one, column), value(two, column)];
        // What has no number comes last in either direction.
        if (a === null || b === null) return (a === null) - (b === null);
        return sign * compare(a, b);
      });
      // Averages stay at the end of their group.
      const end = group.querySelector("tr.average");
      for (const row of sorted) group.insertBefore(row, end);
    }
  }

  function show(table, column, shown) {
    for (const row of table.rows) {
      // A heading above a group is one cell over all columns.
      if (row.cells.length > 1) row.cells[column].hidden = !shown;
    }
  }

  // Headers stay in sight where the whole table does; a wider one moves inside its own frame.
  function fit() {
    for (const frame of document.querySelectorAll(".wide")) {
      frame.classList.remove("fits");
      frame.classList.toggle("fits", frame.scrollWidth <= frame.clientWidth);
    }
  }

  // On a narrow screen scores come before what describes a language.
  const narrow = matchMedia("(max-width: 52rem)").matches;

  function menu(table) {
    const box = document.createElement("details");
    box.className = "menu";
    const title = document.createElement("summary");
    title.textContent = "Columns";
    const list = document.createElement("div");
    for (const header of table.tHead.rows[0].cells) {
      const column = header.cellIndex;
      if (column === 0) continue;
      const shown = !("minor" in header.dataset || (narrow && "wide" in header.dataset));
      const label = document.createElement("label");
      const tick = document.createElement("input");
      tick.type = "checkbox";
      tick.checked = shown;
      tick.addEventListener("change", () => {
        show(table, column, tick.checked);
        fit();
      });
      label.append(tick, header.textContent);
      list.append(label);
      if (!shown) show(table, column, false);
    }
    box.append(title, list);
    table.closest(".wide").before(box);
  }

  for (const table of document.querySelectorAll("table.scores")) menu(table);

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

  // Points lead to the language's examples, where the page has them.
  for (const mark of marks) {
    const to = `language-${mark.dataset.mark}`;
    if (!document.getElementById(to)) continue;
    mark.classList.add("leads");
    mark.addEventListener("click", () => {
      location.hash = to;
    });
  }

  finder.hidden = false;
  input.addEventListener("input", filter);
  window.addEventListener("hashchange", open);
  window.addEventListener("resize", fit);
  filter();
  fit();
  open();
})();
