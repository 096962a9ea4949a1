"use strict";
// Shows the images of the page, records decisions and computes the results. Nothing is sent.
const content = JSON.parse(document.getElementById("content").textContent);
const NO_ANSWER = -1, NO_ROW = -2; // In place of a class, as in jbias.answers.observers.
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const LATE = 50; // Milliseconds: an image that is shown for longer than planned by more is counted.
const FRAME = 5; // A part of a trial ends with the frame that is nearest to its time.
const element = (id) => document.getElementById(id);

// ---- Random order ----

/** Return a function that returns numbers in [0, 1): mulberry32 with a seed in [0, 2^32). */
function generator(seed) {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let t = state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}

/** Return the items in a random order (Fisher and Yates). */
function shuffled(items, random) {
  const order = [...items];
  for (let i = order.length - 1; i > 0; i -= 1) {
    const j = Math.floor(random() * (i + 1));
    [order[i], order[j]] = [order[j], order[i]];
  }
  return order;
}

/** Return the session: blocks of [group, image] pairs. */
function drawSession(seed, numBlocks, hasFurther) {
  const random = generator(seed);
  const chosen = content.groups.flatMap((group, i) => {
    if (i > 0 && !hasFurther) return [];
    const blocks = shuffled(group.blocks, random);
    return blocks.slice(0, i ? blocks.length : numBlocks)
      .map((block) => block.map((image) => [i, image]));
  });
  return shuffled(chosen, random).map((block) => shuffled(block, random));
}

// ---- Statistics, as those of jbias ----

/** Return Wilson's 95 % interval of a share, as jbias.measures.decisions.wilson_interval. */
function wilson(count, n) {
  if (!n) return [0, 1];
  const z2 = content.z2, share = count / n;
  const centre = share + z2 / (2 * n);
  const half = Math.sqrt(z2 * ((share * (1 - share)) / n + z2 / (4 * n ** 2)));
  const [low, high] = [-1, 1].map((sign) => (centre + sign * half) / (1 + z2 / n));
  return [count ? Math.max(low, 0) : 0, count < n ? Math.min(high, 1) : 1];
}

/** Return Cohen's kappa of two lists of right and wrong, as jbias.stats.consistency. */
function kappa(first, second) {
  const n = first.length;
  if (!n) return NaN;
  const share = (marks) => marks.filter(Boolean).length / n;
  const observed = first.filter((mark, i) => mark === second[i]).length / n;
  if (observed === 1) return 1;
  const [a, b] = [share(first), share(second)];
  const expected = a * b + (1 - a) * (1 - b);
  return (observed - expected) / (1 - expected);
}

/** Return counts of decisions for the shape, the texture and neither, over trials with a conflict. */
function countCues(trials, decide) {
  const counts = { shape: 0, texture: 0, neither: 0 };
  for (const trial of trials) {
    const { label, texture } = cues(trial), decision = decide(trial);
    if (texture < 0 || texture === label || decision === NO_ROW) continue;
    if (decision === label) counts.shape += 1;
    else if (decision === texture) counts.texture += 1;
    else counts.neither += 1;
  }
  return counts;
}

/** Return the classes of the shape and the texture of a trial's image. */
function cues(trial) {
  const group = content.groups[trial.group];
  return { label: group.label[trial.image], texture: group.texture[trial.image] };
}

/** Return the results of one row of the table: you, or a network or several people. */
function rowOf(trials, members, withYou) {
  const total = { shape: 0, texture: 0, neither: 0 };
  for (const decide of members) {
    const counts = countCues(trials, decide);
    for (const cue of Object.keys(total)) total[cue] += counts[cue];
  }
  const either = total.shape + total.texture, conflicts = either + total.neither;
  const accuracy = content.groups.map((group, i) => {
    const marks = members.flatMap((decide) => trials
      .filter((trial) => trial.group === i && decide(trial) !== NO_ROW)
      .map((trial) => decide(trial) === cues(trial).label));
    return marks.length ? marks.filter(Boolean).length / marks.length : NaN;
  });
  // Of the first group: the cue conflicts, if the page has any.
  const first = trials.filter((trial) => trial.group === 0);
  const kappas = withYou ? members.map((decide) => {
    const known = first.filter((trial) => decide(trial) !== NO_ROW);
    const right = (choose) => known.map((trial) => choose(trial) === cues(trial).label);
    return kappa(right((trial) => trial.decision), right(decide));
  }).filter((value) => !Number.isNaN(value)) : [];
  return {
    ...total, either,
    bias: either ? total.shape / either : NaN,
    // People see the same images: their decisions are not independent.
    interval: members.length === 1 ? wilson(total.shape, either) : null,
    shareNeither: conflicts ? total.neither / conflicts : NaN,
    accuracy,
    kappa: kappas.length ? kappas.reduce((a, b) => a + b, 0) / kappas.length : NaN,
  };
}

