"use strict";
// Shows the images of the page, records decisions and computes the results. Nothing is sent.
const content = JSON.parse(document.getElementById("content").textContent);
const NO_ANSWER = -1, NO_ROW = -2; // In place of a class, as in jbias.answers.observers.
const LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
const SLACK = 5; // Milliseconds: a part of a trial ends with the frame that is nearest to its time.
const DRAWS = 2000; // Of the bootstrap for kappa's interval, as in `jbias report decisions`.
const FEW = 100; // With fewer decisions for either cue, the interval of shape bias is over 0.2 wide.
const STORE = `jbias observe ${content.id}`; // Key of the session in this tab's storage.
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

/**
 * Return the session: blocks of [group, image] pairs. The page's seed chooses the blocks, the same for
 * everybody and more for a larger number; the person's seed orders the blocks and the images in them.
 */
function drawSession(seed, numBlocks, hasFurther) {
  const choice = generator(content.seed), random = generator(seed);
  const chosen = content.groups.flatMap((group, i) => {
    if (i > 0 && !hasFurther) return [];
    const blocks = shuffled(group.blocks, choice);
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

/** Return Cohen's kappa of shares of agreement, as jbias.stats.consistency: 1 for agreement on all. */
function kappaOf(observed, a, b) {
  const expected = a * b + (1 - a) * (1 - b);
  return observed === 1 ? 1 : (observed - expected) / (1 - expected);
}

/** Return Cohen's kappa of two lists of right and wrong, as jbias.stats.consistency. */
function kappa(first, second) {
  const n = first.length;
  if (!n) return NaN;
  const share = (marks) => marks.filter(Boolean).length / n;
  const observed = first.filter((mark, i) => mark === second[i]).length / n;
  return kappaOf(observed, share(first), share(second));
}

/** Return the quantile of ascending numbers, between the two nearest, as numpy.quantile. */
function quantile(ascending, share) {
  const place = share * (ascending.length - 1), below = Math.floor(place);
  const above = Math.min(below + 1, ascending.length - 1);
  return ascending[below] + (place - below) * (ascending[above] - ascending[below]);
}

/**
 * Return the 95 % interval of the mean kappa of one list of right and wrong with several, as
 * jbias.stats.consistency.mean_kappa: percentiles of a bootstrap over images, the same for all lists.
 */
function kappaInterval(first, others) {
  const n = first.length, random = generator(0), means = [];
  for (let draw = 0; draw < DRAWS; draw += 1) {
    const weight = new Uint16Array(n);
    for (let i = 0; i < n; i += 1) weight[Math.floor(random() * n)] += 1;
    const share = (isCounted) => {
      let sum = 0;
      for (let i = 0; i < n; i += 1) if (isCounted(i)) sum += weight[i];
      return sum / n;
    };
    const a = share((i) => first[i]);
    const kappas = others.map((marks) =>
      kappaOf(share((i) => first[i] === marks[i]), a, share((i) => marks[i])));
    means.push(kappas.reduce((sum, value) => sum + value, 0) / kappas.length);
  }
  means.sort((a, b) => a - b);
  return [quantile(means, 0.025), quantile(means, 0.975)];
}

/** Return "right" or "wrong" if all marks are alike, else "". */
function constantMark(marks) {
  if (marks.every(Boolean)) return "right";
  return marks.some(Boolean) ? "" : "wrong";
}

/**
 * Return the error consistency of your decisions with those of members: kappa (the mean over members),
 * n (images that all decided about), its interval, and a doubt, "" for none. Without n, kappa is NaN.
 */
function consistencyWith(trials, members, name) {
  const known = trials.filter((trial) => members.every((decide) => decide(trial) !== NO_ROW));
  const n = known.length;
  if (!n || !members.length) {
    return { kappa: NaN, n: 0, interval: null, doubt: `Kappa with “${name}” is undefined: no common image.` };
  }
  const right = (decide) => known.map((trial) => decide(trial) === cues(trial).label);
  const yours = right((trial) => trial.decision), others = members.map(right);
  const kappas = others.map((marks) => kappa(yours, marks));
  const value = kappas.reduce((sum, item) => sum + item, 0) / kappas.length;
  const mark = constantMark(yours), theirs = members.length === 1 ? constantMark(others[0]) : "";
  if (mark && mark === theirs) {
    return { kappa: value, n, interval: null, doubt: `Kappa with “${name}” is undefined (0 / 0): both were ${mark} `
      + `on all ${n} images. The 1 stands for full agreement, as in jbias report decisions.` };
  }
  if (mark || theirs) {
    return { kappa: value, n, interval: null, doubt: `Kappa with “${name}” says nothing: `
      + `${mark ? "you were" : `“${name}” was`} ${mark || theirs} on all ${n} images, so it is 0 whatever the `
      + "others' errors." };
  }
  return { kappa: value, n, interval: kappaInterval(yours, others), doubt: "" };
}

/**
 * Return sentences on decisions that are no better than guesses, or all the same: the rule of
 * jbias.cards.numbers.doubts. With k > 2 classes, guesses are for either cue on 2 / k of the answered
 * conflicts.
 */
function doubtsOf(trials, decide) {
  const lines = [], numClasses = content.classes.length;
  content.groups.forEach((group, i) => {
    const known = trials.filter((trial) => trial.group === i && decide(trial) !== NO_ROW);
    if (!known.length) return;
    const name = group.set || content.name, answered = known.filter((trial) => decide(trial) !== NO_ANSWER);
    const { shape, texture, neither } = countCues(answered, decide);
    const either = shape + texture;
    if (group.conflicts && numClasses > 2 && wilson(either, either + neither)[0] <= 2 / numClasses) {
      lines.push(`decisions for either cue on ${name} are no more than guessing gives (2 of ${numClasses} `
        + "classes), so no claim follows from shape bias");
    }
    const answers = known.map(decide).filter((decision) => decision !== NO_ANSWER);
    const labels = new Set(known.map((trial) => cues(trial).label));
    if (answers.length > 1 && new Set(answers).size === 1 && labels.size > 1) {
      lines.push(`every answered image of ${name} is called '${content.classes[answers[0]]}'`);
    }
  });
  return lines;
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

/** Return the results of a row of the table: you (name ""), or the network or people with a name. */
function rowOf(trials, members, name) {
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
  return {
    ...total, either,
    bias: either ? total.shape / either : NaN,
    // People see the same images: their decisions are not independent.
    interval: members.length === 1 ? wilson(total.shape, either) : null,
    shareNeither: conflicts ? total.neither / conflicts : NaN,
    accuracy,
    consistency: name ? consistencyWith(first, members, name) : null,
    doubts: members.length === 1 ? doubtsOf(trials, members[0]) : [],
  };
}

/** Return the rows of the table of results, by name. */
function computeRows(trials) {
  const you = { name: "You", ...rowOf(trials, [(trial) => trial.decision], "") };
  const others = content.compared.map(({ name, about, decisions }) => {
    const members = decisions[0].map((_, i) => (trial) => decisions[trial.group][i][trial.image]);
    return { name, about, ...rowOf(trials, members, name) };
  });
  return [you, ...others];
}

// ---- The exported file ----

const COLUMNS = ["subj", "trial", "block", "set", "imagename", "object_response", "category",
  "texture", "rt_ms", "shown_ms", "late_frames", "starts", "presentation", "seed", "page"];

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
      imagename: plainPath(group.images[trial.image]), object_response: content.classes[trial.decision],
      category: content.classes[label], texture: texture < 0 ? "" : content.classes[texture],
      rt_ms: trial.answered.toFixed(1), shown_ms: trial.shown.toFixed(1),
      late_frames: trial.late ?? "", starts: trial.starts,
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

/** Return a path of an image that no spreadsheet reads as a formula; "./" does not change the path. */
function plainPath(path) {
  return /^[=+\-@\t\r]/.test(path) ? `./${path}` : path;
}

/** Return a name that a file and a folder can have, and that no spreadsheet reads as a formula. */
function plainName(text) {
  const letters = text.normalize("NFC").replace(/\s+/gu, " ").replace(/[^\p{L}\p{M}\p{N} ._-]/gu, "");
  const name = [...letters.replace(/^[^\p{L}\p{N}]+/u, "")].slice(0, 40).join("").replace(/[. ]+$/u, "");
  return name || "subject-01";
}

/** Return the name of the exported file: without spaces, and none that Windows keeps for devices. */
function fileName(name) {
  const stem = name.replace(/[ .]+/gu, "-");
  return `${/^(con|prn|aux|nul|com\d|lpt\d)$/iu.test(stem) ? "subject-" : ""}${stem}.csv`;
}

// ---- The session in this tab's storage ----

/** Keep the session until the tab is closed; return false if the browser keeps nothing. */
function keep() {
  try {
    if (!session) sessionStorage.removeItem(STORE);
    else {
      const { seed, numBlocks, hasFurther, isCalm, name, trials, starts, isOver, isSaved } = session;
      sessionStorage.setItem(STORE, JSON.stringify(
        { seed, numBlocks, hasFurther, isCalm, name, trials, starts, isOver, isSaved }));
    }
    return true;
  } catch {
    return false;
  }
}

/** Return the session that this tab has kept, at the first image without a decision; null for none. */
function restore() {
  try {
    const kept = JSON.parse(sessionStorage.getItem(STORE));
    return kept?.trials.length ? makeSession(kept) : null;
  } catch {
    return null;
  }
}

/** Return a session in the order of its seed; trials: decisions for its first images. */
function makeSession({ seed, numBlocks, hasFurther, isCalm, name, trials = [], starts = 0, isOver = false,
  isSaved = false }) {
  const blocks = drawSession(seed, numBlocks, hasFurther), order = blocks.flat();
  trials.forEach((trial, i) => {
    if (order[i][0] !== trial.group || order[i][1] !== trial.image) throw new Error("another order");
  });
  const block = blocks.findIndex((_, i) => blocks.slice(0, i + 1).flat().length > trials.length);
  return {
    seed, numBlocks, hasFurther, isCalm, name, trials, starts, isOver, isSaved, blocks,
    block: block < 0 ? blocks.length : block,
    place: trials.length - blocks.slice(0, Math.max(block, 0)).flat().length,
    isOpen: false, turn: 0,
  };
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

/**
 * Draw each step at a frame of the screen, while isCurrent() is true. Return the times at which the steps
 * were drawn and the time from frame to frame (the median); null if it was stopped.
 */
function play(steps, isCurrent) {
  return new Promise((resolve) => {
    const starts = [], frames = [];
    let previous = NaN;
    const finished = () => {
      const gaps = frames.sort((a, b) => a - b);
      resolve({ starts, frame: gaps[Math.floor(gaps.length / 2)] });
    };
    const onFrame = (now) => {
      if (!isCurrent()) return resolve(null);
      if (now > previous) frames.push(now - previous);
      previous = now;
      const last = starts.length - 1;
      if (last < 0 || now - starts[last] >= steps[last].ms - SLACK) {
        if (starts.length === steps.length) return finished();
        steps[starts.length].draw();
        starts.push(now);
        if (steps[starts.length - 1].ms === 0) return finished();
      }
      requestAnimationFrame(onFrame);
    };
    requestAnimationFrame(onFrame);
  });
}

/** Return the number of frames of the screen for which an image was shown longer than planned. */
function lateFrames(shown, planned, frame) {
  return Math.max(0, Math.round((shown - planned) / frame));
}

/** Show the next image, then let the person choose. */
async function nextTrial() {
  const run = session, [group, image] = run.blocks[run.block][run.place];
  const turn = run.turn += 1, isCurrent = () => session === run && run.turn === turn;
  const shown = pictures.get(content.groups[group].pictures[image]);
  const mask = pictures.get(content.masks[run.trials.length % content.masks.length]);
  const { cross, image: exposure, mask: cover } = content.times;
  run.isOpen = false;
  run.starts += 1;
  keep();
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
  const played = await play([...begin, ...end], isCurrent);
  if (!played || !isCurrent()) return;
  const { starts, frame } = played;
  run.onset = starts[1];
  run.shown = run.isCalm ? null : starts[2] - starts[1];
  run.late = run.isCalm ? null : lateFrames(run.shown, exposure, frame);
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
    group, image, block: run.block, decision, answered, shown: run.shown ?? answered, late: run.late,
    starts: run.starts,
  });
  run.starts = 0;
  run.place += 1;
  if (run.place < run.blocks[run.block].length) return void nextTrial();
  run.block += 1;
  run.place = 0;
  if (run.block === run.blocks.length) return finish();
  keep();
  pause();
}

/** Show a pause: between blocks, within a block that was stopped, or after a reload. */
function pause(isReloaded = false) {
  const run = session, numBlocks = run.blocks.length, { block, place } = run;
  const title = place
    ? `Block ${block + 1} of ${numBlocks} is not complete.`
    : `${block ? `Block ${block} of ${numBlocks} is` : "No block is"} done.`;
  const kept = isReloaded ? `The page was loaded again. Your ${run.trials.length} decisions are kept. ` : "";
  const words = place
    ? `${place} of the ${run.blocks[block].length} images of this block are decided. Results are those of complete `
      + "blocks: if you do not continue, these decisions are left out. An image that was just shown is shown again."
    : "Take a break. The next block has one image of each class again.";
  open("pause");
  element("pause-title").textContent = title;
  element("pause-words").textContent = kept + words;
  element("finish").textContent = block ? "Show my results so far" : "End without results";
  element("status").textContent = `${title} ${kept}`;
  element("continue").focus();
}

/** Show one section of the page. */
function open(id) {
  for (const name of ["intro", "trial", "pause", "results"]) element(name).hidden = name !== id;
  document.body.classList.toggle("busy", id === "trial" || id === "pause");
  scrollTo(0, 0);
}

/** Begin or go on with a block. */
async function resume() {
  const run = session, turn = run.turn += 1; // A second press ends the first.
  await load([...content.masks,
    ...run.blocks.flat().map(([group, image]) => content.groups[group].pictures[image])]);
  if (session !== run || run.turn !== turn) return;
  open("trial");
  element("trial").focus({ preventScroll: true });
  nextTrial();
}

/** Begin a session with the choices of the form. */
async function start() {
  session = makeSession({
    seed: Number(element("seed").value) >>> 0, numBlocks: Number(element("blocks").value),
    hasFurther: element("further").checked, isCalm: element("calm").checked,
    name: plainName(element("name").value),
  });
  element("start").disabled = true;
  await resume();
  element("start").disabled = false;
}

/** Stop within a block, which can be continued. */
function stop() {
  session.turn += 1;
  session.isOpen = false;
  pause();
}

/** End the session with the results of its complete blocks, or, if there is none, without results. */
function end() {
  const { block, trials } = session;
  session.trials = trials.filter((trial) => trial.block < block);
  if (session.trials.length) finish();
  else leave();
}

/** Forget the session and show the form. */
function leave() {
  session = null;
  keep();
  open("intro");
  element("start").focus();
}

/** Return true if closing or leaving the page would lose decisions. */
const hasUnsaved = () => Boolean(session?.trials.length && !session.isSaved);

/** Remember that the decisions are in a file, or were copied. */
function markSaved() {
  session.isSaved = true;
  element("again").textContent = "Start again";
  keep();
}

// ---- The results ----

const rounded = (value) => Number.isNaN(value) ? "–" : value.toFixed(2).replace("-0.00", "0.00");
const percent = (value) => Number.isNaN(value) ? "–" : `${(100 * value).toFixed(0)} %`;

/** Show the results of all complete blocks. */
function finish() {
  session.isOver = true;
  keep();
  const { trials } = session, rows = computeRows(trials), you = rows[0];
  const hasConflicts = you.either + you.neither > 0;
  open("results");
  element("headline").textContent = headline(you, hasConflicts);
  element("headline").dataset.value = hasConflicts ? you.bias : you.accuracy[0];
  element("doubt").hidden = !you.doubts.length;
  element("doubt").textContent = you.doubts.map((line) => `Doubt: ${line}.`).join(" ");
  element("sentence").textContent = sentence(you, hasConflicts);
  fillTable(rows, hasConflicts);
  element("plot").hidden = !hasConflicts;
  if (hasConflicts) drawPlot(rows);
  fillNotes(rows, hasConflicts);
  const csv = toCsv(trials, session), file = fileName(session.name);
  element("csv").value = csv;
  element("file").textContent = file;
  element("download").download = file;
  element("download").href = URL.createObjectURL(new Blob([csv], { type: "text/csv" }));
  element("again").textContent = "Start again";
  element("status").textContent =
    `Done. ${element("headline").textContent}. ${element("doubt").textContent}`;
  element("results").focus();
}

/** Return the headline of the results. */
function headline(you, hasConflicts) {
  if (!hasConflicts) return `You chose the right class for ${percent(you.accuracy[0])} of the images`;
  if (!you.either) return "Your shape bias is undefined: you chose neither the shape nor the texture";
  if (you.doubts.length) return `No claim follows from your shape bias (${rounded(you.bias)})`;
  return `Your shape bias is ${rounded(you.bias)}`;
}

/** Return the sentence below the headline. */
function sentence(you, hasConflicts) {
  if (!hasConflicts) return `${content.groups[0].title}: ${session.trials.length} decisions.`;
  const interval = you.either
    ? `95 % interval ${rounded(you.interval[0])} to ${rounded(you.interval[1])} (Wilson's): of `
    : "Of ";
  const few = you.either < FEW ? ` The interval is wide with fewer than ${FEW} decisions for either.` : "";
  return `${interval}${you.either + you.neither} images whose shape and texture belong to different classes, `
    + `you chose the shape ${you.shape} times, the texture ${you.texture} times and neither ${you.neither} `
    + `times. 1 is always the shape, 0 always the texture.${few}`;
}

/** Return a new element with text and data. */
function make(tag, text = "", data = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  for (const [key, value] of Object.entries(data)) made.dataset[key] = value;
  return made;
}

/** Return a row of the table from its texts or elements; labels: the names of the columns. */
function makeLine(cells, labels, scope) {
  const line = make("tr");
  line.role = "row";
  cells.forEach((content, i) => {
    const isHead = scope === "col" || i === 0;
    const cell = content instanceof Element ? content : make(isHead ? "th" : "td", content);
    cell.role = isHead ? (scope === "col" ? "columnheader" : "rowheader") : "cell";
    if (isHead) cell.scope = scope;
    else cell.dataset.label = labels[i];
    line.append(cell);
  });
  return line;
}

/** Return a cell with a number and, below, its interval and further words. */
function makeCell(key, text, value, interval, words = "") {
  const cell = make("td", text, { key, value });
  const range = interval ? `${rounded(interval[0])} to ${rounded(interval[1])}` : "";
  const below = [range, words].filter(Boolean).join(", ");
  if (below) cell.append(make("small", below, interval ? { low: interval[0], high: interval[1] } : {}));
  return cell;
}

/** Return the cell of kappa, with the number of images and an interval. */
function makeKappaCell(consistency) {
  if (!consistency) return "–";
  const { kappa: value, n, interval, doubt } = consistency;
  const cell = makeCell("kappa", rounded(value), value, interval, `n = ${n}${doubt ? ", see below" : ""}`);
  cell.dataset.n = n;
  return cell;
}

/** Fill the table: a row for you and each network. */
function fillTable(rows, hasConflicts) {
  const shown = content.groups.map((group, i) => i).filter((i) =>
    !Number.isNaN(rows[0].accuracy[i]) && !(hasConflicts && content.groups[i].conflicts));
  const people = hasConflicts ? content.people : null;
  const labels = ["Who", ...hasConflicts ? ["Shape bias", "Neither"] : [],
    ...shown.map((i) => `${content.groups[i].title}, right`), "Errors as yours (kappa)"];
  const body = make("tbody"), top = make("thead");
  for (const row of rows) {
    const doubt = row.doubts.length ? "no claim" : "";
    const line = makeLine([
      row.name,
      ...hasConflicts ? [
        makeCell("bias", rounded(row.bias), row.bias, row.either ? row.interval : null, doubt),
        makeCell("neither", percent(row.shareNeither), row.shareNeither),
      ] : [],
      ...shown.map((i) => makeCell(`accuracy${i}`, percent(row.accuracy[i]), row.accuracy[i])),
      makeKappaCell(row.consistency),
    ], labels, "row");
    line.dataset.name = row.name;
    body.append(line);
  }
  if (people) {
    const cells = [`${people.name}*`, rounded(people.shape_bias), "–", ...shown.map(() => "–"),
      `${rounded(people.kappa)}*`];
    body.append(makeLine(cells, labels, "row"));
    body.lastChild.dataset.name = people.name;
  }
  top.append(makeLine(labels, labels, "col"));
  for (const part of [top, body]) part.role = "rowgroup";
  element("table").replaceChildren(top, body);
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
  const label = (one) => one.name + (one.doubts?.length ? " (no claim)" : "");
  svg.setAttribute("width", width);
  svg.setAttribute("height", height);
  svg.setAttribute("role", "img");
  svg.setAttribute("aria-label", `Shape bias: ${entries.map((one) => `${label(one)} ${rounded(one.bias)}`).join(", ")}`);
  add("text", { x: left, y: 14, class: "faint" }, "0: always the texture");
  add("text", { x: right, y: 14, class: "faint", "text-anchor": "end" }, "1: always the shape");
  entries.forEach((one, i) => {
    const y = 38 + i * step;
    add("text", { x: left, y: y + 2 }, label(one));
    add("line", { x1: left, x2: right, y1: y + 16, y2: y + 16 });
    if (Number.isNaN(one.bias)) return;
    if (one.interval) {
      add("line", { x1: x(one.interval[0]), x2: x(one.interval[1]), y1: y + 16, y2: y + 16, class: "range" });
    }
    add("circle", { cx: x(one.bias), cy: y + 16, r: 6 });
  });
  element("plot").replaceChildren(svg);
}

/** Return a sentence on the times for which images were shown. */
function describeTimes(trials) {
  if (session.isCalm) return "Each image stayed until you answered, so the numbers are not those of a short look.";
  const times = trials.map((trial) => trial.shown).sort((a, b) => a - b), planned = content.times.image;
  const late = trials.filter((trial) => trial.late), frames = late.reduce((sum, trial) => sum + trial.late, 0);
  const counted = late.length
    ? `${late.length} of ${times.length} images were shown longer than planned, by ${frames} `
      + `${frames === 1 ? "frame" : "frames"} of the screen in all (column late_frames)`
    : `none of ${times.length} images was shown longer than planned`;
  return `This browser showed images for ${times[Math.floor(times.length / 2)].toFixed(0)} ms (median; `
    + `${times[0].toFixed(0)} to ${times.at(-1).toFixed(0)}), planned were ${planned} ms; ${counted}. `
    + "A browser's timing is not a laboratory's.";
}

/** List what the numbers rest on. */
function fillNotes(rows, hasConflicts) {
  const { trials } = session, again = trials.filter((trial) => trial.starts > 1).length;
  const notes = [
    describeTimes(trials),
    ...again ? [`${again} of ${trials.length} trials were started again after a stop or a reload (column starts): `
      + "their images may have been shown twice."] : [],
    `${trials.length} decisions, in the order of seed ${session.seed}.`,
    ...rows.slice(1).filter((one) => one.about).map((one) => `${one.name}: ${one.about}`),
    ...rows.slice(1).flatMap((one) => one.doubts.map((line) => `${one.name}: ${line}.`)),
    ...rows.map((one) => one.consistency?.doubt).filter(Boolean),
  ];
  if (rows.length > 1) {
    notes.push("All rows without * are about the images that you saw. Kappa is Cohen's, of right and wrong"
      + `${hasConflicts ? " with the shape as the right class" : ""}: 1 if you and the network err on the same `
      + "images, 0 if your errors agree as by chance. Under kappa are its 95 % interval (a bootstrap with "
      + `${DRAWS} draws of the images) and n, the number of images that both decided about.`);
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
  element("choices").style.setProperty("--name", `${(0.45 * longest + 1.6).toFixed(2)}rem`);
  element("choices").classList.toggle("named", !content.examples.length);
  element("kept").textContent = keep()
    ? "Your decisions stay in this browser tab until you close it: a reload continues where you were. Save the "
      + "file at the end."
    : "This browser keeps nothing for this page: reloading or closing it loses your decisions.";
  element("choices").replaceChildren(...content.classes.map((name, i) => {
    const button = make("button");
    button.type = "button";
    button.setAttribute("aria-keyshortcuts", LETTERS[i]);
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
element("finish").addEventListener("click", end);
element("download").addEventListener("click", markSaved);
element("again").addEventListener("click", () => {
  const words = "Start again without saving";
  if (!hasUnsaved() || element("again").textContent === words) {
    element("seed").value = Math.floor(Math.random() * 1e6);
    return leave();
  }
  element("again").textContent = words;
  element("status").textContent = "Your decisions are not saved yet. Press again to start without saving.";
});
element("copy").addEventListener("click", () => {
  element("csv").select();
  // Works in files, too, where there is no clipboard to write to.
  if (!document.execCommand("copy")) return;
  element("status").textContent = "Copied.";
  markSaved();
});
addEventListener("keydown", (event) => {
  if (element("trial").hidden || event.ctrlKey || event.metaKey || event.altKey) return;
  const choice = LETTERS.indexOf(event.key.toUpperCase());
  if (event.repeat && ["Enter", " "].includes(event.key)) return event.preventDefault(); // Held down.
  if (event.repeat || event.key.length !== 1 || choice < 0) return;
  event.preventDefault();
  decide(choice, event.timeStamp);
});
addEventListener("beforeunload", (event) => {
  if (hasUnsaved()) event.preventDefault();
});
const restored = restore(); // Before the form is set up, which clears the storage of a tab without session.
session = restored;
setUp();
if (restored?.isOver) finish();
else if (restored) pause(true);
