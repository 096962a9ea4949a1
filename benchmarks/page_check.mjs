// Opens a report in Chromium as a reader would, and says what is wrong with it.
//
//     npm install puppeteer-core axe-core       (PUPPETEER_SKIP_DOWNLOAD=1; in any folder)
//     NODE_PATH=that/folder/node_modules node benchmarks/page_check.mjs report/index.html shots/
//
// At 1280 and 360 pixels, light and dark: axe finds nothing serious, the page is not wider
// than the window, a choice of a column sorts it, nothing is loaded. Writes screenshots and
// the page as it prints. Needs chromium on PATH or in CHROME; ends with 1 on a finding.
import { createRequire } from "node:module";
import { mkdirSync } from "node:fs";
import { execSync } from "node:child_process";
import { pathToFileURL } from "node:url";

const require = createRequire(process.env.NODE_PATH + "/");
const puppeteer = require("puppeteer-core"), axe = require.resolve("axe-core");
const [page_path, out = "."] = process.argv.slice(2);
const executablePath = process.env.CHROME || execSync("command -v chromium").toString().trim();
mkdirSync(out, { recursive: true });
const browser = await puppeteer.launch({ executablePath, args: ["--no-sandbox"] });
let bad = 0;
const say = (where, what) => { bad += 1; console.log(`${where}: ${what}`); };

for (const width of [1280, 360]) for (const scheme of ["light", "dark"]) {
  const where = `${width}-${scheme}`, page = await browser.newPage();
  page.on("request", (r) => /^(file|data):/.test(r.url()) || say(where, `loads ${r.url()}`));
  page.on("pageerror", (error) => say(where, error));
  await page.setViewport({ width, height: 800 });
  await page.emulateMediaFeatures([{ name: "prefers-color-scheme", value: scheme }]);
  await page.goto(pathToFileURL(page_path).href);
  const wide = await page.evaluate(() => document.documentElement.scrollWidth);
  if (wide > width) say(where, `the page is ${wide} pixels wide`);
  await page.screenshot({ path: `${out}/${where}.png`, fullPage: true });
  await page.addScriptTag({ path: axe });
  const { violations } = await page.evaluate(() => window.axe.run());
  for (const found of violations) {
    const told = `${found.impact} ${found.id}: ${found.help} (${found.nodes.length})`;
    if (["serious", "critical"].includes(found.impact)) say(where, told);
    else console.log(`${where}: ${told}`);
    console.log(`    ${found.nodes[0].html.slice(0, 160)}`);
  }
  const sorted = await page.evaluate(() => {
    const table = document.querySelector("figure.table table"), column = 1;
    const told = () => [...table.tBodies[0].rows]
      .map((row) => parseFloat(row.cells[column].textContent)).filter((x) => !isNaN(x));
    const button = table.tHead.rows[0].cells[column].querySelector("button");
    const up = (button.click(), told()), sort = button.parentElement.ariaSort;
    const down = (button.click(), told());
    const rises = (x) => x.every((v, i) => !i || x[i - 1] <= v);
    return sort === "ascending" && rises(up) && rises(down.reverse());
  });
  if (!sorted) say(where, "the first table does not sort");
  if (width === 1280 && scheme === "light") {
    await page.pdf({ path: `${out}/print.pdf`, format: "A4" });
  }
  await page.close();
}
await browser.close();
console.log(bad ? `${bad} findings` : "nothing serious found");
process.exit(bad ? 1 : 0);
