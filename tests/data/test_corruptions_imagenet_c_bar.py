"""ImageNet-C-bar: fields equal loops and spectra, covers have their shares."""

import math

import numpy as np
import pytest

from jbias.data import corruptions
from jbias.data.corruptions import host_operations as host
from jbias.data.corruptions import imagenet_c_bar as bar
from tests import cases


def uniform_image(value, side=64):
    return np.full((side, side, 3), value, np.uint8)


def corrupt(image, name, severity, seed=0):
    return corruptions.corrupt(image, name, severity, np.random.default_rng(seed))


def spectral_noise(amplitude, seed):
    return bar.spectral_noise(np, np.random.default_rng(seed), amplitude)


@cases.each("seed", range(6))
def test_single_frequency_is_one_wave_of_all_channels(seed):
    wave = (
        corrupt(uniform_image(128, 128), "single_frequency_greyscale", 1, seed) - 127.5
    )
    np.testing.assert_array_equal(wave[..., 0], wave[..., 2])
    power = np.abs(np.fft.rfft2(wave[..., 0] * np.outer(*[np.hanning(128)] * 2))) ** 2
    peak = np.unravel_index(power.argmax(), power.shape)
    rows = (np.arange(-3, 4) + peak[0]) % 128
    columns = np.clip(np.arange(-3, 4) + peak[1], 0, 64)
    near = power[np.ix_(rows, np.unique(columns))].sum()
    mirror = power[np.ix_(-rows % 128, np.unique(columns))].sum() if peak[1] < 4 else 0
    assert (near + mirror) / power.sum() > 0.95
    assert 10 < np.abs(wave).max() <= 20.1


def test_rings_are_evenly_spread():
    waves = [
        corrupt(uniform_image(128), "cocentric_sine_waves", 3, seed) - 127.5
        for seed in range(40)
    ]
    assert np.abs(waves).max() <= 51.7  # 12.8 x 8 / 2, and half a byte.
    assert np.std(waves) == pytest.approx(102.4 / math.sqrt(12), rel=0.05)


def test_warped_waves_equal_a_loop_over_pixels():
    time, rounds, sharpness, scale = 4.0, 5, 0.7, 5.0
    grid = bar.warped_grid(np, 32, time, rounds, sharpness, scale)
    for row, column in [(0, 0), (3, 17), (31, 30), (20, 5)]:
        x, y = column / scale, row / scale
        for n in range(rounds):
            p, t = 1.93**n, time / 1.15**n
            s = (2.25 - sharpness) ** n
            r = math.cos(p * y + t) / s, math.sin(p * x + t) / s
            x, y = x + r[0] - 0.3 * r[1], y + r[1] + 0.3 * r[0]
        got = [coordinate[row, column] for coordinate in grid]
        np.testing.assert_allclose(got, [x, y], atol=1e-9)


def test_perlin_is_a_multiple_of_grey_on_the_lattice():
    """Noise is 0 on the lattice: every 32nd of 224 pixels is half way, 255 a / 2, to
    white.
    """
    out = corrupt(uniform_image(0, 224), "perlin_noise", 5)
    share = 8.8 / 20
    assert (out[::32, ::32] == int(127.5 * share)).all()
    assert out.min() >= int(127.5 * share) and out.max() <= 255 * share
    assert 2 < out.std()


def test_lattice_is_smooth_noise_of_unit_gradients():
    side = 448  # 64 pixels a cell.
    gradients, order = bar.lattice(np, np.random.default_rng(0))
    np.testing.assert_allclose(np.linalg.norm(gradients, axis=1), 1)
    assert sorted(order) == list(range(256))
    noise = bar.lattice_noise(np, side, 1, gradients, order)
    assert (noise[::64, ::64] == 0).all()
    assert np.abs(np.diff(noise, axis=0)).max() < 5 / 64
    assert np.abs(noise).max() <= 1.5 * math.sqrt(0.5) + 1e-9  # Perlin's bound.
    column, row = np.mgrid[:7, :7]  # Rows of pixels are columns of the lattice.
    index = order[(order[column] + row) % 256]
    slope = noise[1::64, ::64] * 64 / 1.5
    np.testing.assert_allclose(slope, gradients[index, 0], atol=3.3 / 64)


@pytest.mark.slow
def test_lattice_is_periodic():
    gradients, order = bar.lattice(np, np.random.default_rng(0))
    # 256 cells a pixel.
    noise = bar.lattice_noise(np, 14, 512, gradients, order)
    assert (noise == 0).all()
    # A quarter of a period more.
    noise = bar.lattice_noise(np, 28, 1025, gradients, order)
    once = bar.lattice_noise(np, 28, 1, gradients, order)
    np.testing.assert_allclose(noise, once, atol=1e-9)


@pytest.mark.parametrize(
    ("amplitude", "slope"),
    [(bar.frequency, 1), (bar.brownish, -2)],
)
def test_noises_have_their_spectrum(amplitude, slope):
    side = 128
    noise = [spectral_noise(amplitude(side), seed) for seed in range(8)]
    assert np.std(noise, axis=(1, 2)) == pytest.approx(1)
    frequency = np.hypot(*np.meshgrid(*[np.fft.fftfreq(side, 1 / side)] * 2))
    power = np.mean(np.abs(np.fft.fft2(noise)) ** 2, axis=0)
    rings = range(6, 60, 3)
    heights = [power[np.abs(frequency - ring) < 1].mean() for ring in rings]
    fitted = np.polyfit(np.log(list(rings)), np.log(heights), 1)[0]
    assert fitted == pytest.approx(2 * slope, abs=0.12)