/** Return the rows of the table of results, by name. */
function computeRows(trials) {
  const you = { name: "You", ...rowOf(trials, [(trial) => trial.decision], false) };
  const others = content.compared.map(({ name, about, decisions }) => {
    const members = decisions[0].map((_, i) => (trial) => decisions[trial.group][i][trial.image]);
    return { name, about, ...rowOf(trials, members, true) };
  });
  return [you, ...others];
}

// ---- The exported file ----

const COLUMNS = ["subj", "trial", "block", "set", "imagename", "object_response", "category",
  "texture", "rt_ms", "shown_ms", "presentation", "seed", "page"];

/** Return the decisions as CSV, a row per trial. */
function toCsv(trials, session) {
  const hasSet = content.groups.some((group) => group.set);
  const hasTexture = content.groups.some((group) => group.texture.some((x) => x >= 0));
  const columns = COLUMNS.filter((name) =>
    (name !== "set" || hasSet) && (name !== "texture" || hasTexture));
  const rows = trials.map((trial, i) => {
    const group = content.groups[trial.group], { label, texture } = cues(trial);
    const cells = {
      subj: session.name, trial: i + 1, block: trial.block + 1, set: group.set,
      imagename: group.images[trial.image], object_response: content.classes[trial.decision],
      category: content.classes[label], texture: texture < 0 ? "" : content.classes[texture],
      rt_ms: trial.answered.toFixed(1), shown_ms: trial.shown.toFixed(1),
      presentation: session.isCalm ? "until answered" : `${content.times.image} ms`,
      seed: session.seed, page: `jbias ${content.version}`,
    };
    return columns.map((name) => quoted(String(cells[name]))).join(",");
  });
  return `${[columns.join(","), ...rows].join("\n")}\n`;
}

