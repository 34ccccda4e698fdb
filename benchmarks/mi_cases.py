"""Samples whose mutual information is known, in bits: in closed form, by quadrature, or by a large Monte Carlo.

Vectors are z A + noise + mean, so that what a label shifts can lie in any direction: of isotropic noise, of a few
latent variables, or of a spectrum like BERT's, with a mean far from zero and outlier dimensions. Linear maps that lose
nothing leave the information as it is; what noise hides is accounted for.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
from scipy.integrate import quad
from scipy.optimize import brentq
from scipy.special import logsumexp, ndtr, softmax
from scipy.stats import t as student

__all__ = ["CASES", "Case", "Space", "gaussian_classes", "space"]

Sample = tuple[np.ndarray, np.ndarray]
DRAWS = 400_000
HALF = np.array([0.5, 0.5])


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """Pairs of vectors and labels.

    make : (rng, n) to x (n, d), or (n,) symbols, and y (n,) or (n, m); truth : mutual information in bits
    error : standard error of ``truth``, 0 unless it came by Monte Carlo
    """

    name: str
    make: Callable[[np.random.Generator, int], Sample]
    truth: float
    error: float = 0.0


@dataclass(frozen=True, slots=True, eq=False)
class Space:
    """Where latent variables z (k,) lie in vectors: x = z · axes + noise · N(0, I) + mean.

    axes : (k, d); noise, mean : (d,); latent : standard deviation of z
    """

    axes: np.ndarray
    noise: np.ndarray
    mean: np.ndarray
    latent: float = 1.0

    def vectors(self, z: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """float32 (n, d), float64 where d is small, of latent variables (n, k)."""
        dtype = np.float32 if len(self.mean) > 100 else np.float64
        noise = rng.standard_normal((len(z), len(self.mean)), dtype=dtype)
        return z.astype(dtype) @ self.axes.astype(dtype) + noise * self.noise.astype(dtype) + self.mean.astype(dtype)

    @property
    def seen(self) -> np.ndarray:
        """(k, k): a shift s of z is worth the squared Mahalanobis distance s · seen · s in x (Woodbury)."""
        precision = (self.axes / self.noise**2) @ self.axes.T
        return precision @ np.linalg.inv(np.eye(len(precision)) + self.latent**2 * precision)


@lru_cache
def space(kind: str, d: int, k: int = 8) -> Space:
    """A space: k directions of isotropic noise, k equal latent variables ("latent"), or 64 with a spectrum ("bert")."""
    rng = np.random.default_rng([d, k, len(kind)])
    if kind == "isotropic":
        return Space(np.linalg.qr(rng.standard_normal((d, k)))[0].T, np.ones(d), np.zeros(d), latent=0.0)
    if kind == "latent":
        return Space(rng.standard_normal((k, d)) / np.sqrt(k), np.full(d, 0.05), np.zeros(d))
    axes = 0.3 * rng.standard_normal((64, d)) * np.arange(1, 65)[:, None] ** -0.5
    noise, mean = np.full(d, 0.1), 0.3 * rng.standard_normal(d)
    noise[[7, d // 7, d // 2]], mean[[7, d // 7, d // 2]] = 2.0, (8, -12, 5)
    return Space(axes, noise, mean)


def information_of_means(means: np.ndarray, shares: np.ndarray, draws: int = DRAWS) -> tuple[float, float]:
    """I(Y; X) in bits and its standard error: X is a unit Gaussian about ``means`` (K, q), Y has ``shares`` (K,)."""
    kept = np.linalg.svd(means - shares @ means, full_matrices=False)
    means = kept[0] * kept[1]
    means = means[:, kept[1] > 1e-9 * max(kept[1][0], 1e-300)]
    if means.shape[1] <= 1:
        return (information_on_line(means[:, 0], shares) if means.size else 0.0), 0.0
    rng = np.random.default_rng(7)
    y = np.repeat(np.arange(len(shares)), np.rint(shares * draws).astype(int))
    x = means[y] + rng.standard_normal((len(y), means.shape[1]))
    own = _log_ratio(x @ means.T - 0.5 * (means**2).sum(1), y, shares)
    return float(own.mean()), float(own.std() / np.sqrt(len(y)))


def information_on_line(means: np.ndarray, shares: np.ndarray) -> float:
    """The same for means (K,) on a line, by Gauss-Hermite quadrature."""
    points, weights = np.polynomial.hermite_e.hermegauss(200)
    y = np.repeat(np.arange(len(means)), len(points))
    x = (means[:, None] + points).ravel()
    own = _log_ratio(np.outer(x, means) - 0.5 * means**2, y, shares)
    return float((shares[:, None] * weights / weights.sum()).ravel() @ own)


def _log_ratio(log_density: np.ndarray, y: np.ndarray, shares: np.ndarray) -> np.ndarray:
    """log2 p(x | y) / p(x), (n,), of log densities (n, K) up to a term that does not depend on the class."""
    return (log_density[np.arange(len(y)), y] - logsumexp(log_density, axis=1, b=shares)) / np.log(2)


def centres(classes: int, layout: str) -> np.ndarray:
    """Class means (K, q): "line", one apart; "general", the corners of a simplex, one apart."""
    if layout == "line":
        return np.arange(classes)[:, None] - (classes - 1) / 2
    corners = np.eye(classes) - 1 / classes
    u, s, _ = np.linalg.svd(corners)
    return (u * s)[:, : classes - 1] / np.sqrt(2)


def gaussian_classes(
    name: str,
    bits: float,
    *,
    kind: str = "isotropic",
    d: int = 768,
    shares: np.ndarray = HALF,
    layout: str = "line",
    first: int = 0,
) -> Case:
    """Classes of Gaussian vectors with ``bits`` of information; means differ in latent variables from ``first`` on."""
    unit = centres(len(shares), layout)
    q = unit.shape[1]
    room = space(kind, d, max(8, q) if kind == "latent" else q)
    worth = np.linalg.cholesky(room.seen[first : first + q, first : first + q])
    white = unit @ worth
    distance = 0.0
    if bits:
        distance = brentq(lambda s: information_of_means(s * white, shares, DRAWS // 8)[0] - bits, 1e-3, 60, xtol=1e-3)
    truth, error = information_of_means(distance * white, shares)

    def make(rng: np.random.Generator, n: int) -> Sample:
        y = rng.choice(len(shares), n, p=shares)
        z = room.latent * rng.standard_normal((n, len(room.axes)))
        z[:, first : first + q] += distance * unit[y]
        return room.vectors(z, rng), y

    return Case(name, make, truth, error)


def linear_score(name: str, bits: float, *, kind: str = "isotropic", d: int = 768, first: int = 0) -> Case:
    """A number that is one direction of the vectors, and noise."""
    room = None if kind == "isotropic" else space(kind, d)
    known = 1.0 if room is None else float(room.seen[first, first])  # share of the latent's variance that x tells
    signal = (4**bits - 1) / (1 - 4**bits * (1 - known))

    def make(rng: np.random.Generator, n: int) -> Sample:
        if room is None:
            x = rng.standard_normal((n, d), dtype=np.float32 if d > 100 else np.float64)
            z = x @ space("isotropic", d, 1).axes[0].astype(x.dtype)
        else:
            latent = rng.standard_normal((n, len(room.axes)))
            x, z = room.vectors(latent, rng), latent[:, first]
        return x, np.sqrt(signal) * z.astype(np.float64) + rng.standard_normal(n)

    return Case(name, make, bits)


def correlated(name: str, bits: float, d: int) -> Case:
    """Gaussians (n, d) and (n, d), each column of one correlated with its own of the other."""
    rho = np.sqrt(1 - 4 ** (-bits / d))

    def make(rng: np.random.Generator, n: int) -> Sample:
        x = rng.standard_normal((n, d))
        return x, rho * x + np.sqrt(1 - rho**2) * rng.standard_normal((n, d))

    return Case(name, make, bits)


def binary_entropy(p: float) -> float:
    return 0.0 if p in (0, 1) else float(-p * np.log2(p) - (1 - p) * np.log2(1 - p))


def noisy_label(
    name: str, bits: float, rule: Callable[[np.ndarray], np.ndarray], d: int, kind: str = "columns"
) -> Case:
    """A fair coin that a rule of two standard normal variables tells, flipped now and then."""
    flip = brentq(lambda e: 1 - binary_entropy(e) - bits, 0, 0.5) if bits < 1 else 0.0

    def make(rng: np.random.Generator, n: int) -> Sample:
        z = rng.standard_normal((n, 2))
        y = rule(z) ^ (rng.random(n) < flip)
        if kind == "columns":
            return np.hstack([z, rng.standard_normal((n, d - 2))]), y.astype(int)
        axes = np.sqrt(d / 2) * space("isotropic", d, 2).axes
        return (z @ axes + 0.05 * rng.standard_normal((n, d))).astype(np.float32), y.astype(int)

    return Case(name, make, bits)  # embedded, the noise hides less than 0.005 bits of it


def absolute_number(name: str, noise: float, d: int) -> Case:
    """A number |z| + noise of the first column z: skew normal, so that its entropy is one integral."""
    spread = np.sqrt(1 + noise**2)

    def density(y: float) -> float:
        return 2 * np.exp(-0.5 * (y / spread) ** 2) / np.sqrt(2 * np.pi) / spread * ndtr(y / (noise * spread))

    def term(y: float) -> float:
        p = density(y)
        return -p * np.log2(p) if p > 0 else 0.0

    truth = quad(term, -10 * noise, 10, points=[0, 1], limit=400)[0] - 0.5 * np.log2(2 * np.pi * np.e * noise**2)

    def make(rng: np.random.Generator, n: int) -> Sample:
        x = rng.standard_normal((n, d))
        return x, np.abs(x[:, 0]) + noise * rng.standard_normal(n)

    return Case(name, make, float(truth))


def clusters(name: str, d: int, *, count: int = 6, apart: float = 4.0, kind: str = "isotropic") -> Case:
    """Clusters on a line whose labels alternate: no hyperplane parts them."""
    places = apart * (np.arange(count) - (count - 1) / 2)
    room = space(kind, d, 1 if kind == "isotropic" else 8)
    white = places * np.sqrt(room.seen[0, 0])

    def unknown(x: float) -> float:
        log_density = -0.5 * (x - white) ** 2
        own = softmax(log_density)
        density = np.exp(logsumexp(log_density)) / count / np.sqrt(2 * np.pi)
        return density * binary_entropy(float(np.clip(own[::2].sum(), 0, 1)))

    truth = binary_entropy(0.5) - quad(unknown, white[0] - 9, white[-1] + 9, points=white, limit=400)[0]

    def make(rng: np.random.Generator, n: int) -> Sample:
        own = rng.integers(0, count, n)
        z = room.latent * rng.standard_normal((n, len(room.axes)))
        z[:, 0] += places[own]
        return room.vectors(z, rng), own % 2

    return Case(name, make, float(truth))


def heavy_tails(name: str, bits: float, d: int, freedom: float = 2.0) -> Case:
    """Two classes whose first column differs; all columns have Student t noise."""

    def information(shift: float) -> float:
        def term(x: float) -> float:
            p, q = student.pdf(x, freedom), student.pdf(x - shift, freedom)
            return 0.5 * p * np.log2(2 * p / (p + q)) if p > 0 else 0.0

        return 2 * (quad(term, -np.inf, shift / 2, limit=400)[0] + quad(term, shift / 2, np.inf, limit=400)[0])

    shift = brentq(lambda s: information(s) - bits, 1e-3, 100) if bits else 0.0

    def make(rng: np.random.Generator, n: int) -> Sample:
        y = rng.integers(0, 2, n)
        x = rng.standard_t(freedom, (n, d))
        x[:, 0] += shift * y
        return x, y

    return Case(name, make, bits)


def discrete_pair(name: str, kinds: int, noise: float) -> Case:
    """Two symbols of ``kinds``, the second a copy of the first but for ``noise``, when it is drawn anew."""
    joint = np.full((kinds, kinds), noise / kinds**2) + (1 - noise) / kinds * np.eye(kinds)
    held = joint[joint > 0]

    def make(rng: np.random.Generator, n: int) -> Sample:
        x = rng.integers(0, kinds, n)
        return x, np.where(rng.random(n) < noise, rng.integers(0, kinds, n), x)

    return Case(name, make, float(held @ np.log2(held) + 2 * np.log2(kinds)))


def independent(name: str, kind: str, d: int, labels: Callable[[np.random.Generator, int], np.ndarray]) -> Case:
    """Vectors and labels that know nothing of each other."""

    def make(rng: np.random.Generator, n: int) -> Sample:
        y = labels(rng, n)
        if kind == "heavy":
            return rng.standard_t(2.0, (n, d)), y
        if kind == "symbols":
            return rng.integers(0, d, n), y
        room = space(kind, d)
        return room.vectors(room.latent * rng.standard_normal((n, len(room.axes))), rng), y

    return Case(name, make, 0.0)


def _equal(classes: int) -> np.ndarray:
    return np.full(classes, 1 / classes)


def _classes(shares: np.ndarray, rng: np.random.Generator, n: int) -> np.ndarray:
    y = rng.choice(len(shares), n, p=shares)
    y[: len(shares)] = np.arange(len(shares))  # vectors do not depend on their order, so nothing is given away
    return y


def _normal(columns: int, rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.standard_normal((n, columns)) if columns > 1 else rng.standard_normal(n)


RARE = np.array([0.1, 0.9])
LABELS: dict[str, Callable[[np.random.Generator, int], np.ndarray]] = {
    "2 classes": partial(_classes, HALF),
    "10:90": partial(_classes, RARE),
    "5 classes": partial(_classes, _equal(5)),
    "20 classes": partial(_classes, _equal(20)),
    "numbers": partial(_normal, 1),
    "2 numbers": partial(_normal, 2),
}


def _exclusive_or(z: np.ndarray) -> np.ndarray:
    return z[:, 0] * z[:, 1] > 0


def _absolute(z: np.ndarray) -> np.ndarray:
    return np.abs(z[:, 0]) > 0.6744897501960817


def _builders() -> dict[str, Callable[[str], Case]]:
    """How each case is made, by name; most are quick, those with an integral over many dimensions take a second."""
    all_: dict[str, Callable[[str], Case]] = {}
    for d, kind in ((1, "isotropic"), (2, "isotropic"), (10, "isotropic"), (768, "isotropic"), (768, "bert")):
        for name, labels in LABELS.items():
            all_[f"independent {kind} {d}, {name}"] = partial(
                independent, kind=kind if d > 8 or kind != "isotropic" else "latent", d=d, labels=labels
            )
    all_["independent heavy 10, 2 classes"] = partial(independent, kind="heavy", d=10, labels=LABELS["2 classes"])
    all_["independent heavy 10, numbers"] = partial(independent, kind="heavy", d=10, labels=LABELS["numbers"])
    for kinds in (2, 20):
        for name in ("2 classes", "20 classes", "numbers"):
            all_[f"independent {kinds} symbols, {name}"] = partial(
                independent, kind="symbols", d=kinds, labels=LABELS[name]
            )
    for d, kind in ((1, "isotropic"), (10, "isotropic"), (768, "isotropic"), (768, "latent"), (768, "bert")):
        for bits in (0.02, 0.05, 0.15, 0.5, 0.9):
            all_[f"{kind} {d}, 2 classes, {bits}"] = partial(gaussian_classes, bits=bits, kind=kind, d=d)
    for bits in (0.05, 0.15, 0.5, 0.9):
        all_[f"bert low 768, 2 classes, {bits}"] = partial(gaussian_classes, bits=bits, kind="bert", first=40)
    for kind, d in (("isotropic", 10), ("bert", 768)):
        for bits in (0.05, 0.15, 0.4):
            all_[f"{kind} {d}, 10:90, {bits}"] = partial(gaussian_classes, bits=bits, kind=kind, d=d, shares=RARE)
    for classes, sizes in ((5, (0.05, 0.15, 0.75, 1.5, 2.2)), (20, (0.15, 0.75, 2.0, 3.5))):
        for bits in sizes:
            for kind, d in (("latent", 10), ("bert", 768)):
                fits = "line" if kind == "latent" and classes > 10 else "general"
                for layout in dict.fromkeys(("line", fits)):
                    all_[f"{kind} {d}, {classes} classes {layout}, {bits}"] = partial(
                        gaussian_classes, bits=bits, kind=kind, d=d, shares=_equal(classes), layout=layout
                    )
    for d in (1, 2, 5, 20):
        for bits in (0.15, 0.5, 2.0):
            all_[f"correlated {d}, {bits}"] = partial(correlated, bits=bits, d=d)
    for kind, d in (("isotropic", 10), ("isotropic", 768), ("latent", 768), ("bert", 768)):
        for bits in (0.05, 0.15, 0.5, 1.5):
            if (kind, bits) != ("bert", 1.5):  # its noise hides as much
                all_[f"score {kind} {d}, {bits}"] = partial(linear_score, bits=bits, kind=kind, d=d)
    for name, rule in (("xor", _exclusive_or), ("absolute", _absolute)):
        for bits in (0.15, 0.5, 1.0):
            all_[f"{name} 10, {bits}"] = partial(noisy_label, bits=bits, rule=rule, d=10)
            all_[f"{name} in 768, {bits}"] = partial(noisy_label, bits=bits, rule=rule, d=768, kind="embedded")
    for noise in (0.3, 1.0):
        all_[f"absolute number 10, noise {noise}"] = partial(absolute_number, noise=noise, d=10)
    all_["clusters 2"] = partial(clusters, d=2)
    all_["clusters 10"] = partial(clusters, d=10)
    all_["clusters 768"] = partial(clusters, d=768, kind="latent")
    for d in (1, 10, 768):
        for bits in (0.05, 0.15, 0.5):
            all_[f"heavy {d}, {bits}"] = partial(heavy_tails, bits=bits, d=d)
    for kinds, noise in ((2, 0.5), (2, 0.8), (5, 0.2), (20, 0.2), (20, 0.8)):
        all_[f"symbols {kinds}, noise {noise}"] = partial(discrete_pair, kinds=kinds, noise=noise)
    return all_


CASES = _builders()
