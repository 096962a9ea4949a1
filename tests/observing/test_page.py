"""The page recovers scripted observers exactly, and its statistics are those of jbias."""

import csv
import html
import io
import json
import re

import numpy as np
import pytest

from jbias.answers import tables
from jbias.observing import comparison, page, stimuli
from jbias.stats import consistency
from tests import browser, cases
from tests.observing.test_stimuli import export

CLASSES = 16
# A clock of 50 ms a frame, as fast as the machine is; and the address of the last drawn picture.
FAST = """
let clock = 0;
const channel = new MessageChannel(), waiting = [];
channel.port1.onmessage = () => { clock += 50; waiting.shift()(clock); };
window.requestAnimationFrame = (act) => { waiting.push(act); channel.port2.postMessage(0); };
"""
WATCH = """
window.drawn = [];
const paint = CanvasRenderingContext2D.prototype.drawImage;
CanvasRenderingContext2D.prototype.drawImage = function (image, ...rest) {
  window.drawn.push(image.src);
  return paint.call(this, image, ...rest);
};
"""
# Decides about each picture that is drawn as planted; the page's own bookkeeping is not used.
OBSERVE = """
(async () => {
  const planted = PLANTED, keys = KEYS, masks = new Set(content.masks), place = new Map();
  content.groups.forEach((group, i) => group.pictures.forEach((url, j) => place.set(url, [i, j])));
  for (const [id, value] of Object.entries(FORM)) {
    const field = document.getElementById(id);
    if (typeof value === "boolean") field.checked = value; else field.value = value;
  }
  document.getElementById("start").click();
  const pause = () => new Promise((done) => setTimeout(done, 0));
  const shown = (id) => !document.getElementById(id).hidden;
  while (!shown("results")) {
    if (shown("pause")) document.getElementById("continue").click();
    const choices = document.getElementById("choices");
    if (shown("trial") && choices.getAttribute("aria-disabled") === "false") {
      const url = drawn.findLast((src) => !masks.has(src)), [i, j] = place.get(url);
      const choice = planted[i][j];
      if (keys) dispatchEvent(new KeyboardEvent("keydown", { key: "abcdefghijklmnop"[choice] }));
      else choices.children[choice].click();
    } else await pause();
  }
  const rows = [...document.querySelectorAll("#table tbody tr")].map((row) => [row.dataset.name,
    Object.fromEntries([...row.querySelectorAll("td[data-key]")].map((cell) =>
      [cell.dataset.key, [cell.dataset.value, cell.querySelector("small")?.dataset.low,
        cell.querySelector("small")?.dataset.high]]))]);
  return { csv: document.getElementById("csv").value, rows, headline: document.getElementById("headline").textContent };
})()
"""


@pytest.fixture(scope="module")
def shown():
    return stimuli.embedded()


@pytest.fixture(scope="module")
def compared(shown):
    return comparison.of_embedded(shown)


@pytest.fixture(scope="module")
def written(shown, compared, tmp_path_factory):
    """The address of the embedded page."""
    out = tmp_path_factory.mktemp("page")
    return page.write(page.to_html(shown, compared), out).as_uri()


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
    with browser.started(str(tmp_path_factory.mktemp("chromium"))) as started:
        yield started


def observe(chromium, url, planted, *, keys=False, width=1280, **form):
    """Return the results of a scripted observer, and the browser's page.

    planted: by group and image, the class to choose. keys: by keys, not by clicks.
    """
    visit = browser.Page(chromium)
    visit.resize(width, 844)
    visit.open(url, script=FAST + WATCH)
    script = OBSERVE.replace("PLANTED", json.dumps([x.tolist() for x in planted]))
    script = script.replace("KEYS", json.dumps(keys))
    results = visit.run(script.replace("FORM", json.dumps(form)))
    assert not visit.errors()
    return results, visit


def draw_observer(shown, seed):
    """Return planted decisions: shares of shape, texture and other decisions that differ by seed."""
    rng = np.random.default_rng(seed)
    shares = rng.dirichlet([1, 1, 0.5])
    planted = []
    for group in shown.groups:
        n = len(group.label)
        texture = group.label if group.texture is None else group.texture
        cues = np.stack([group.label, texture, rng.integers(0, CLASSES, n)])
        planted.append(cues[rng.choice(3, n, p=shares), np.arange(n)])
    return planted


