"""Interfaces for what corruptions must compute differently on the host and on the device.

Each corruption is one function (image, rng, ops, **settings) -> values, for both places:

- image: (h, w, 3) whole numbers, 0 to 255; bytes of NumPy on the host, float32 of JAX on the
  device. The result is on the same scale; it is neither clipped nor rounded.
- rng: numpy.random.Generator on the host. JAX has no generator with a state, and shapes of
  random numbers must not depend on a severity; there, rng is augment.replay.Replay, which
  returns numbers that augment.corruption_draws drew before.
- ops: `Operations`. The host calls SciPy, OpenCV and Pillow (host_operations), with which the
  published sets were made. They cannot run in a compiled program. There, filters are products
  with matrices, and OpenCV and Pillow are computed in integers (augment.corruption_operations).
- settings: a row of corruption_severities.json by column, in which a corruption's `prepare`
  replaces the numbers that describe a filter by the filter itself, made by `Filters`. A filter
  is opaque to the corruption: for example, a Gaussian is its width on the host, and a matrix on
  the device (device_filters), so that all severities share one compiled program.

All else, which is each corruption's own formula, uses the image's array namespace.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

Rng = Any  # numpy.random.Generator or augment.replay.Replay.
Filter = Any  # Made by `Filters`; its type is known to the operation that uses it.
Row = Mapping[str, Any]  # The settings of one severity, by column.
Settings = dict[str, Any]

Image = UInt8[np.ndarray, "h w 3"]
Values = Float[Any, "h w 3"]  # 0 to 255, of NumPy or JAX.
Unit = Float[Any, "h w 3"]  # 0 to 1.
Plane = Float[Any, "h w"]
Field = Float[Any, "h w *c"]  # A plane, or channels of one.


class Line(NamedTuple):
    """A kernel along a line: the first `taps` weights of `kernel` are used."""

    kernel: Float[Any, "k"]
    taps: Any


class Filters(Protocol):
    """Makers of filters, from the numbers of a severity.

    side: side of the images, in pixels. The type of a filter depends on the module that makes it:
    see the functions of the same names in host_operations and device_filters.
    """

    def gaussian(self, side: int, sigma: float, mode: str = "nearest") -> Filter:
        """Return a Gaussian of `sigma` pixels, truncated at 4 sigma.

        mode: SciPy's name of the treatment of edges.
        """

    def disk(self, side: int, radius: float, alias: float) -> Filter:
        """Return a disk of `radius` pixels, softened by a Gaussian of `alias` pixels."""

    def line(self, radius: int, sigma: float) -> Line:
        """Return a one-sided Gaussian of 2 radius + 1 points, see host_operations.motion_kernel."""

    def zoom(self, side: int, factor: float) -> Filter:
        """Return an enlargement by `factor` about the centre."""

    def zooms(self, side: int, step: float, count: int, *, most: int) -> Filter:
        """Return `count` enlargements about the centre, by the factors 1, 1 + step, 1 + 2 step, ...

        most: the largest `count` of the five severities. On the device, the result is padded to
        `most` enlargements, so that all severities have filters of one shape.
        """

    def smoother(self, side: int, sigma: float) -> Filter:
        """Return a Gaussian of `sigma` pixels, truncated at 3 sigma, mirrored at edges."""

    def box(self, side: int, scale: float) -> Filter:
        """Return a box filter that shrinks to int(side * scale) pixels and enlarges back."""

    def jpeg(self, quality: int) -> Filter:
        """Return JPEG compression as by Pillow; quality: 1 (smallest file) to 95 (best image)."""

    def photons(self, count: float, *, most: float) -> Filter:
        """Return photon noise in which a white pixel has `count` photons on average.

        most: the largest `count` of the five severities. It determines the size of the device's
        table of probabilities, which is therefore equal for all severities.
        """

    def photographs(self, side: int, folder: Any, scale: float) -> Filter:
        """Return the photographs of frost in `folder`, resized by the factor `scale`.

        folder: a path; ValueError for None, and if a photograph is missing from the folder.
        """


class Operations(Protocol):
    """Operations that host and device compute by different code, with equal results.

    Equal up to rounding: the host computes in float64, or float32 like the reference.
    """

    WHITE: int  # The white of images that `scaled` returns.

    def scaled(self, image: Values, dtype: type) -> Unit | Values:
        """Return an image of 0 to 255 on the scale on which filters are computed, 0 to WHITE.

        The host's is 0 to 1 in `dtype`, as in the reference: the last digit decides to which
        byte a value is truncated. The device's is 0 to 255 in float32, so that bytes stay
        exact.
        """

    def truncated(self, x: Field) -> Field:
        """Return values clipped to 0 ... 255 and truncated to whole numbers."""

    def filtered(self, x: Field, gaussian: Filter) -> Field:
        """Return a map convolved with a Gaussian.

        gaussian: made by `Filters.gaussian` for the side of the map; x is square.
        """

    def correlated(self, x: Unit, disk: Filter) -> Unit:
        """Return an image correlated with the kernel of a disk; edges are mirrored.

        disk: made by `Filters.disk`.
        """

    def zoomed(self, x: Field, zoom: Filter) -> Field:
        """Return a square map enlarged about its centre and cropped to its size.

        zoom: made by `Filters.zoom`, or an entry of the result of `Filters.zooms`.
        """

    def smoothed(self, x: Plane, smoother: Filter) -> Plane:
        """Return a square map convolved with a wide Gaussian; edges are mirrored.

        smoother: made by `Filters.smoother`.
        """

    def displaced(self, x: Unit, down: Plane, right: Plane, *, border: str) -> Unit:
        """Return x, where each pixel has the value `down` below and `right` to the right of it.

        down, right: in pixels; values between pixels are interpolated bilinearly.
        border: pixels outside are mirrored ("reflect") or 0 ("black").
        """

    def sheared(self, x: Unit, rng: Rng, jitter: float) -> Unit:
        """Return x after an affine map that moves three points by U(-jitter, jitter) per axis.

        jitter: in pixels. The points are the centre plus (q, q), (q, -q) and (-q, -q), where q
        is a third of the side. Edges are mirrored.
        """

    def window(self, x: Field, down: Any, right: Any, *, side: int) -> Field:
        """Return side x side pixels of x, from row `down` and column `right` on."""

    def grey(self, x: Unit) -> Plane:
        """Return the luma 0.299 red + 0.587 green + 0.114 blue."""

    def water_light(self, depth: Int[Any, "h w"]) -> Plane:
        """Return the light on drops of water, depth times brightness, each from 0 to 255.

        depth: depth of the water at each pixel, 0 to 255; 0 without water. The brightness is
        computed from the distance to the nearest edge of a drop, clipped at 20 pixels: the
        distances are histogram-equalised and filtered as if lit from one side. The result is in
        float32.
        """

    def pixelated(self, image: Values, box: Filter) -> Values:
        """Return an image shrunk by a box filter and enlarged back to its size, as by Pillow.

        box: made by `Filters.box`.
        """

    def compressed(self, image: Values, jpeg: Filter) -> Values:
        """Return an image after JPEG compression with halved chroma resolution (4:2:0).

        jpeg: made by `Filters.jpeg`, with the standard quantisation tables.
        """

    def photon_noise(self, x: Unit, rng: Rng, photons: Filter) -> Unit:
        """Return Poisson(count u) / count, times WHITE, for u = x / WHITE of each value x.

        x: values from 0 to WHITE. photons: made by `Filters.photons`, which has the `count`.
        """

    def glass_offsets(
        self, rng: Rng, reach: int, sweeps: int, *, side: int
    ) -> Int[Any, "sweeps h w 2"]:
        """Return the random offset (columns, rows) per sweep and pixel, -reach to reach - 1.

        The host draws only for swept pixels, in the order of a sweep, as the reference does.
        """

    def crop_photograph(self, photographs: Filter, rng: Rng, side: int) -> Values:
        """Return a random square crop of a random photograph, with values from 0 to 255.

        photographs: made by `Filters.photographs`. side: of the crop, in pixels.
        """

    def repeat(self, count: Any, step: Callable[[Any, Any], Any], state: Any) -> Any:
        """Return the state after state = step(i, state) for i = 0, ..., count - 1."""

    def repeat_while(
        self,
        condition: Callable[[Any], Any],
        step: Callable[[Any], Any],
        state: Any,
    ) -> Any:
        """Return the state after state = step(state) as long as condition(state) holds."""

    def choose(
        self,
        condition: Bool[Any, ""],
        if_true: Callable[..., Any],
        if_false: Callable[..., Any],
        *args: Any,
    ) -> Any:
        """Return if_true(*args) or if_false(*args)."""

    def take(self, x: Any, index: Int[Any, "*shape"]) -> Any:
        """Return x[index], for indices in range."""

    def once(self, function: Callable[..., Any], *args: Any) -> Any:
        """Return function(*args).

        On the device, the result is materialised where XLA would otherwise recompute it for every
        pixel that uses it.
        """


def on_unit_scale(corruption: Callable[..., Unit]) -> Callable[..., Values]:
    """Return a corruption of images in [0, 1] as one of images from 0 to 255."""

    @functools.wraps(corruption)
    def apply(image: Values, rng: Rng, ops: Operations, **settings: Any) -> Values:
        return 255 * corruption(image / 255, rng, ops, **settings)

    return apply


def on_filter_scale(dtype: type) -> Callable[[Callable], Callable]:
    """Return a decorator that lets a corruption of 0 to ops.WHITE take images from 0 to 255.

    dtype: the floating type of the host, see `Operations.scaled`.
    """

    def decorate(corruption: Callable[..., Unit]) -> Callable[..., Values]:
        @functools.wraps(corruption)
        def apply(image: Values, rng: Rng, ops: Operations, **settings: Any) -> Values:
            x = corruption(ops.scaled(image, dtype), rng, ops, **settings)
            return x * (255 / ops.WHITE)

        return apply

    return decorate
