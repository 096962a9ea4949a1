// What is wider than its place scrolls by the keyboard, too: tables and code.
document.addEventListener("DOMContentLoaded", () => setTimeout(() => {
  for (const wide of document.querySelectorAll(".md-typeset__scrollwrap, pre > code")) wide.tabIndex = 0;
}, 500));