def check(results, planted, *, shown, compared, tmp_path, name):
    """Check that an exported file has the planted decisions, and the page jbias's statistics."""
    path = tmp_path / "any.csv"
    path.write_text(results["csv"])
    observers = {x.dataset: x for x in tables.read(str(path))}
    assert {x.name for x in observers.values()} == {name}
    rows = dict(results["rows"])
    for i, group in enumerate(shown.groups):
        if group.dataset not in observers:
            continue
        observer = observers[group.dataset]
        assert observer.classes == tuple(sorted(shown.classes))
        place = [group.images.index(image) for image in observer.images]
        decided = [shown.classes.index(observer.classes[x]) for x in observer.decision]
        assert decided == planted[i][place].tolist()
        correct = observer.decision == observer.label
        if not group.has_conflicts:
            assert number(rows["You"], f"accuracy{i}") == observer.accuracy
            for network in compared:
                right = network.decisions[i][0][place] == group.label[place]
                assert number(rows[network.name], f"accuracy{i}") == right.mean()
            continue
        bias = observer.shape_bias
        either, n = bias.n_shape + bias.n_texture, int(observer.is_conflict.sum())
        value, low, high = map(float, rows["You"]["bias"])
        assert (value, (low, high)) == (bias.value, bias.interval)
        assert number(rows["You"], "neither") == (n - either) / n
        for network in compared:
            answers = network.decisions[i][0][place]
            right = answers == group.label[place]
            kappa = consistency.error_consistency(correct, right).kappa
            assert number(rows[network.name], "kappa") == pytest.approx(
                kappa, abs=1e-12
            )
            num_shape = int(right.sum())
            num_texture = int((answers == group.texture[place]).sum())
            share = num_shape / (num_shape + num_texture)
            assert number(rows[network.name], "bias") == share


def number(row, key):
    return float(row[key][0])