/** Return a cell of CSV, in quotes where it needs them. */
function quoted(text) {
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

/** Return a name that a file and a folder can have. */
function plainName(text) {
  const name = text.normalize("NFC").replace(/[^\p{L}\p{N} ._-]/gu, "").replace(/^[. -]+/, "");
  return name.trim().slice(0, 40) || "subject-01";
}

// ---- The trials ----

let session = null;
const canvas = element("canvas"), brush = canvas.getContext("2d");
const pictures = new Map(); // Decoded images by URL.

/** Wait until images are decoded, so that drawing one takes no time. */
async function load(urls) {
  await Promise.all(urls.filter((url) => !pictures.has(url)).map(async (url) => {
    const image = new Image();
    image.src = url;
    await image.decode();
    pictures.set(url, image);
  }));
}

/** Clear the window to mid-grey, and draw an image, as large as fits, or a cross. */
function draw(image, { cross = false, fill = false } = {}) {
  const side = canvas.width;
  brush.fillStyle = "#808080";
  brush.fillRect(0, 0, side, side);
  if (cross) {
    brush.fillStyle = "#000000";
    brush.fillRect(side / 2 - 20, side / 2 - 2, 40, 4);
    brush.fillRect(side / 2 - 2, side / 2 - 20, 4, 40);
  }
  if (!image) return;
  const scale = fill ? 0 : side / Math.max(image.naturalWidth, image.naturalHeight);
  const [w, h] = fill ? [side, side] : [image.naturalWidth * scale, image.naturalHeight * scale];
  brush.imageSmoothingEnabled = true;
  brush.imageSmoothingQuality = "high";
  brush.drawImage(image, (side - w) / 2, (side - h) / 2, w, h);
}

/** Draw each step at a frame of the screen; return the times at which they were drawn. */
function play(steps) {
  return new Promise((resolve) => {
    const starts = [];
    const onFrame = (now) => {
      const last = starts.length - 1;
      if (last < 0 || now - starts[last] >= steps[last].ms - FRAME) {
        if (starts.length === steps.length) return resolve(starts);
        steps[starts.length].draw();
        starts.push(now);
        if (steps[starts.length - 1].ms === 0) return resolve(starts);
      }
      requestAnimationFrame(onFrame);
    };
    requestAnimationFrame(onFrame);
  });
}

/** Show the next image, then let the person choose. */
async function nextTrial() {
  const run = session, [group, image] = run.blocks[run.block][run.place];
  const shown = pictures.get(content.groups[group].pictures[image]);
  const mask = pictures.get(content.masks[run.trials.length % content.masks.length]);
  const { cross, image: exposure, mask: cover } = content.times;
  run.isOpen = false;
  element("choices").setAttribute("aria-disabled", "true");
  element("progress").textContent =
    `Block ${run.block + 1} of ${run.blocks.length}, image ${run.place + 1} of ${run.blocks[run.block].length}`;
  const begin = [
    { ms: cross, draw: () => draw(null, { cross: true }) },
    { ms: run.isCalm ? 0 : exposure, draw: () => draw(shown) },
  ];
  const end = run.isCalm ? [] : [
    { ms: cover, draw: () => draw(mask, { fill: true }) },
    { ms: 0, draw: () => draw(null) },
  ];
  const starts = await play([...begin, ...end]);
  if (session !== run || run.isStopped) return;
  run.onset = starts[1];
  run.shown = run.isCalm ? null : starts[2] - starts[1];
  run.isOpen = true;
  element("choices").setAttribute("aria-disabled", "false");
  element("status").textContent = "Choose a class.";
}

/** Record a decision and go on. */
function decide(decision, now) {
  const run = session;
  if (!run?.isOpen || !(decision < content.classes.length)) return;
  run.isOpen = false;
  const [group, image] = run.blocks[run.block][run.place], answered = now - run.onset;
  run.trials.push({
    group, image, block: run.block, decision, answered, shown: run.shown ?? answered,
  });
  run.place += 1;
  if (run.place < run.blocks[run.block].length) return void nextTrial();
  run.block += 1;
  run.place = 0;
  if (run.block === run.blocks.length) return finish();
  open("pause");
  element("pause-title").textContent = `Block ${run.block} of ${run.blocks.length} is done.`;
  element("status").textContent = element("pause-title").textContent;
  element("continue").focus();
}

/** Show one section of the page. */
function open(id) {
  for (const name of ["intro", "trial", "pause", "results"]) element(name).hidden = name !== id;
  document.body.classList.toggle("busy", id === "trial" || id === "pause");
  scrollTo(0, 0);
}

/** Begin or go on with a block. */
function resume() {
  open("trial");
  element("trial").focus({ preventScroll: true });
  nextTrial();
}

/** Begin a session with the choices of the form. */
async function start() {
  const seed = Number(element("seed").value) >>> 0;
  const blocks = drawSession(seed, Number(element("blocks").value), element("further").checked);
  session = {
    seed, blocks, block: 0, place: 0, trials: [], isOpen: false, isStopped: false,
    isCalm: element("calm").checked, name: plainName(element("name").value),
  };
  element("start").disabled = true;
  await load([...content.masks,
    ...blocks.flat().map(([group, image]) => content.groups[group].pictures[image])]);
  element("start").disabled = false;
  resume();
}

/** Stop within a block, whose decisions are dropped. */
function stop() {
  session.isStopped = true;
  session.trials = session.trials.filter((trial) => trial.block < session.block);
  if (session.trials.length) return finish();
  session = null;
  open("intro");
  element("start").focus();
}

// ---- The results ----

const rounded = (value) => Number.isNaN(value) ? "–" : value.toFixed(2).replace("-0.00", "0.00");
const percent = (value) => Number.isNaN(value) ? "–" : `${(100 * value).toFixed(0)} %`;

/** Show the results of all complete blocks. */
function finish() {
  const { trials } = session, rows = computeRows(trials), you = rows[0];
  const hasConflicts = you.either + you.neither > 0, first = content.groups[0];
  open("results");
  element("headline").textContent = hasConflicts
    ? `Your shape bias is ${rounded(you.bias)}`
    : `You chose the right class for ${percent(you.accuracy[0])} of the images`;
  element("headline").dataset.value = hasConflicts ? you.bias : you.accuracy[0];
  element("sentence").textContent = hasConflicts
    ? `95 % interval ${rounded(you.interval[0])} to ${rounded(you.interval[1])} (Wilson's): of `
      + `${you.either + you.neither} images whose shape and texture belong to different classes, you chose the `
      + `shape ${you.shape} times, the texture ${you.texture} times and neither ${you.neither} times. `
      + "1 is always the shape, 0 always the texture."
    : `${first.title}: ${trials.length} decisions.`;
  fillTable(rows, hasConflicts);
  if (hasConflicts) drawPlot(rows);
  fillNotes(rows, hasConflicts);
  const csv = toCsv(trials, session), file = `${session.name}.csv`;
  element("csv").value = csv;
  element("file").textContent = /[^\w.-]/.test(file) ? `'${file}'` : file;
  element("download").download = file;
  element("download").href = URL.createObjectURL(new Blob([csv], { type: "text/csv" }));
  element("status").textContent = `Done. ${element("headline").textContent}.`;
  element("results").focus();
}

/** Return a new element with text and data. */
function make(tag, text = "", data = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [key, value] of Object.entries(data)) made.dataset[key] = value;
  return made;
}

