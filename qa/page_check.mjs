// Opens pages in Chromium as a reader would, and says what is wrong with them.
//
//     npm install puppeteer-core axe-core       (PUPPETEER_SKIP_DOWNLOAD=1; in any folder)
//     NODE_PATH=that/folder/node_modules node qa/page_check.mjs report/index.html shots/
//     NODE_PATH=... node qa/page_check.mjs build/site/*.html build/site/reference/*.html shots/
//
// At 1280 and 360 pixels, light and dark: axe finds nothing serious, the page is not wider
// than the window, a choice of a column of a report's table sorts it, menus of pairs show the
// chosen pair, nothing is loaded from a network. Writes screenshots and the page as it prints. Needs chromium on PATH or in CHROME; ends with 1 on a finding.
import { createRequire } from "node:module";
import { basename } from "node:path";
import { mkdirSync, readFileSync } from "node:fs";
import { execSync } from "node:child_process";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.NODE_PATH + "/");
const puppeteer = require("puppeteer-core"), axe = readFileSync(require.resolve("axe-core"), "utf8");
const paths = process.argv.slice(2), out = paths.length > 1 ? paths.pop() : ".";
const executablePath = process.env.CHROME || execSync("command -v chromium").toString().trim();
mkdirSync(out, { recursive: true });
const browser = await puppeteer.launch({ executablePath, args: ["--no-sandbox"] });
let bad = 0;
const say = (where, what) => { bad += 1; console.log(`${where}: ${what}`); };

for (const path of paths) for (const width of [1280, 360]) for (const scheme of ["light", "dark"]) {
  const name = paths.length > 1 ? `${basename(path, ".html")}-` : "";
  const where = `${name}${width}-${scheme}`, visit = await browser.createBrowserContext();
  const page = await visit.newPage();
  page.on("request", (r) => /^(file|data|blob):/.test(r.url()) || say(where, `loads ${r.url()}`));
  page.on("pageerror", (error) => say(where, error));
  await page.setViewport({ width, height: 800 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.goto(pathToFileURL(path).href);
  await new Promise((done) => setTimeout(done, 800)); // A site's scripts run late.
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  if (wide > width) say(where, `the page is ${wide} pixels wide`);
  await page.screenshot({ path: `${out}/${where}.png`, fullPage: true });
  await page.evaluate(() => document.querySelectorAll("details").forEach((x) => (x.open = true)));
  await page.evaluate(axe); // Not as a tag, which the page's own policy refuses.
  const { violations } = await page.evaluate(() => window.axe.run());
  for (const found of violations) {
    const told = `${found.impact} ${found.id}: ${found.help} (${found.nodes.length})`;
    if (["serious", "critical"].includes(found.impact)) say(where, told);
    else console.log(`${where}: ${told}`);
    console.log(`    ${found.nodes[0].html.slice(0, 160)}`);
  }
  const sorted = await page.evaluate(() => {
    const table = document.querySelector("figure.table table"), column = 1;
    if (!table) return true; // No report.
    const told = () => [...table.tBodies[0].rows]
      .map((row) => parseFloat(row.cells[column].textContent)).filter((x) => !isNaN(x));
    const button = table.tHead.rows[0].cells[column].querySelector("button");
    const up = (button.click(), told()), sort = button.parentElement.ariaSort;
    const down = (button.click(), told());
    const rises = (x) => x.every((v, i) => !i || x[i - 1] <= v);
    return sort === "ascending" && rises(up) && rises(down.reverse());
  });
  if (!sorted) say(where, "the first table does not sort");
  const compares = await page.evaluate(() => {
    const box = document.querySelector(".pairs");
    if (!box) return true; // No pairs.
    const [first, second] = box.querySelectorAll("select"), names = [...first.options];
    const isRight = (i, j) => {
      [first.selectedIndex, second.selectedIndex] = [j, i]; // In the other order.
      first.dispatchEvent(new Event("change"));
      const words = `${names[i].text} less ${names[j].text}:`;
      return box.querySelector("output").textContent.includes(words);
    };
    return names.every((_, j) => names.every((_, i) => i >= j || isRight(i, j)));
  });
  if (!compares) say(where, "the menus show another pair than the chosen one");
  if (width === 1280 && scheme === "light") {
    await page.pdf({ path: `${out}/${name}print.pdf`, format: "A4" });
  }
  await visit.close();
}
await browser.close();
console.log(bad ? `${bad} findings` : "nothing serious found");
process.exit(bad ? 1 : 0);
