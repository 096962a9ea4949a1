"use strict";
// Sorts a table by the column whose head is chosen, marks what scrolls, and opens the section
// that a link leads to; without this a page has plain tables.
const number = (text) => {
  const plain = text.replace(/−/g, "-").replace(/[,\s%]/g, "");
  if (plain.includes("∞")) return plain.startsWith("-") ? -Infinity : Infinity;
  const found = plain.match(/[-+]?(\d+\.?\d*|\.\d+)(e[-+]?\d+)?/i);
  // "< 1e-9" is less than 1e-9, and "12.3 ± 0.4" is 12.3.
  return found ? Number(found[0]) * (plain.startsWith("<") ? 0.999 : 1) : NaN;
};
const words = new Intl.Collator("en", { numeric: true });
const ordered = (rows, column, byWords, sign) => {
  const told = rows.map((row, place) => {
    const text = row.cells[column].textContent.trim();
    const value = byWords ? text : number(text);
    return { row, place, value, empty: byWords ? text === "" : Number.isNaN(value) };
  });
  told.sort((a, b) => {
    if (a.empty || b.empty) return a.empty - b.empty || a.place - b.place;
    const order = byWords ? words.compare(a.value, b.value)
      : a.value < b.value ? -1 : Number(a.value > b.value);
    return sign * order || a.place - b.place;
  });
  return told.map((each) => each.row);
};
for (const table of document.querySelectorAll("figure.table table")) {
  const body = table.tBodies[0], heads = [...table.tHead.rows[0].cells];
  const first = [...body.rows];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    if (!button.textContent) return;
    head.append(button);
    button.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      const next = { null: "ascending", ascending: "descending" }[now];
      heads.forEach((each) => each.removeAttribute("aria-sort"));
      const byWords = "words" in head.dataset, sign = next === "descending" ? -1 : 1;
      body.append(...(next ? ordered(first, column, byWords, sign) : first));
      if (next) head.setAttribute("aria-sort", next);
    });
  });
}
// Marks boxes that are wider than they show, and those with more beyond their right edge.
const mark = (box) => {
  box.classList.toggle("wider", box.clientWidth < box.scrollWidth - 1);
  box.classList.toggle("more", box.scrollLeft + box.clientWidth < box.scrollWidth - 1);
};
const boxes = [...document.querySelectorAll(".scroll")];
for (const box of boxes) box.addEventListener("scroll", () => mark(box), { passive: true });
const watch = new ResizeObserver((changes) => changes.forEach((each) => mark(each.target)));
for (const box of boxes) watch.observe(box);

// Shows the sentence of the pair that two menus choose; without this all are in a folded list.
for (const box of document.querySelectorAll(".pairs")) {
  const [first, second] = box.querySelectorAll("select");
  const sentences = box.querySelectorAll("li"), size = first.options.length;
  const show = () => {
    const i = Math.min(first.selectedIndex, second.selectedIndex);
    const j = Math.max(first.selectedIndex, second.selectedIndex);
    const place = i * size - (i * (i + 1)) / 2 + j - i - 1;
    box.querySelector("output").textContent =
      i === j ? "Choose two different names." : sentences[place].textContent;
  };
  for (const menu of [first, second]) menu.addEventListener("change", show);
  first.selectedIndex = 0;
  second.selectedIndex = 1;
  box.querySelector(".menus").hidden = false;
  show();
}

// Browsers open a folded section for a link into it; older ones do not.
const unfold = () => {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  const folded = target?.closest("details:not([open])");
  if (!folded) return;
  folded.open = true;
  target.scrollIntoView();
};
addEventListener("hashchange", unfold);
unfold();