@browser.needed
@cases.each("seed", [*range(20)], quick=("0", "1"))
def test_scripted_observers_are_recovered_exactly(
    seed, chromium, written, shown, compared, tmp_path
):
    """Decisions, shape bias, interval, share of neither, accuracy and kappa; no request is sent."""
    planted = draw_observer(shown, seed)
    blocks = [1, 3, 6, 15][seed % 4]
    results, visit = observe(
        chromium,
        written,
        planted,
        keys=bool(seed % 2),
        width=[1280, 390][seed // 2 % 2],
        seed=seed,
        blocks=blocks,
        name=f"subject-{seed:02d}",
        further=seed % 3 != 0,
    )
    check(
        results,
        planted,
        shown=shown,
        compared=compared,
        tmp_path=tmp_path,
        name=f"subject-{seed:02d}",
    )
    table = [*csv.DictReader(io.StringIO(results["csv"]))]
    assert len(table) == CLASSES * (blocks + 2 * (seed % 3 != 0))
    assert {row["seed"] for row in table} == {str(seed)}
    assert {float(row["shown_ms"]) for row in table} == {200.0}
    for block in {row["block"] for row in table}:
        labels = [row["category"] for row in table if row["block"] == block]
        assert sorted(labels) == sorted(shown.classes)
    outside = [x for x in visit.requests() if not re.match("(data|blob):", x)]
    assert outside == [written]


@browser.needed
def test_a_seed_gives_its_order(chromium, written, shown):
    """Without a clock of its own: the order is a function of the seed and the choices alone."""
    visit = browser.Page(chromium)
    visit.open(written)
    orders = visit.run(
        "[1, 1, 2].map((seed) => JSON.stringify(drawSession(seed, 15, true)))"
    )
    assert orders[0] == orders[1] != orders[2]
    every = [tuple(image) for block in json.loads(orders[0]) for image in block]
    sizes = [len(group.images) for group in shown.groups]
    assert sorted(every) == [(i, j) for i, n in enumerate(sizes) for j in range(n)]


@browser.needed
def test_statistics_are_those_of_python(chromium, written):
    """Wilson's interval and kappa of random and extreme counts, also where chance is 1."""
    from jbias.measures import decisions

    visit = browser.Page(chromium)
    visit.open(written)
    counts = [
        (k, n)
        for n in (0, 1, 2, 7, 48, 240)
        for k in {0, n // 3, n - 1, n}
        if 0 <= k <= n
    ]
    intervals = visit.run(f"{json.dumps(counts)}.map(([k, n]) => wilson(k, n))")
    assert [tuple(x) for x in intervals] == [
        decisions.wilson_interval(k, n) for k, n in counts
    ]
    rng = np.random.default_rng(0)
    pairs = [rng.random((2, 48)) < rng.random((2, 1)) for _ in range(50)]
    pairs += [np.array([[a] * 5, [b] * 5], bool) for a in (0, 1) for b in (0, 1)]
    kappas = visit.run(
        f"{json.dumps([x.tolist() for x in pairs])}.map(([a, b]) => kappa(a, b))"
    )
    expected = [consistency.error_consistency(a, b).kappa for a, b in pairs]
    np.testing.assert_allclose(kappas, expected, rtol=0, atol=1e-12)


@browser.needed
def test_a_session_by_keyboard_alone_on_a_phone(chromium, written, shown):
    """At its true speed: Tab and Enter start, letters decide; images are shown for 200 ms."""
    visit = browser.Page(chromium)
    visit.resize(390, 844)
    visit.open(written, script=WATCH)
    visit.run('document.getElementById("blocks").value = 1')
    for _ in range(40):
        visit.press("Tab")
        if visit.run("document.activeElement.id") == "start":
            break
    visit.press("Enter")
    for letter in "abcd":
        visit.run(
            "new Promise((done) => { const timer = setInterval(() => { if (session?.isOpen) "
            "{ clearInterval(timer); done(); } }, 5); })"
        )
        if letter == "d":
            layout = visit.run(
                "[document.documentElement.scrollWidth, Math.max(...[...document."
                "querySelectorAll('#choices button')].map((x) => x.getBoundingClientRect().bottom))]"
            )
        visit.press(letter)
    assert layout[0] <= 390 and layout[1] <= 844  # All buttons are in sight.
    trials = visit.run("session.trials.map((x) => [x.decision, x.shown, x.answered])")
    assert [decision for decision, _, _ in trials] == [0, 1, 2, 3]
    # Two frames of a loaded machine; a laboratory would be stricter.
    assert np.median([time for _, time, _ in trials]) == pytest.approx(200, abs=34)
    assert min(time for _, _, time in trials) >= 350  # Image and noise come first.


@browser.needed
def test_a_block_that_is_stopped_is_dropped_and_early_answers_do_not_count(
    chromium, written
):
    visit = browser.Page(chromium)
    visit.open(written, script=FAST + WATCH)
    start = (
        "document.getElementById('blocks').value = 1;"
        "document.getElementById('further').checked = false; start()"
    )
    visit.run(start)
    early = visit.run(
        "(() => { session.isOpen = false; decide(0, 0); return session.trials.length; })()"
    )
    assert early == 0
    visit.run("document.getElementById('stop').click()")
    assert visit.run("[document.getElementById('intro').hidden, session]") == [
        False,
        None,
    ]


@browser.needed
def test_without_flashing_no_noise_is_drawn(chromium, written, shown):
    """The mode is chosen for readers who prefer reduced motion, and is in the file."""
    planted = draw_observer(shown, seed=5)
    results, visit = observe(
        chromium, written, planted, calm=True, blocks=1, further=False, seed=1
    )
    assert visit.run("drawn.filter((src) => content.masks.includes(src)).length") == 0
    table = [*csv.DictReader(io.StringIO(results["csv"]))]
    assert {row["presentation"] for row in table} == {"until answered"}
    visit = browser.Page(chromium)
    reduce = {"name": "prefers-reduced-motion", "value": "reduce"}
    visit.send("Emulation.setEmulatedMedia", {"features": [reduce]})
    visit.open(written)
    assert visit.run("document.getElementById('calm').checked")


def test_no_second_has_more_than_three_flashes():
    """Image and noise are two flashes of a trial (WCAG 2.3.1: at most three in a second)."""
    assert 2 * 1000 / sum(page.TIMES.values()) <= 3


def test_the_page_may_load_nothing(shown):
    text = page.to_html(shown, [])
    assert "default-src 'none'" in html.unescape(text)
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", text)
    assert text.count("<script") == 2


@browser.needed
def test_own_stimuli_are_observed_and_read(chromium, tmp_path):
    """A page of a folder with two classes and a model's decisions; by hand: kappa of 2 x 4 marks."""
    export(
        tmp_path / "in",
        [
            ("cues", "", f"cues/{i}.png", *[("star", "moon"), ("moon", "star")][i % 2])
            for i in range(4)
        ],
    )
    model = tmp_path / "net.csv"
    rows = ["0.png,star,star", "1.png,moon,moon", "2.png,moon,star", "3.png,star,moon"]
    text = "\n".join(f"cues/{row}" for row in rows)
    model.write_text(f"imagename,object_response,category\n{text}\n")
    shown = stimuli.from_folder(str(tmp_path / "in"))
    compared = comparison.of_folder(shown, str(model))
    url = page.write(page.to_html(shown, compared), tmp_path / "out").as_uri()
    choices = {"cues/0.png": 1, "cues/1.png": 0, "cues/2.png": 1, "cues/3.png": 1}
    planted = [np.array([choices[x] for x in shown.groups[0].images])]
    results, _ = observe(chromium, url, planted, blocks=2, seed=4, name="../a,b")
    path = tmp_path / "me.csv"
    path.write_text(results["csv"])
    (observer,) = tables.read(str(path))
    assert observer.name == "ab"  # A name that a folder can have.
    assert (observer.shape_bias.n_shape, observer.shape_bias.n_texture) == (3, 1)
    rows = dict(results["rows"])
    assert number(rows["You"], "bias") == 3 / 4
    # Right: 1 1 1 0 and 1 1 0 0; agreement 3/4, by chance 3/4 1/2 + 1/4 1/2 = 1/2.
    assert number(rows["net"], "kappa") == 1 / 2


@pytest.mark.slow
@browser.needed
def test_jbias_measure_prints_the_numbers_of_the_page(
    chromium, written, shown, tmp_path, capsys
):
    from jbias.measuring import cli as measuring

    planted = draw_observer(shown, seed=3)
    results, _ = observe(
        chromium, written, planted, blocks=3, seed=3, name="subject-07"
    )
    path = tmp_path / "subject-07.csv"
    path.write_text(results["csv"])
    assert measuring.main([str(path), f"--out={tmp_path / 'measured'}"]) == 0
    value, low, high = map(float, dict(results["rows"])["You"]["bias"])
    line = f"{value:.3f}  95 %: {low:.3f} to {high:.3f}"
    assert re.search(
        f"shape bias +shapes-cue_conflict +{line}", capsys.readouterr().out
    )
