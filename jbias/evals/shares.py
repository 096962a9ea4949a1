"""How sure is a share of so many?"""

import math
import statistics


def wilson(count: int, n: int, *, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson's score interval of a binomial share; (0, 1) of nothing at all.

    (p + z^2 / 2n +- z sqrt(p (1 - p) / n + z^2 / 4n^2)) / (1 + z^2 / n), p = count / n.
    Source: Wilson 1927, https://doi.org/10.2307/2276774. ValueError where count is not
    in 0 ... n.
    """
    if not 0 <= count <= n:
        raise ValueError(f"wilson: count must be in 0 ... {n}, got {count}")
    if n == 0:
        return 0.0, 1.0
    z2 = statistics.NormalDist().inv_cdf((1 + confidence) / 2) ** 2
    share = count / n
    centre = share + z2 / (2 * n)
    half = math.sqrt(z2 * (share * (1 - share) / n + z2 / (4 * n**2)))
    low, high = ((centre + sign * half) / (1 + z2 / n) for sign in (-1, 1))
    return max(low, 0.0) if count else 0.0, min(high, 1.0) if count < n else 1.0
