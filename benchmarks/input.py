"""Measure decoding and random cropping of images, compared with other libraries.

    python -m benchmarks.input --root=DIR [--size=224] [--rounds=9] [--core=0]

Every JPEG file below DIR is read into memory, and a random window of each is drawn. All
routes take turns at the same windows on one core. A rate is images per second of CPU time, the
median over rounds. `of Pillow` and `of decoding` are medians of ratios within a round: to
torchvision's use of Pillow, and to decoding the whole image by libjpeg-turbo. Errors are
differences from Pillow's crop, in levels of 0 to 255. TensorFlow and TurboJPEG 3 are measured
if they are installed. Writes benchmarks/results/input-<size>.json and .md.

Takes about two minutes on two cores.
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

from benchmarks import result_files, timing
from jbias.data import decoding

PACKAGES = ("simplejpeg", "turbojpeg", "cykooz-resizer", "opencv-python-headless")
PILLOW, LIMIT = "Pillow, as torchvision", "libjpeg-turbo, decoding alone"

Item = tuple[bytes, decoding.Window]
Route = Callable[[Sequence[Item]], Iterator[np.ndarray]]  # Items -> crops, in order.


def items(root: pathlib.Path, seed: int = 0) -> list[Item]:
    """Return the contents of all JPEG files below a folder, each with a random window."""
    rng, file_items = np.random.default_rng(seed), []
    for path in sorted(root.rglob("*")):
        if path.suffix.lower() in (".jpeg", ".jpg"):
            with Image.open(path) as image:
                window = decoding.random_window(rng, *image.size)
            file_items.append((path.read_bytes(), window))
    if not file_items:
        raise SystemExit(f"benchmarks.input: no JPEG files below {root}")
    return file_items


def pillow(data: bytes, window: decoding.Window, size: int) -> np.ndarray:
    """Return a crop by Pillow, resized with antialiasing."""
    left, top, width, height = window
    image = Image.open(io.BytesIO(data)).convert("RGB")
    image = image.crop((left, top, left + width, top + height))
    return np.asarray(image.resize((size, size), Image.Resampling.BILINEAR))


def opencv(data: bytes, window: decoding.Window, size: int) -> np.ndarray:
    """Return a crop by OpenCV, resized without antialiasing."""
    left, top, width, height = window
    flags = cv2.IMREAD_COLOR_RGB | cv2.IMREAD_IGNORE_ORIENTATION
    pixels = cv2.imdecode(np.frombuffer(data, np.uint8), flags)
    return cv2.resize(pixels[top : top + height, left : left + width], (size, size))


def ours(data: bytes, window: decoding.Window, size: int) -> np.ndarray:
    """Return a crop by jbias.data.decoding.cropped."""
    return decoding.cropped(lambda: io.BytesIO(data), "", size, lambda w, h: window)


def without_turbojpeg(route: Route) -> Route:
    """Return the route as it runs if TurboJPEG 3 is not installed."""

    def run(file_items: Sequence[Item]) -> Iterator[np.ndarray]:
        with mock.patch.object(decoding, "turbojpeg_library", lambda: None):
            yield from route(file_items)

    return run


def canvas(data: bytes, window: decoding.Window, size: int) -> np.ndarray:
    """Return the canvas of jbias.data.decoding.canvas, which the device crops."""
    return decoding.canvas(lambda: io.BytesIO(data), "", size)[0]


def decoded(data: bytes, window: decoding.Window, size: int) -> np.ndarray:
    """Return all pixels; decoding bounds the rate of every route that needs them."""
    return simplejpeg.decode_jpeg(data)


def tensorflow(file_items: Sequence[Item], size: int) -> Route:
    """Return a route by tf.data with decode_and_crop_jpeg, without antialiasing."""
    import tensorflow as tf

    def crop(data, window):
        left, top, width, height = tf.unstack(window)
        image = tf.image.decode_and_crop_jpeg(data, [top, left, height, width], 3)
        image = tf.image.resize(image, [size, size])
        return tf.cast(tf.round(image), tf.uint8)

    data, windows = zip(*file_items, strict=True)
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    pairs = tf.data.Dataset.from_tensor_slices((list(data), np.array(windows)))
    images = pairs.map(crop).prefetch(2).with_options(options)
    return lambda _: images.as_numpy_iterator()


def routes(file_items: Sequence[Item], size: int) -> dict[str, Route]:
    """Return all routes to measure, by their name in the table."""

    def for_all(crop: Callable[..., np.ndarray], crop_size: int = size) -> Route:
        return lambda file_items: (
            crop(data, window, crop_size) for data, window in file_items
        )

    canvas_size = size * 8 // 7
    routes_by_name = {
        PILLOW: for_all(pillow),
        "OpenCV, no antialias": for_all(opencv),
        "jbias.data.decoding.cropped, simplejpeg": without_turbojpeg(for_all(ours)),
        f"jbias.data.decoding.canvas, {canvas_size}": for_all(canvas, canvas_size),
        LIMIT: for_all(decoded),
    }
    if decoding.turbojpeg_library():
        routes_by_name["jbias.data.decoding.cropped, TurboJPEG 3"] = for_all(ours)
    if importlib.util.find_spec("tensorflow"):
        routes_by_name["tf.data, no antialias"] = tensorflow(file_items, size)
    return routes_by_name


def timed(
    routes_by_name: dict[str, Route], file_items: Sequence[Item], rounds: int
) -> dict:
    """Return seconds of CPU time for all images per round, by route."""

    def run(route: Route) -> None:
        collections.deque(route(file_items), maxlen=0)  # Consumes the iterator.

    runs = {
        name: functools.partial(run, route) for name, route in routes_by_name.items()
    }
    return timing.in_turns(runs, rounds, warm=1, clock=time.process_time)


def errors(pixels: Sequence[np.ndarray], exact: Sequence[np.ndarray]) -> dict | None:
    """Return differences of crops from Pillow's; None if the route makes no crops."""
    if any(a.shape != b.shape for a, b in zip(pixels, exact, strict=True)):
        return None
    differences = [a.astype(float) - b for a, b in zip(pixels, exact, strict=True)]
    squares = [np.square(d).mean() for d in differences]
    psnr = lambda square: 10 * np.log10(255**2 / square) if square else None
    return {
        "mean": float(np.mean([np.abs(d).mean() for d in differences])),
        "max": max(float(np.abs(d).max()) for d in differences),
        "psnr": psnr(np.mean(squares)),
        "least_psnr": psnr(max(squares)),
    }


