// What is wider than its place scrolls by the keyboard, too: tables and code.
document.addEventListener("DOMContentLoaded", () => setTimeout(() => {
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap, pre > code")) wide.tabIndex = 0;
}, 500));
// A click on a head of a table in a block of class "sortable" sorts its rows: numbers by their value, the largest first;
// a dash, which is not measured, comes last.
document.addEventListener("DOMContentLoaded", () => {
  const valueOf = (row, i) => {
    const text = row.cells[i].textContent.trim();
    const number = parseFloat(text.replace(/,/g, "").replace("−", "-"));
    return { text, number, missing: text === "–" };
  };
  for (const table of document.querySelectorAll(".sortable table")) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    heads.forEach((head, i) => {
      const button = document.createElement("button");
      button.textContent = head.textContent;
      head.replaceChildren(button);
      button.onclick = () => {
        const rows = [...body.rows].map((row) => [row, valueOf(row, i)]);
        const isNumber = rows.every(([, value]) => value.missing || !isNaN(value.number));
        const first = isNumber ? "descending" : "ascending", second = isNumber ? "ascending" : "descending";
        const order = head.getAttribute("aria-sort") === first ? second : first, sign = order === "ascending" ? 1 : -1;
        rows.sort(([, a], [, b]) => a.missing - b.missing
          || sign * (isNumber ? a.number - b.number : a.text.localeCompare(b.text, "en", { numeric: true })));
        heads.forEach((other) => other.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", order);
        body.replaceChildren(...rows.map(([row]) => row));
      };
    });
  }
});