/** Fill the table: a row for you and each network. */
function fillTable(rows, hasConflicts) {
  const shown = content.groups.map((group, i) => i).filter((i) =>
    !Number.isNaN(rows[0].accuracy[i]) && !(hasConflicts && content.groups[i].conflicts));
  const people = hasConflicts ? content.people : null;
  const head = ["Who", ...hasConflicts ? ["Shape bias", "Neither"] : [],
    ...shown.map((i) => `${content.groups[i].title}, right`), "Errors as yours (kappa)"];
  const row = make("tr");
  row.append(...head.map((text) => Object.assign(make("th", text), { scope: "col" })));
  const body = make("tbody");
  for (const one of rows) {
    const line = make("tr", "", { name: one.name });
    line.append(Object.assign(make("th", one.name), { scope: "row" }));
    if (hasConflicts) {
      const cell = make("td", rounded(one.bias), { key: "bias", value: one.bias });
      if (one.interval) {
        cell.append(make("small", `${rounded(one.interval[0])} to ${rounded(one.interval[1])}`,
          { low: one.interval[0], high: one.interval[1] }));
      }
      line.append(cell,
        make("td", percent(one.shareNeither), { key: "neither", value: one.shareNeither }));
    }
    line.append(...shown.map((i) =>
      make("td", percent(one.accuracy[i]), { key: `accuracy${i}`, value: one.accuracy[i] })));
    line.append(make("td", rounded(one.kappa), { key: "kappa", value: one.kappa }));
    body.append(line);
  }
  if (people) {
    const line = make("tr", "", { name: people.name });
    line.append(Object.assign(make("th", `${people.name}*`), { scope: "row" }),
      make("td", rounded(people.shape_bias)), make("td", "–"),
      ...shown.map(() => make("td", "–")), make("td", `${rounded(people.kappa)}*`));
    body.append(line);
  }
  const top = make("thead");
  top.append(row);
  element("table").replaceChildren(make("caption", ""), top, body);
  element("table").caption.remove();
}

/** Draw the shape biases on a line from texture to shape. */
function drawPlot(rows) {
  const space = "http://www.w3.org/2000/svg", entries = [...rows];
  if (content.people) {
    entries.push({ name: `${content.people.name}*`, bias: content.people.shape_bias, interval: null });
  }
  const width = Math.min(element("plot").clientWidth, 640), left = 8, right = width - 8;
  const step = 44, height = 24 + step * entries.length;
  const svg = document.createElementNS(space, "svg");
  const add = (tag, attributes, text) => {
    const part = document.createElementNS(space, tag);
    for (const [key, value] of Object.entries(attributes)) part.setAttribute(key, value);
    if (text) part.textContent = text;
    svg.append(part);
  };
  const x = (value) => left + value * (right - left);
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `Shape bias: ${entries.map((one) => `${one.name} ${rounded(one.bias)}`).join(", ")}`);
  add("text", { x: left, y: 14, class: "faint" }, "0: always the texture");
  add("text", { x: right, y: 14, class: "faint", "text-anchor": "end" }, "1: always the shape");
  entries.forEach((one, i) => {
    const y = 38 + i * step;
    add("text", { x: left, y: y + 2 }, one.name);
    add("line", { x1: left, x2: right, y1: y + 16, y2: y + 16 });
    if (Number.isNaN(one.bias)) return;
    if (one.interval) {
      add("line", { x1: x(one.interval[0]), x2: x(one.interval[1]), y1: y + 16, y2: y + 16, class: "range" });
    }
    add("circle", { cx: x(one.bias), cy: y + 16, r: 6 });
  });
  element("plot").replaceChildren(svg);
}