def test_blue_noise_repeats_phases_as_the_reference_does():
    """Noise at (x, y) and at (-x, -y) correlates by cos(2 pi (x + y) / side).

    The reference gives frequencies k and -k - 1 the same phase, and their amplitudes are
    almost equal.
    """
    side = 64
    amplitude = bar.frequency(side)
    noise = np.stack([spectral_noise(amplitude, seed) for seed in range(400)])
    assert noise[:, side // 2, 0].std() < 0.3 > noise[:, 0, side // 2].std()
    assert noise[:, side // 2, side // 2].std() > 1.2
    for x, y in [(3, 0), (5, 6), (20, 12), (9, 9)]:
        got = np.corrcoef(noise[:, y, x], noise[:, -y, -x])[0, 1]
        expected = math.cos(2 * math.pi * (x + y) / side)
        assert got == pytest.approx(expected, abs=0.2)


def test_blue_noise_sample_blackens_more_pixels_at_higher_severity():
    image = np.random.default_rng(0).integers(1, 256, (64, 64, 3), np.uint8)
    is_kept = [
        (corrupt(image, "blue_noise_sample", s) == image).all(-1) for s in range(1, 6)
    ]
    for s in range(1, 6):
        out = corrupt(image, "blue_noise_sample", s)
        assert (out[~is_kept[s - 1]] == 0).all()
        assert s == 1 or (is_kept[s - 1] <= is_kept[s - 2]).all()
    noise = spectral_noise(bar.frequency(64), 0)
    np.testing.assert_array_equal(is_kept[4], noise > 0.3 * 5.6 - 2.5)


def test_brownish_channels_are_drawn_apart():
    out = corrupt(uniform_image(128), "brownish_noise", 2).reshape(-1, 3).astype(float)
    assert out.std(0) == pytest.approx(12.8, abs=0.4)
    assert np.abs(np.corrcoef(out.T)[np.triu_indices(3, 1)]).max() < 0.9


def test_checkerboard_covers_its_share_with_grey():
    image = np.random.default_rng(0).integers(0, 128, (64, 64, 3), np.uint8)
    for severity in (1, 5):
        shares = []
        for seed in range(300):
            out = corrupt(image, "checkerboard_cutout", severity, seed)
            cover = (out == 128).all(-1)
            np.testing.assert_array_equal(out[~cover], image[~cover])
            shares.append(cover.mean())
        # Half of the fields, of which (severity + 1) tenths are covered.
        error = 5 * np.std(shares) / math.sqrt(300)
        assert np.mean(shares) == pytest.approx((severity + 1) / 20, abs=error)


def test_the_star_equals_a_loop_over_pixels():
    lengths = np.random.default_rng(0).uniform(2, 9, 57)
    for amount in (50, 94):
        star = bar.star(32, np.array([10.3, 20.6]), lengths, 57, amount)
        for row, column in [(0, 0), (10, 20), (11, 31), (31, 3), (10, 0)]:
            across, down = column - 20.6, row - 10.3
            turn = (math.atan2(across, down) / (2 * math.pi) + 0.5) * 57
            ray, u = int(turn), turn % 1
            length = (1 - u) * lengths[ray % 57] + u * lengths[(ray + 1) % 57]
            glow = (length**2 / (across**2 + down**2 + 1e-4)) ** ((100 - amount) / 50)
            expected = min((1 - (u - 0.5) ** 2) * glow, 1)
            assert star[row, column] == pytest.approx(expected)


def test_sparkles_only_whiten():
    image = np.random.default_rng(0).integers(0, 256, (64, 64, 3), np.uint8)
    for severity in range(1, 6):
        out = corrupt(image, "sparkles", severity)
        assert (out >= image).all() and (out == 255).all(-1).any()
        inverse = corrupt(image, "inverse_sparkles", severity)
        assert (inverse >= image).all() and (inverse == image).all(-1).mean() > 0.02
    assert (corrupt(uniform_image(255), "sparkles", 5) == 255).all()


def test_caustics_are_periodic():
    light = bar.caustics(np, 64, 1.3, 32.0)
    assert light.min() >= 0 and 0.5 < light.max() <= 1
    np.testing.assert_allclose(light[:32, :32], light[32:, 32:], atol=1e-6)


def test_rays_bend_by_snells_law():
    slopes = np.random.default_rng(0).uniform(-1.5, 1.5, (2, 20, 1))
    offsets = slopes * bar.refraction(*slopes)
    for (a, b), offset in zip(slopes[..., 0].T, offsets[..., 0].T, strict=True):
        normal = np.array([a, b, 1]) / math.sqrt(a * a + b * b + 1)
        ray = np.array([0.0, 0.0, 1.0])
        sine = np.linalg.norm(np.cross(ray, normal)) / 4
        tangent = ray - (ray @ normal) * normal
        tangent /= np.linalg.norm(tangent)
        # The ray's part along the surface, turned as in the reference.
        out = math.sqrt(1 - sine**2) * normal + sine * tangent
        np.testing.assert_allclose(offset, out[:2], atol=1e-9)
    assert (bar.refraction(*np.full((2, 1, 1), 0.02)) == 0).all()


def test_a_lens_of_strength_zero_changes_nothing():
    image = np.random.default_rng(0).integers(0, 256, (48, 48, 3), np.uint8)
    rng = np.random.default_rng(0)
    blur = host.gaussian(48, 1, "reflect")
    out = bar.caustic_refraction(image, rng, host, blur=blur, level=0.0)
    assert np.abs(out - image).max() < 1