def host(file_items: Sequence[Item], size: int, rounds: int) -> dict[str, dict]:
    """Return rates and errors of all routes, from bytes in memory to pixels, by name."""
    routes_by_name = routes(file_items, size)
    seconds = timed(routes_by_name, file_items, rounds)
    exact = list(routes_by_name[PILLOW](file_items))

    def ratio(name: str, other: str) -> float:
        pairs = zip(seconds[other], seconds[name], strict=True)
        return statistics.median(b / a for b, a in pairs)

    return {
        name: {
            "images_per_second": len(file_items) / statistics.median(seconds[name]),
            "of_pillow": ratio(name, PILLOW),
            "of_decoding": ratio(name, LIMIT),
            "seconds": seconds[name],
            "error": errors(list(routes_by_name[name](file_items)), exact),
        }
        for name in routes_by_name
    }


def table(written: dict) -> str:
    """Return the results as a Markdown table."""
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
    """Return the versions of the packages that are installed, by name."""
    version_by_package = {}
    for name in packages:
        with contextlib.suppress(importlib.metadata.PackageNotFoundError):
            version_by_package[name] = importlib.metadata.version(name)
    return version_by_package


def described(file_items: Sequence[Item]) -> dict[str, float]:
    """Return number and mean sizes of the images."""
    sizes = [Image.open(io.BytesIO(data)).size for data, _ in file_items]
    return {
        "count": len(file_items),
        "mean_bytes": statistics.mean(len(data) for data, _ in file_items),
        "mean_pixels": statistics.mean(w * h for w, h in sizes),
        "mean_window_pixels": statistics.mean(w * h for _, (*_, w, h) in file_items),
    }


def main() -> None:
    """Measure all routes, print and write the results."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--root", type=pathlib.Path, required=True, help="folder of JPEG files")
    add("--size", type=int, default=224, help="side of crops in pixels (default: 224)")
    add("--rounds", type=int, default=9, help="number of rounds (default: 9)")
    add("--core", type=int, default=0, help="CPU core to run on, on Linux (default: 0)")
    options = parser.parse_args()
    cores = range(os.cpu_count())
    if hasattr(os, "sched_setaffinity"):
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {options.core})
    cv2.setNumThreads(0)
    file_items = items(options.root)
    results = host(file_items, options.size, options.rounds)
    written = {
        **result_files.facts(),
        "size": options.size,
        "images": described(file_items),
        "ratios": {f"{k} / {PILLOW}": r["of_pillow"] for k, r in results.items()},
        "results": results,
    }
    written["packages"] |= versions(*PACKAGES, "tensorflow-cpu")
    written["device"] |= {"of_cores": len(cores)}
    result_files.save(f"input-{options.size}", written, table(written))


if __name__ == "__main__":
    main()