/** List what the numbers rest on. */
function fillNotes(rows, hasConflicts) {
  const { trials } = session, times = trials.map((trial) => trial.shown).sort((a, b) => a - b);
  const median = times[Math.floor(times.length / 2)], planned = content.times.image;
  const late = times.filter((time) => time > planned + LATE).length;
  const notes = [
    session.isCalm
      ? "Each image stayed until you answered, so the numbers are not those of a short look."
      : `This browser showed images for ${median.toFixed(0)} ms (median; ${times[0].toFixed(0)} to `
        + `${times.at(-1).toFixed(0)}), planned were ${planned} ms; ${late} of ${times.length} were shown `
        + `for more than ${planned + LATE} ms. A browser's timing is not a laboratory's.`,
    `${trials.length} decisions, in the order of seed ${session.seed}.`,
    ...rows.slice(1).filter((one) => one.about).map((one) => `${one.name}: ${one.about}`),
  ];
  if (rows.length > 1) {
    notes.push("All rows without * are about the images that you saw. Kappa is Cohen's, of right and wrong"
      + `${hasConflicts ? " with the shape as the right class" : ""}: 1 if you and the network err on the same `
      + "images, 0 if your errors agree as by chance.");
  }
  if (hasConflicts && content.people) {
    notes.push("* Other images: photographs with the texture of another class (Geirhos et al. 2019). Kappa is the "
      + "mean over pairs of these people.");
  }
  element("notes").replaceChildren(...notes.map((note) => make("li", note)));
}

// ---- The form and the keys ----

function setUp() {
  const size = content.groups[0].blocks[0].length, total = content.groups[0].blocks.length;
  const further = content.groups.slice(1);
  const numbers = [...new Set([1, 3, 6, total].map((n) => Math.min(n, total)))];
  element("blocks").replaceChildren(...numbers.map((n) => {
    const minutes = Math.max(1, Math.round((n * size * 2.5) / 60));
    const option = new Option(`${n * size} ${content.groups[0].title.toLowerCase()}, about ${minutes} min`, n);
    option.defaultSelected = option.selected = n === Math.min(3, total);
    return option;
  }));
  element("further-row").hidden = !further.length;
  element("further-words").textContent = "Also "
    + further.map((group) => `${group.images.length} ${group.title.toLowerCase()}`).join(" and ");
  element("seed").value = Math.floor(Math.random() * 1e6);
  element("calm").checked = matchMedia("(prefers-reduced-motion: reduce)").matches;
  const longest = Math.max(...content.classes.map((name) => name.length));
  const columns = content.examples.length || longest < 11 ? 4 : 2;
  element("choices").style.setProperty("--columns", Math.min(columns, content.classes.length));
  element("choices").replaceChildren(...content.classes.map((name, i) => {
    const button = make("button");
    button.type = "button";
    button.append(make("kbd", LETTERS[i]));
    if (content.examples.length) {
      const picture = new Image();
      picture.alt = name;
      picture.src = content.examples[i];
      button.append(picture);
    } else button.append(make("span", name));
    button.addEventListener("click", (event) => decide(i, event.timeStamp));
    return button;
  }));
}

element("form").addEventListener("submit", (event) => {
  event.preventDefault();
  start();
});
element("stop").addEventListener("click", stop);
element("continue").addEventListener("click", resume);
element("finish").addEventListener("click", finish);
element("again").addEventListener("click", () => {
  session = null;
  element("seed").value = Math.floor(Math.random() * 1e6);
  open("intro");
  element("start").focus();
});
element("copy").addEventListener("click", () => {
  element("csv").select();
  document.execCommand("copy"); // Works in files, too, where there is no clipboard to write to.
  element("status").textContent = "Copied.";
});
addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  const choice = LETTERS.indexOf(event.key.toUpperCase());
  if (event.key.length !== 1 || choice < 0 || element("trial").hidden) return;
  event.preventDefault();
  decide(choice, event.timeStamp);
});
setUp();
