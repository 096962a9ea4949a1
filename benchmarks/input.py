"""How fast images come in: decoding and a random crop, beside other libraries.

    python -m benchmarks.input --root=DIR [--size=224] [--rounds=9] [--core=0]

Every JPEG file below DIR is read into memory, and one window of it drawn. Then all
routes take turns at the same windows on one core; a rate is images over seconds of CPU
time, the median over rounds. `of Pillow` and `of decoding` are medians of the ratios
within a round: to what torchvision does with Pillow, and to decoding alone, whole, by
libjpeg-turbo. Errors are against Pillow's crop, in levels of 255. TensorFlow and
TurboJPEG 3 count where they are installed. Writes benchmarks/results/input-<size>.json and .md.
"""

import argparse
import collections
import contextlib
import functools
import importlib.metadata
import importlib.util
import io
import os
import pathlib
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from unittest import mock

import cv2
import numpy as np
import simplejpeg
from PIL import Image

from benchmarks import measured
from jbias.data import decoding

PACKAGES = ("simplejpeg", "turbojpeg", "cykooz-resizer", "opencv-python-headless")
PILLOW, LIMIT = "Pillow, as torchvision", "libjpeg-turbo, decoding alone"

Item = tuple[bytes, decoding.Window]
Route = Callable[[Sequence[Item]], Iterator[np.ndarray]]  # Of all images, in order.


def items(root: pathlib.Path, seed: int = 0) -> list[Item]:
    """The files below a folder, each with its window."""
    generator, found = np.random.default_rng(seed), []
    for path in sorted(root.rglob("*")):
        if path.suffix.lower() in (".jpeg", ".jpg"):
            with Image.open(path) as image:
                window = decoding.random_window(generator, *image.size)
            found.append((path.read_bytes(), window))
    if not found:
        raise SystemExit(f"benchmarks.input: no JPEG files below {root}")
    return found


def pillow(data: bytes, window: decoding.Window, size: int) -> np.ndarray:
    """Decodes, cuts, resizes with antialiasing."""
    left, top, width, height = window
    image = Image.open(io.BytesIO(data)).convert("RGB")
    image = image.crop((left, top, left + width, top + height))
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))


def opencv(data: bytes, window: decoding.Window, size: int) -> np.ndarray:
    """Decodes, cuts, resizes without antialiasing."""
    left, top, width, height = window
    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    return cv2.resize(pixels[top : top + height, left : left + width], (size, size))


def ours(data: bytes, window: decoding.Window, size: int) -> np.ndarray:
    """jbias.data.decoding.cropped."""
    return decoding.cropped(lambda: io.BytesIO(data), "", size, lambda w, h: window)


def without_turbojpeg(route: Route) -> Route:
    """The same where TurboJPEG 3 is not installed."""

    def run(found: Sequence[Item]) -> Iterator[np.ndarray]:
        with mock.patch.object(decoding, "turbojpeg_library", lambda: None):
            yield from route(found)

    return run


def canvas(data: bytes, window: decoding.Window, size: int) -> np.ndarray:
    """jbias.data.decoding.canvas, for the device to cut."""
    return decoding.canvas(lambda: io.BytesIO(data), "", size)[0]


def decoded(data: bytes, window: decoding.Window, size: int) -> np.ndarray:
    """All pixels, and nothing else: what no route through them can pass."""
    return simplejpeg.decode_jpeg(data)


def tensorflow(found: Sequence[Item], size: int) -> Route:
    """tf.data with decode_and_crop_jpeg, resized without antialiasing."""
    import tensorflow as tf

    def one(data, window):
        left, top, width, height = tf.unstack(window)
        image = tf.image.decode_and_crop_jpeg(data, [top, left, height, width], 3)
        image = tf.image.resize(image, [size, size])
        return tf.cast(tf.round(image), tf.uint8)

    data, windows = zip(*found, strict=True)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    pairs = tf.data.Dataset.from_tensor_slices((list(data), np.array(windows)))
    images = pairs.map(one).prefetch(2).with_options(options)
    return lambda _: images.as_numpy_iterator()


def routes(found: Sequence[Item], size: int) -> dict[str, Route]:
    """Everything that is timed, by its name in the table."""

    def each(one: Callable[..., np.ndarray], **options) -> Route:
        one = functools.partial(one, **{"size": size, **options})
        return lambda found: (one(data, window) for data, window in found)

    made = {
        PILLOW: each(pillow),
        "OpenCV, no antialias": each(opencv),
        "jbias.data.decoding.cropped, simplejpeg": without_turbojpeg(each(ours)),
        f"jbias.data.decoding.canvas, {size * 8 // 7}": each(
            canvas, size=size * 8 // 7
        ),
        LIMIT: each(decoded),
    }
    if decoding.turbojpeg_library():
        made["jbias.data.decoding.cropped, TurboJPEG 3"] = each(ours)
    if importlib.util.find_spec("tensorflow"):
        made["tf.data, no antialias"] = tensorflow(found, size)
    return made


