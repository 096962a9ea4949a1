"""The page recovers scripted observers exactly, and its statistics are those of jbias."""

import csv
import html
import io
import json
import re

import numpy as np
import pytest
from PIL import Image

from jbias.answers import letter_answers, observers, tables
from jbias.cards import numbers
from jbias.cards import tables as card_tables
from jbias.observing import comparison, page, stimuli
from jbias.report.pages.decisions import standing
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
UNTIL_OPEN = (
    "new Promise((done) => { const timer = setInterval(() => { if (session?.isOpen) "
    "{ clearInterval(timer); done(); } }, 5); })"
)
IS_SHOWN = "['intro', 'trial', 'pause', 'results'].filter((id) => !document.getElementById(id).hidden)"
# Decides about each picture that is drawn as planted; the page's own bookkeeping is not used.
OBSERVE = """
(async () => {
  const shown = (id) => !document.getElementById(id).hidden;
  const planted = PLANTED, keys = KEYS, masks = new Set(content.masks), place = new Map();
  content.groups.forEach((group, i) => group.pictures.forEach((url, j) => place.set(url, [i, j])));
  for (const [id, value] of Object.entries(FORM)) {
    const field = document.getElementById(id);
    if (typeof value === "boolean") field.checked = value; else field.value = value;
  }
  document.getElementById(shown("intro") ? "start" : "continue").click();
  const pause = () => new Promise((done) => setTimeout(done, 0));
  let limit = LIMIT;
  while (!shown("results") && limit) {
    if (shown("pause")) document.getElementById("continue").click();
    const choices = document.getElementById("choices");
    if (shown("trial") && choices.getAttribute("aria-disabled") === "false") {
      const url = drawn.findLast((src) => !masks.has(src)), [i, j] = place.get(url);
      const choice = planted[i][j];
      limit -= 1;
      if (keys) dispatchEvent(new KeyboardEvent("keydown", { key: "abcdefghijklmnop"[choice] }));
      else choices.children[choice].click();
    } else await pause();
  }
  const rows = [...document.querySelectorAll("#table tbody tr")].map((row) => [row.dataset.name,
    Object.fromEntries([...row.querySelectorAll("td[data-key]")].map((cell) =>
      [cell.dataset.key, [cell.dataset.value, cell.querySelector("small")?.dataset.low,
        cell.querySelector("small")?.dataset.high]]))]);
  const words = ["headline", "doubt", "sentence", "notes"].map((id) =>
    [id, document.getElementById(id).textContent]);
  const kappas = Object.fromEntries([...document.querySelectorAll("td[data-key=kappa]")].map((cell) =>
    [cell.parentElement.dataset.name, [cell.dataset.n, cell.textContent]]));
  return { csv: document.getElementById("csv").value, rows, kappas, ...Object.fromEntries(words) };
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


def observe(chromium, url, planted, *, keys=False, width=1280, script="", **form):
    """Return the results of a scripted observer, and the browser's page.

    planted: by group and image, the class to choose. keys: by keys, not by clicks. script: run
    before those of the page.
    """
    visit = browser.Page(chromium)
    visit.resize(width, 844)
    visit.open(url, script=FAST + WATCH + script)
    results = decide(visit, planted, keys=keys, **form)
    assert not visit.errors()
    return results, visit


def decide(visit, planted, *, keys=False, limit=1_000_000, **form):
    """Decide in an open page as planted, at most `limit` times; return what the page shows."""
    script = OBSERVE.replace("PLANTED", json.dumps([x.tolist() for x in planted]))
    script = script.replace("KEYS", json.dumps(keys)).replace("LIMIT", str(limit))
    return visit.run(script.replace("FORM", json.dumps(form)))


def published_page(folder):
    """Return stimuli with the names of sixteen published cue conflicts, one of each shape."""
    by_shape = {
        name.split("-")[0].rstrip("0123456789"): name
        for name in letter_answers.images()
    }
    for name in by_shape.values():
        Image.new("RGB", (32, 32)).save(folder / f"{name}.png")
    return stimuli.from_folder(str(folder))


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
            assert int(results["kappas"][network.name][0]) == len(place)
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
def test_people_of_a_page_share_their_images(chromium, written, shown, tmp_path):
    """The person's seed draws the order alone; more images include fewer; a page's seed draws others."""

    def draw(url):
        """Return the images of the cue conflicts of five sessions, in their order."""
        visit = browser.Page(chromium)
        visit.open(url)
        drawn = visit.run(
            "[[1, 3, true], [2, 3, true], [3, 3, false], [1, 1, true], [2, 6, true]]"
            ".map(([seed, n, all]) => drawSession(seed, n, all).flat())"
        )
        return [[j for i, j in images if i == 0] for images in drawn]

    first, second, third, fewer, more = draw(written)
    assert first != second and {*first} == {*second} == {*third}
    assert {*fewer} < {*first} < {*more}
    assert [len(x) for x in (fewer, first, more)] == [16, 48, 96]
    text = page.to_html(shown, (), seed=1)
    assert {*draw(page.write(text, tmp_path).as_uri())[0]} != {*first}


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
        visit.run(UNTIL_OPEN)
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
        "(() => { const isOpen = session.isOpen; session.isOpen = false; decide(0, 0);"
        " session.isOpen = isOpen; return session.trials.length; })()"
    )
    assert early == 0
    visit.run(UNTIL_OPEN)
    visit.run("decide(0, 0)")
    visit.run("document.getElementById('stop').click()")
    assert visit.run(IS_SHOWN) == ["pause"]
    words = visit.run("document.getElementById('pause-words').textContent")
    assert "1 of the 16 images" in words and "left out" in words
    visit.run("document.getElementById('continue').click()")
    visit.run(UNTIL_OPEN)  # The image that was stopped is shown again.
    assert visit.run("[session.trials.length, session.starts]") == [1, 2]
    visit.run("document.getElementById('stop').click()")
    visit.run("document.getElementById('finish').click()")
    assert visit.run(f"[{IS_SHOWN}, session]") == [["intro"], None]


@browser.needed
def test_a_reload_continues_with_the_same_seed_and_image(chromium, written, shown):
    """The file is that of a session without a reload; leaving unsaved decisions is asked about."""
    planted, form = draw_observer(shown, seed=2), {"seed": 5, "blocks": 1}
    whole, _ = observe(chromium, written, planted, **form)
    visit = browser.Page(chromium)
    visit.open(written, script=FAST + WATCH)
    decide(visit, planted, limit=20, **form)
    visit.press("Tab")  # Browsers ask only after an input.
    visit.run(UNTIL_OPEN)
    assert visit.reload() == ["beforeunload"]
    assert visit.run(IS_SHOWN) == ["pause"]
    words = visit.run("document.getElementById('pause-words').textContent")
    assert "loaded again" in words and "20 decisions are kept" in words
    continued = decide(visit, planted)
    timed = {"rt_ms", "starts"}
    tables_of = [
        [
            {key: cell for key, cell in row.items() if key not in timed}
            for row in csv.DictReader(io.StringIO(results["csv"]))
        ]
        for results in (whole, continued)
    ]
    assert tables_of[0] == tables_of[1]
    starts = [row["starts"] for row in csv.DictReader(io.StringIO(continued["csv"]))]
    assert starts == ["1"] * 20 + ["2"] + ["1"] * 27
    assert "1 of 48 trials were started again" in continued["notes"]
    visit.press("Tab")
    assert visit.reload() == ["beforeunload"]  # The file is not saved yet.
    csv_now = "document.getElementById('csv').value"
    assert visit.run(csv_now) == continued["csv"]
    visit.press("Tab")
    visit.run("document.getElementById('copy').click()")
    assert visit.reload() == []
    assert visit.run(csv_now) == continued["csv"]
    visit.run("document.getElementById('again').click()")
    assert visit.run(f"[{IS_SHOWN}, session]") == [["intro"], None]
    assert visit.reload() == [] and visit.run(IS_SHOWN) == ["intro"]
    assert not visit.errors()


@browser.needed
def test_unsaved_results_are_left_with_a_second_press_only(chromium, written, shown):
    planted = draw_observer(shown, seed=2)
    _, visit = observe(chromium, written, planted, blocks=1, further=False)
    again = "document.getElementById('again')"
    visit.run(f"{again}.click()")
    assert visit.run(f"[{IS_SHOWN}[0], {again}.textContent]") == [
        "results",
        "Start again without saving",
    ]
    visit.run(f"{again}.click()")
    assert visit.run(IS_SHOWN) == ["intro"]


@browser.needed
def test_a_session_is_of_its_page_and_a_damaged_one_is_dropped(
    chromium, written, shown
):
    """Decisions that are not in the order of the seed are no session of the page."""
    visit = browser.Page(chromium)
    visit.open(written, script=FAST + WATCH)
    for damage in ("'{'", "JSON.stringify({ ...session, seed: session.seed + 1 })"):
        decide(visit, draw_observer(shown, seed=2), limit=3, blocks=1)
        visit.run(f"sessionStorage.setItem(STORE, {damage})")
        visit.reload()
        assert visit.run(f"[{IS_SHOWN}[0], session, sessionStorage.length]") == [
            "intro",
            None,
            0,
        ]
    assert not visit.errors()


@browser.needed
def test_late_images_are_counted_and_in_the_file(chromium, written, shown):
    """With frames of 50 ms, the images of trials 2 and 5 are shown 1 and 4 frames longer than 200 ms."""
    hold = """
    const late = { 5: 250, 11: 400 };  // Milliseconds by number of draws: image and noise in turn.
    let known = 0;
    channel.port1.onmessage = () => {
      clock += drawn.length !== known && late[drawn.length] || 50;
      known = drawn.length;
      waiting.shift()(clock);
    };
    """
    planted = draw_observer(shown, seed=2)
    results, _ = observe(
        chromium, written, planted, blocks=1, further=False, script=hold
    )
    table = [*csv.DictReader(io.StringIO(results["csv"]))]
    expected = ["0"] * 16
    expected[2], expected[5] = "1", "4"
    assert [row["late_frames"] for row in table] == expected
    assert [float(table[i]["shown_ms"]) for i in (1, 2, 5)] == [200, 250, 400]
    assert (
        "2 of 16 images were shown longer than planned, by 5 frames" in results["notes"]
    )


@browser.needed
def test_frames_are_counted_at_any_rate_of_the_screen(chromium, written):
    """A screen of 144 Hz shows 201.4 ms, which is not late; one more frame is."""
    visit = browser.Page(chromium)
    visit.open(written)
    times = [(200, 1000 / 60), (201.4, 1000 / 144), (208.3, 1000 / 144)]
    times += [(216.7, 1000 / 60), (199.7, 1000 / 60), (500, 1000 / 60)]
    late = visit.run(f"{json.dumps(times)}.map(([t, f]) => lateFrames(t, 200, f))")
    assert late == [0, 0, 1, 1, 0, 18]


@browser.needed
def test_kappa_has_its_interval_and_says_when_it_means_nothing(chromium, written):
    """Intervals are those of jbias.stats up to the draws: a tenth of their width, 4 standard errors."""
    visit = browser.Page(chromium)
    visit.open(written)
    rng = np.random.default_rng(1)
    for n, members in ((48, 1), (240, 1), (240, 3)):
        marks = rng.random((members + 1, n)) < np.where(rng.random(n) < 0.5, 0.9, 0.3)
        pairs = [(0, j + 1) for j in range(members)]
        _, low, high = consistency.mean_kappa(marks, pairs)
        yours, *members_marks = json.loads(json.dumps(marks.tolist()))
        ends = visit.run(
            f"kappaInterval({json.dumps(yours)}, {json.dumps(members_marks)})"
        )
        np.testing.assert_allclose(ends, (low, high), rtol=0, atol=(high - low) / 10)
    image = "({ group: 0, image: i, decision: yours(i) })"
    all_images = f"content.groups[0].label.map((_, i) => {image})"
    right = "(i) => content.groups[0].label[i]"
    wrong = "(i) => (content.groups[0].label[i] + 1) % 16"
    mixed = "(i) => i % 3 ? content.groups[0].label[i] : -1"
    unknown = "(i) => NO_ROW"
    for yours, theirs, kappa, word in (
        (right, right, 1, "undefined (0 / 0): both were right on all 240 images"),
        (wrong, wrong, 1, "undefined (0 / 0): both were wrong on all 240 images"),
        (right, mixed, 0, "says nothing: you were right on all 240 images"),
        (mixed, wrong, 0, "says nothing: “Net” was wrong on all 240 images"),
        (mixed, unknown, None, "undefined: no common image"),
        (mixed, mixed, 1, ""),
    ):
        result = visit.run(
            f"(() => {{ const yours = {yours}, theirs = {theirs}; const trials = {all_images};"
            "return consistencyWith(trials, [(trial) => theirs(trial.image)], 'Net'); })()"
        )
        assert (
            result["kappa"] == pytest.approx(kappa, abs=1e-12)
            and word in result["doubt"]
        )
        assert bool(result["interval"]) == (word == "")
        assert result["n"] == (240 if kappa is not None else 0)


@pytest.mark.slow
@browser.needed
def test_kappa_is_that_of_the_report_of_decisions(
    chromium, written, shown, compared, tmp_path
):
    """The exported file and one of the network's decisions give the page's kappa and its n."""
    planted = draw_observer(shown, seed=8)
    results, _ = observe(
        chromium, written, planted, blocks=15, seed=8, further=False, name="subject-08"
    )
    (group, *_), (network,) = shown.groups, compared
    header = "subj,set,imagename,object_response,category,texture"
    rows = [
        f"net,{group.dataset},{image},{shown.classes[decision]},{shown.classes[label]},"
        f"{shown.classes[texture]}"
        for image, decision, label, texture in zip(
            group.images,
            network.decisions[0][0],
            group.label,
            group.texture,
            strict=True,
        )
    ]
    (tmp_path / "net.csv").write_text("\n".join([header, *rows]) + "\n")
    (tmp_path / "subject-08.csv").write_text(results["csv"])
    (panel,) = observers.panels(tables.read(str(tmp_path))).values()
    assert panel.names == ("net", "subject-08")
    expected = standing.Standing(panel).consistency
    assert number(dict(results["rows"])[network.name], "kappa") == pytest.approx(
        expected.kappa[0, 1], abs=1e-12
    )
    num_images, text = results["kappas"][network.name]
    assert int(num_images) == expected.num_images[0, 1] == 240
    assert "n = 240" in text and " to " in text


@browser.needed
def test_doubts_are_those_of_a_card(chromium, written, shown):
    """Guesses, few decisions, one class throughout, and observers that are none of these."""
    visit = browser.Page(chromium)
    visit.open(written)
    group, rng = shown.groups[0], np.random.default_rng(0)
    guesses = rng.integers(0, CLASSES, 240)
    by_observer = {
        "shape": group.label,
        "guesses": guesses,
        "few": np.where(np.arange(240) % 10, guesses, group.label),
        "constant": np.full(240, 3),
        "some": np.where(np.arange(240) % 3, guesses, group.texture),
    }
    num_doubts = {}
    for name, decided in by_observer.items():
        for n in (16, 48, 240):
            answers = decided[:n].tolist()
            lines = visit.run(
                f"doubtsOf({json.dumps(answers)}.map((decision, i) => "
                "({ group: 0, image: i, decision })), (trial) => trial.decision)"
            )
            table = card_tables.Table(
                dataset=group.dataset,
                num_classes=CLASSES,
                images=group.images[:n],
                label=tuple(shown.classes[i] for i in group.label[:n]),
                texture=tuple(shown.classes[i] for i in group.texture[:n]),
                decided={"": tuple(shown.classes[i] for i in answers)},
            )
            assert lines == numbers.doubts([table])
            num_doubts[name, n] = len(lines)
    assert num_doubts["shape", 16] == num_doubts["some", 240] == 0
    assert num_doubts["guesses", 240] == 1 and num_doubts["constant", 240] == 2


@browser.needed
def test_a_doubted_shape_bias_is_no_headline(chromium, written, shown):
    planted = [np.full(len(group.label), 3) for group in shown.groups]
    results, visit = observe(chromium, written, planted, blocks=6, further=False)
    assert results["headline"] == "No claim follows from your shape bias (0.50)"
    assert "2 of 16 classes" in results["doubt"]
    assert f"is called '{shown.classes[3]}'" in results["doubt"]
    assert not visit.run("document.getElementById('doubt').hidden")
    clear, visit = observe(
        chromium, written, [x.label for x in shown.groups], blocks=1, further=False
    )
    assert clear["headline"] == "Your shape bias is 1.00"
    assert visit.run("document.getElementById('doubt').hidden")
    assert "wide with fewer than 100" in clear["sentence"]


@browser.needed
def test_names_of_files_are_safe(chromium, written):
    """Names that all systems and spreadsheets read as names."""
    cases_of = {
        "subject-01": "subject-01.csv",
        "Anna B. Smith": "Anna-B-Smith.csv",
        "../../etc/passwd": "etcpasswd.csv",
        "=cmd|'/c calc'!A1": "cmdc-calcA1.csv",
        "-+@x": "x.csv",
        "日本 ぐ": "日本-ぐ.csv",
        "हिन्दी": "हिन्दी.csv",
        "a\u202etxt": "atxt.csv",
        "CON": "subject-CON.csv",
        "lpt1": "subject-lpt1.csv",
        " . ": "subject-01.csv",
        "x" * 60: f"{'x' * 40}.csv",
        "\U00020000" * 41: "\U00020000" * 40 + ".csv",
        "trailing. ": "trailing.csv",
        "<b>": "b.csv",
    }
    visit = browser.Page(chromium)
    visit.open(written)
    names = json.dumps([*cases_of])
    files = visit.run(f"{names}.map((name) => fileName(plainName(name)))")
    assert dict(zip(cases_of, files, strict=True)) == cases_of
    cells = visit.run(
        "['=1+1.png', '+a.png', '-b.png', '@c.png', 'a/=d.png'].map(plainPath)"
    )
    assert cells == ["./=1+1.png", "./+a.png", "./-b.png", "./@c.png", "a/=d.png"]


@browser.needed
@cases.each(
    "screen",
    ["320 x 568 names", "320 x 568", "390 x 844 names", "1280 x 800"],
    quick=("320 x 568 names", "320 x 568"),
)
def test_nothing_is_out_of_reach_on_a_small_screen(
    screen, chromium, written, shown, tmp_path
):
    """No sideways scrolling, all sixteen buttons can be pressed, and no text is cut or tiny."""
    width, height = (int(x) for x in screen.removesuffix(" names").split(" x "))
    visit, url, planted = browser.Page(chromium), written, draw_observer(shown, seed=2)
    if screen.endswith("names"):
        published = published_page(tmp_path)
        planted = [published.groups[0].label]
        text = page.to_html(published, comparison.of_folder(published))
        url = page.write(text, tmp_path / "out").as_uri()
    visit.resize(width, height)
    if width < 500:
        visit.touch()
    visit.open(url, script=FAST + WATCH)
    layout = "[document.documentElement.scrollWidth, innerWidth]"
    widths = [visit.run(layout)]
    decide(visit, planted, limit=3, blocks=1)
    visit.run(UNTIL_OPEN)
    widths.append(visit.run(layout))
    buttons = visit.run(
        """[...document.querySelectorAll('#choices button')].map((button) => {
          button.scrollIntoView({ block: 'nearest' });
          const box = button.getBoundingClientRect(), text = button.querySelector('span, img');
          const hit = document.elementFromPoint(box.x + box.width / 2, box.y + box.height / 2);
          return [button.contains(hit), button.scrollWidth <= button.clientWidth, box.height,
            parseFloat(getComputedStyle(text).fontSize)];
        })"""
    )
    assert len(buttons) == 16
    visit.run("scrollTo(0, 0)")
    bottom = visit.run("choices.getBoundingClientRect().bottom")
    assert bottom <= height  # All buttons are in sight with the image.
    for is_hit, is_whole, button_height, letter_size in buttons:
        assert is_hit and is_whole and button_height >= 44 and letter_size >= 12
    decide(visit, planted)
    widths.append(visit.run(layout))
    assert visit.run(IS_SHOWN) == ["results"]
    for content_width, window_width in widths:
        assert content_width <= window_width == width


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
    assert {row["late_frames"] for row in table} == {""}
    visit = browser.Page(chromium)
    reduce = {"name": "prefers-reduced-motion", "value": "reduce"}
    visit.send("Emulation.setEmulatedMedia", {"features": [reduce]})
    visit.open(written)
    assert visit.run("document.getElementById('calm').checked")


@browser.needed
def test_keys_reach_all_that_a_mouse_does(chromium, written):
    """Tab goes through the buttons in order, with a visible outline; Enter and all letters decide."""
    visit = browser.Page(chromium)
    visit.open(written, script=FAST + WATCH)
    visit.run("document.getElementById('blocks').value = 3; start()")
    visit.run(UNTIL_OPEN)
    reached = []
    for _ in range(17):
        visit.press("Tab")
        reached.append(
            visit.run(
                "[document.activeElement.textContent.trim() + (document.activeElement."
                "querySelector('img')?.alt ?? ''), getComputedStyle(document.activeElement)"
                ".outlineStyle]"
            )
        )
    names = [shown_name for shown_name, _ in reached]
    classes = visit.run("content.classes")
    letters = "ABCDEFGHIJKLMNOP"
    assert names == [
        "Stop",
        *(f"{a}{b}" for a, b in zip(letters, classes, strict=True)),
    ]
    assert {outline for _, outline in reached} == {"solid"}
    visit.press("Enter")  # On the last button.
    for letter in letters:
        visit.run(UNTIL_OPEN)
        visit.press(letter.lower())
        if visit.run(IS_SHOWN) == ["pause"]:
            visit.press("Enter")  # "Continue" has the focus.
    chosen = visit.run("session.trials.map((trial) => trial.decision)")
    assert chosen == [15, *range(16)]
    unnamed = visit.run(
        "[...document.querySelectorAll('button, input, select, textarea, section, [role=img]')]"
        ".filter((x) => !(x.textContent.trim() || x.labels?.length || x.ariaLabel)).length"
    )
    assert unnamed == 0


def test_no_second_has_more_than_three_flashes():
    """Image and noise are two flashes of a trial (WCAG 2.3.1: at most three in a second)."""
    assert 2 * 1000 / sum(page.TIMES.values()) <= 3


def test_the_page_may_load_nothing(shown):
    text = page.to_html(shown, [])
    assert "default-src 'none'" in html.unescape(text)
    assert not re.findall(r"""(?:src|href)=["'](?!data:|#)""", text)
    assert text.count("<script") == 2
    script = (page.FOLDER / "page.js").read_text("utf-8")
    script = script.replace("http://www.w3.org/2000/svg", "")  # A name, not an address.
    words = "fetch|XMLHttp|WebSocket|EventSource|sendBeacon|import|Worker|http"
    assert not re.findall(words, script)


@browser.needed
def test_the_browser_refuses_requests_of_the_page(chromium, written):
    """Also those that a changed script would send: the policy forbids all but data in the page."""
    visit = browser.Page(chromium)
    visit.open(written)
    refused = visit.run(
        """(async () => {
          const refused = [], to = "http://127.0.0.1:9/x";
          addEventListener("securitypolicyviolation", (event) => refused.push(event.effectiveDirective));
          await fetch(to).catch(() => {});
          navigator.sendBeacon(to, "x");
          try { new WebSocket("ws://127.0.0.1:9"); } catch {}
          new Image().src = to;
          document.body.append(Object.assign(document.createElement("iframe"), { src: to }));
          await new Promise((done) => setTimeout(done, 100));
          return refused;
        })()"""
    )
    assert {"connect-src", "img-src", "frame-src"} <= {*refused}
    assert len(refused) >= 5


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