def timed(made: dict[str, Route], found: Sequence[Item], rounds: int) -> dict:
    """Seconds of CPU time for all images, by route, a round each."""

    def all_of(route: Route) -> None:
        collections.deque(route(found), maxlen=0)  # Keeps none.

    ways = {name: functools.partial(all_of, route) for name, route in made.items()}
    return measured.in_turns(ways, rounds, warm=1, clock=time.process_time)


def errors(pixels: Sequence[np.ndarray], exact: Sequence[np.ndarray]) -> dict | None:
    """How far crops are from Pillow's; None for what makes no crops."""
    if any(a.shape != b.shape for a, b in zip(pixels, exact, strict=True)):
        return None
    apart = [a.astype(float) - b for a, b in zip(pixels, exact, strict=True)]
    squares = [np.square(d).mean() for d in apart]
    level = lambda square: 10 * np.log10(255**2 / square) if square else None
    return {
        "mean": float(np.mean([np.abs(d).mean() for d in apart])),
        "max": max(float(np.abs(d).max()) for d in apart),
        "psnr": level(np.mean(squares)),
        "least_psnr": level(max(squares)),
    }


def host(found: Sequence[Item], size: int, rounds: int) -> dict[str, dict]:
    """Rates and errors of all routes from bytes in memory to pixels in memory."""
    made = routes(found, size)
    seconds = timed(made, found, rounds)
    exact = list(made[PILLOW](found))

    def ratio(name: str, other: str) -> float:
        pairs = zip(seconds[other], seconds[name], strict=True)
        return statistics.median(b / a for b, a in pairs)

    return {
        name: {
            "images_per_second": len(found) / statistics.median(seconds[name]),
            "of_pillow": ratio(name, PILLOW),
            "of_decoding": ratio(name, LIMIT),
            "seconds": seconds[name],
            "error": errors(list(made[name](found)), exact),
        }
        for name in made
    }


def table(written: dict) -> str:
    """What was written, as Markdown."""
    lines = [
        "| route | images/s a core | of Pillow | of decoding | mean error | max | PSNR | least PSNR |",
        "| --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for name, r in written["results"].items():
        cells = [name, f"{r['images_per_second']:.0f}"]
        cells += [f"{r['of_pillow']:.2f}", f"{r['of_decoding']:.2f}"]
        e = r["error"]
        if e is None:
            cells += [""] * 4
        elif e["max"] == 0:
            cells += ["0", "0", "exact", "exact"]
        else:
            cells += [f"{e['mean']:.2f}", f"{e['max']:.0f}"]
            cells += [f"{e['psnr']:.1f}", f"{e['least_psnr']:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    images, device = written["images"], written["device"]
    packages = ", ".join(f"{k} {v}" for k, v in written["packages"].items())
    lines += [
        "",
        (
            f"{images['count']} images of {images['mean_bytes'] / 1000:.0f} kB and"
            f" {images['mean_pixels'] / 1000:.0f} thousand pixels, cropped to"
            f" {written['size']}; {device['processor']}, one of {device['of_cores']} cores;"
            f" {written['date']}; Python {written['python']}, {packages}."
        ),
    ]
    return "\n".join(lines) + "\n"


def versions(*packages: str) -> dict[str, str]:
    """Of those that are installed."""
    found = {}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def described(found: Sequence[Item]) -> dict[str, float]:
    """How large the images are."""
    sizes = [Image.open(io.BytesIO(data)).size for data, _ in found]
    return {
        "count": len(found),
        "mean_bytes": statistics.mean(len(data) for data, _ in found),
        "mean_pixels": statistics.mean(w * h for w, h in sizes),
        "mean_window_pixels": statistics.mean(w * h for _, (*_, w, h) in found),
    }


def main() -> None:
    """Measures, prints and writes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--root", type=pathlib.Path, required=True)
    parser.add_argument("--size", type=int, default=224)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--core", type=int, default=0, help="which one, on Linux")
    options = parser.parse_args()
    cores = range(os.cpu_count())
    if hasattr(os, "sched_setaffinity"):
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {options.core})
    cv2.setNumThreads(0)
    found = items(options.root)
    results = host(found, options.size, options.rounds)
    written = {
        **measured.facts(),
        "size": options.size,
        "images": described(found),
        "ratios": {f"{k} / {PILLOW}": r["of_pillow"] for k, r in results.items()},
        "results": results,
    }
    written["packages"] |= versions(*PACKAGES, "tensorflow-cpu")
    written["device"] |= {"of_cores": len(cores)}
    measured.save(f"input-{options.size}", written, table(written))


if __name__ == "__main__":
    main()
