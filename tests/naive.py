"""Slow twins: what the fast code computes, written as its definition says, in float64."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations, product
from math import exp, floor, inf, log, log2, sqrt, tanh

import numpy as np
from scipy.optimize import minimize
from scipy.special import digamma, logsumexp
from scipy.stats import hypergeom
from sklearn.neighbors import NearestNeighbors


class Logistic:
    """Σᵢ wᵢ loss(yᵢ, xᵢ) + |v|²/2C, as scikit-learn has it, times 1/C; minimised by Newton's method on whole matrices.

    Parameters are (k, d + 1), the intercepts last; k is 1 for two classes (the logit of class 1), else their number.
    """

    def __init__(self, x, y, classes, C, weights=None):
        self.mean = np.asarray(x, dtype=np.float64).mean(0)  # moves the intercept only
        self.x = np.hstack([np.asarray(x, dtype=np.float64) - self.mean, np.ones((len(x), 1))])
        self.k = 1 if classes == 2 else classes
        self.weights = np.ones(len(x)) if weights is None else np.asarray(weights, dtype=np.float64)
        self.ridge = np.append(np.full(self.x.shape[1] - 1, 1 / C), 0)
        self.y = np.asarray(y)
        self.onehot = np.eye(classes)[self.y][:, -self.k :]

    def logits(self, a):
        return self.x @ a.T

    def objective(self, a):
        z = self.logits(a)
        if self.k == 1:
            loss = np.logaddexp(0, np.where(self.y == 1, -z[:, 0], z[:, 0]))
        else:
            loss = logsumexp(z, axis=1) - (z * self.onehot).sum(1)
        return self.weights @ loss + 0.5 * (self.ridge * a**2).sum()

    def _p(self, a):
        z = self.logits(a)
        return 1 / (1 + np.exp(-z)) if self.k == 1 else np.exp(z - logsumexp(z, axis=1, keepdims=True))

    def gradient(self, a):
        return (self.weights[:, None] * (self._p(a) - self.onehot)).T @ self.x + self.ridge * a

    def hessian(self, a):
        p, d = self._p(a), self.x.shape[1]
        h = np.empty((self.k, d, self.k, d))
        for i in range(self.k):
            for j in range(self.k):
                bend = p[:, i] * ((i == j) - p[:, j])
                h[i, :, j] = (self.x * (self.weights * bend)[:, None]).T @ self.x + (i == j) * np.diag(self.ridge)
        if self.k > 1:  # a constant on all intercepts changes nothing; let the one that sums to 0 be meant
            h[:, -1, :, -1] += self.weights.sum() / self.k
        return h.reshape(self.k * d, -1)

    def newton(self, a):
        """H⁻¹g, and the Newton decrement gᵀH⁻¹g."""
        g = self.gradient(a).ravel()
        step = np.linalg.lstsq(self.hessian(a), g, rcond=1e-15)[0]
        return step.reshape(a.shape), float(g @ step)

    def solve(self):
        a = np.zeros((self.k, self.x.shape[1]))
        for _ in range(200):
            step, decrement = self.newton(a)
            if decrement < 1e-11:
                return a
            length, now = 1.0, self.objective(a)
            while self.objective(a - length * step) > now - 0.1 * length * decrement and length > 1e-8:
                length /= 2
            a = a - length * step
        raise AssertionError(f"Newton's method stopped at a decrement of {decrement}.")

    def parameters(self, coef, intercept):
        """Coefficients (k, d) and intercepts (k,) of the features as given, as parameters."""
        return np.hstack([coef, (intercept + coef @ self.mean)[:, None]])


def ross(points, codes, k):
    """Ross (2014), equation 2, in bits, by the definition: counts of points within the distance of the k-th of a class.

    A class of up to k examples has as many as it can; single examples are left out.
    """
    alone = np.bincount(codes)[codes] < 2
    points, codes = points[~alone], codes[~alone]
    n, terms = len(codes), []
    distance = np.sqrt(((points[:, None] - points) ** 2).sum(-1))
    for i in range(n):
        same = np.flatnonzero((codes == codes[i]) & (np.arange(n) != i))
        own = min(k, len(same))
        radius = np.sort(distance[i, same])[own - 1]
        inside = (np.delete(distance[i], i) <= radius).sum()
        terms.append(digamma(n) - digamma(len(same) + 1) + digamma(own) - digamma(inside))
    return np.mean(terms) / np.log(2)


def kraskov(points, y, k):
    """Estimator 1 of Kraskov, Stögbauer & Grassberger (2004), equation 8, in bits, by the definition."""
    n, terms = len(y), []
    for i in range(n):
        dx, dy = (np.sqrt(((np.delete(v, i, 0) - v[i]) ** 2).sum(1)) for v in (points, y))
        reach = np.sort(np.maximum(dx, dy))[k - 1]
        terms.append(digamma((dx < reach).sum() + 1) + digamma((dy < reach).sum() + 1))
    return (digamma(k) + digamma(n) - np.mean(terms)) / np.log(2)


# EDGE: plain Python, a row at a time, with dictionaries and scikit-learn's neighbours


def edge_bandwidth(z, columns):
    """Mean distance of 500 rows to their k-th neighbour, in each column of z (n, m); k by the number of columns."""
    n = len(z)
    k = int(0.43 * n ** (2 / 3 + 0.17 * columns / (columns + 1)) * np.exp(-1 / max(1e4, columns**4)))
    rows = np.random.RandomState(3334).randint(0, n, 500)
    found = [NearestNeighbors(n_neighbors=k).fit(c[:, None]).kneighbors(c[rows, None])[0][:, -1] for c in z.T]
    return np.array([d.mean() + 1e-4 for d in found])


def edge_member(a, b, widths, shifts, U):
    """One member: its value, and the buckets of a (n, r), of b (n, s) and of both that are occupied."""
    n, in_a, in_b, in_both = len(a), {}, {}, {}
    for row in range(n):
        i, j = (tuple(np.floor((v[row] + s) / w)) for v, s, w in zip((a, b), shifts, widths, strict=True))
        in_a.setdefault(i, []).append(row)
        in_b.setdefault(j, []).append(row)
        in_both.setdefault((i, j), []).append(row)
    value = 0
    for (i, j), rows in in_both.items():
        term = np.log2(len(rows) * n / (len(in_a[i]) * len(in_b[j])))
        value += len(rows) / n * max(min(term, U), 0.001)
    return value, (len(in_a), len(in_b), len(in_both))


def edge_weights(stretch, n, d):
    """min ε with Σw = 1, |w| ≤ ε/2 and Σ_l w_l (stretch_l / n)^(i/2d) ≤ 2ε for i = 1 … L - 1."""
    L = len(stretch)
    a = np.array([(stretch / n) ** (i / (2 * d)) for i in range(1, L)]).reshape(-1, L)
    constraints = [
        {"type": "eq", "fun": lambda v: v[:-1].sum() - 1},
        {"type": "ineq", "fun": lambda v: v[-1] / 2 - np.sqrt((v[:-1] ** 2).sum())},
        {"type": "ineq", "fun": lambda v: 2 * v[-1] - a @ v[:-1]},
    ]
    start = np.append(np.full(L, 1 / L), 2.0)
    return minimize(lambda v: v[-1], start, method="SLSQP", constraints=constraints, options={"ftol": 1e-12}).x[:-1]


def edge(x, y, version="4.3.1", *, U=10, gamma=(1, 1), epsilon=(0, 0), epsilon_vector="range", eps_range_factor=0.1,
         normalize_epsilon=True, ensemble_estimation="median", L_ensemble=10, hashing="p-stable"):  # fmt: skip
    """The author's algorithm, deterministic: a list of passes, each (value, members, widths, buckets (L, 3))."""
    x, y = (np.reshape(v, (len(v), -1)) for v in (x, y))
    n, dims = len(x), (x.shape[1], y.shape[1])
    if hashing == "floor" or (version == "4.4.1" and max(dims) <= 6):
        points = [x, y]
    else:
        rng, points = np.random.RandomState(3334), []
        for v in (x, y):
            d, deviation = v.shape[1], v.std(0)
            scale = 1 / (np.where(deviation < 1e-4, 1, deviation) * np.sqrt(d))
            points.append(v @ rng.normal(0, scale[:, None], (d, min(d, int(np.log2(n / 10))))))
    near = [edge_bandwidth(v, v.shape[1]) for v in points]
    if epsilon[0]:
        near = [np.full(v.shape[1], e) for v, e in zip(points, epsilon, strict=True)]
    stretch = np.linspace(1, 1 + eps_range_factor, L_ensemble) if epsilon_vector == "range" else np.ones(L_ensemble)
    gamma, passes = np.array(gamma, dtype=float), []
    for _ in range(2 if normalize_epsilon else 1):
        if passes:
            gamma = gamma * 2 ** (-np.sqrt(2 * passes[0][0]) + 0.5 / passes[0][0])
        gamma = gamma * {"4.2.0": 1, "4.3.1": 0.9, "4.4.1": 0.4}[version]
        widths = []
        for v, e, g, d in zip(points, near, gamma, dims, strict=True):
            factor = 3
            if version == "4.4.1":
                factor = 15 if epsilon[0] else 18 / max(1 + np.log(d), 1)
            widths.append(e * factor * v.shape[1] * g)
        found = []
        for j, t in enumerate(stretch):
            stretched = [w * t for w in widths]
            found.append(edge_member(*points, stretched, [j / L_ensemble * w for w in stretched], U))
        members = np.array([value for value, _ in found])
        weights = edge_weights(stretch, n, dims[0]) if ensemble_estimation == "optimal_weights" else 1 / L_ensemble
        value = np.median(members) if ensemble_estimation == "median" else (weights * members).sum()
        passes.append((value, members, widths, np.array([buckets for _, buckets in found])))
    return passes


def logistic_bound(x, y, fold, Cs):
    """H(Y) - CE in bits, nested: C for a fold is the best on each other fold, fitted without both."""

    def losses(without, held, C):
        rows = ~np.isin(fold, without)
        mean, sd = x[rows].mean(0), x[rows].std(0)
        z = (x - mean) / sd
        twin = Logistic(z[rows], y[rows], y.max() + 1, C)
        a = twin.solve()
        logits = np.hstack([z[held] - twin.mean, np.ones((held.sum(), 1))]) @ a.T
        if twin.k == 1:
            return np.logaddexp(0, np.where(y[held] == 1, -logits[:, 0], logits[:, 0]))
        return logsumexp(logits, axis=1) - logits[np.arange(held.sum()), y[held]]

    total, folds = 0.0, range(fold.max() + 1)
    for f in folds:
        score = [sum(losses([f, g], fold == g, C).sum() for g in folds if g != f) for C in Cs]
        total += losses([f], fold == f, Cs[int(np.argmin(score))]).sum()
    p = np.bincount(y) / len(y)
    return -(p * np.log2(p)).sum() - total / len(y) / np.log(2)


def ridge_errors(x, y, fold, alphas):
    """Cross-validated errors of ridge regression; alpha by leaving out one row after another of the other folds."""

    def predict(x, y, x_new, alpha):
        mean, sd = x.mean(0), x.std(0)
        z, new = (x - mean) / sd, (x_new - mean) / sd
        return new @ np.linalg.solve(z.T @ z + alpha * np.eye(z.shape[1]), z.T @ (y - y.mean())) + y.mean()

    def left_out(x, y, alpha):  # the scale is that of all rows, as is the place where the rows are centred
        z = np.hstack([(x - x.mean(0)) / x.std(0), np.ones((len(x), 1))])
        ridge = np.diag(np.append(np.full(x.shape[1], alpha), 0))
        hat = z @ np.linalg.solve(z.T @ z + ridge, z.T)
        return np.mean(((y - hat @ y) / (1 - np.diagonal(hat))) ** 2)

    out = np.empty(len(y))
    for f in range(fold.max() + 1):
        rows = fold != f
        best = min(alphas, key=lambda alpha: left_out(x[rows], y[rows], alpha))
        out[~rows] = y[~rows] - predict(x[rows], y[rows], x[~rows], best)
    return out


# Joint counts, the null of shuffled labels, and buckets


def information(a, b):
    """Plug-in mutual information of two labellings, bits, from dictionaries of counts."""
    n = len(a)
    of_a, of_b, of_both = Counter(a), Counter(b), Counter(zip(a, b, strict=True))
    return sum(c / n * log2(c * n / (of_a[u] * of_b[v])) for (u, v), c in of_both.items())


def label_entropy(a):
    return -sum(c / len(a) * log2(c / len(a)) for c in Counter(a).values())


def expected_information(a, b):
    """Its mean over all ways to shuffle labels with counts a against labels with counts b."""
    n = sum(a)
    total = 0.0
    for x in a:
        for y in b:
            for k in range(1, min(x, y) + 1):
                total += hypergeom.pmf(k, n, x, y) * k / n * log2(n * k / (x * y))
    return total


def cells(z, shift):
    """The cell of each point of a grid of width 1, numbered in the order of appearance."""
    seen = {}
    return [seen.setdefault(tuple(floor(v + s) for v, s in zip(row, shift, strict=True)), len(seen)) for row in z]


def splitmix64(state):
    """Random 64-bit words (Steele, Lea & Flood 2014, figure 16), with Python's integers."""
    mask = 2**64 - 1
    while True:
        state = (state + 0x9E3779B97F4A7C15) & mask
        z = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        yield z ^ (z >> 31)


def shuffled(values, state):
    """Fisher and Yates, with the upper halves of the words."""
    values, words = list(values), splitmix64(state)
    for i in range(len(values) - 1, 0, -1):
        j = (next(words) >> 32) * (i + 1) >> 32
        values[i], values[j] = values[j], values[i]
    return values


def bin_patterns(x, bins, low, high):
    """The bins of equal width that the columns of each row fall into, as tuples."""
    found = []
    for row in x:
        cells = [int((v - a) / (b - a) * bins) if b > a else 0 for v, a, b in zip(row, low, high, strict=True)]
        found.append(tuple(min(max(cell, 0), bins - 1) for cell in cells))
    return found


def kernel_information(x, y, variance):
    """H(T) - H(T | Y) in bits, each a Kullback-Leibler bound on the entropy of a mixture of Gaussians."""

    def entropy_of(x):
        square = ((x[:, None] - x) ** 2).sum(-1)
        return -np.mean(logsumexp(-square / (2 * variance), axis=1) - np.log(len(x)))

    return (entropy_of(x) - sum((y == c).mean() * entropy_of(x[y == c]) for c in np.unique(y))) / np.log(2)


# Linear-chain conditional random field: every path, one after another


def crf_paths(logits, transitions, start, end, tags=None):
    """(path, score) of each way to tag a sentence, logits (t, k); with tags, those that have them (-100: any)."""
    t, k = logits.shape
    for path in product(range(k), repeat=t):
        if tags is None or all(given in (-100, y) for given, y in zip(tags, path, strict=True)):
            score = start[path[0]] + end[path[-1]] + sum(logits[i, y] for i, y in enumerate(path))
            yield path, score + sum(transitions[a, b] for a, b in pairwise(path))


def scheme_allows(scheme, tags):
    """Whether entities open, go on and close as the scheme has it, reading a whole sentence from left to right."""
    open_type = last_type = None  # of the entity that must go on; of the one that the last word is in
    for tag in tags:
        prefix, _, kind = tag.partition("-")
        prefix = {
            ("BIOES", "E"): "L",
            ("BIOES", "S"): "U",
            ("BMES", "M"): "I",
            ("BMES", "E"): "L",
            ("BMES", "S"): "U",
        }.get((scheme, prefix), prefix)
        if scheme == "BIO" and prefix == "I" and last_type != kind:
            return False
        if scheme == "IOB1" and prefix == "B" and last_type != kind:
            return False
        if scheme not in ("BIO", "IOB1"):
            if open_type is not None and (prefix not in "IL" or kind != open_type):
                return False
            if open_type is None and prefix in "IL":
                return False
            open_type = kind if prefix in "BI" else None
        last_type = None if prefix == "O" else kind
    return open_type is None


# Divergences of term distributions, a term at a time


def js_bits(p, q):
    """(KL(p‖m) + KL(q‖m)) / 2 in bits, m = (p + q) / 2."""
    middle = [(a + b) / 2 for a, b in zip(p, q, strict=True)]
    return sum(sum(a * log2(a / m) for a, m in zip(x, middle, strict=True) if a > 0) for x in (p, q)) / 2


def divergence(measure, p, q, alpha=0.99, smoothing=1e-3):
    """The measures of Ruder & Plank (2017) as they are defined, and the overlap of vocabularies."""
    pairs, v = list(zip(map(float, p), map(float, q), strict=True)), len(p)
    mixed = [[(1 - smoothing) * x + smoothing / v for x in pair] for pair in pairs]
    match measure:
        case "kl":
            return sum(a * log(a / b) for a, b in mixed)
        case "renyi":
            common = sum(a**alpha / b ** (alpha - 1) for a, b in pairs if b > 0)
            return log(common) / (alpha - 1) if common else inf
        case "bhattacharyya":
            common = sum(sqrt(a * b) for a, b in pairs)
            return -log(common) if common else inf
        case "cosine":
            return 1 - sum(a * b for a, b in pairs) / sqrt(sum(a * a for a, _ in pairs) * sum(b * b for _, b in pairs))
        case "euclidean":
            return sqrt(sum((a - b) ** 2 for a, b in pairs))
        case "variational":
            return sum(abs(a - b) for a, b in pairs)
        case "vocabulary-overlap":
            return sum(a > 0 < b for a, b in pairs) / sum(a > 0 or b > 0 for a, b in pairs)
    bits = js_bits(p, q)
    return {"js-divergence": bits, "js-divergence-nats": bits * log(2), "js-distance": sqrt(max(bits, 0)),
            "js-similarity": 1 - bits * log(2)}[measure]  # fmt: skip


def mantel(x, y, correlation):
    """Two-sided p of two matrices by all orders of the rows and columns of one of them, the diagonal left out."""
    d = len(x)
    pairs = [(i, j) for i in range(d) for j in range(d) if i != j]
    left = [x[i, j] for i, j in pairs]
    found = [abs(correlation(left, [y[o[i], o[j]] for i, j in pairs])) for o in permutations(range(d))]
    return sum(r >= found[0] - 1e-9 for r in found) / len(found)


def cyclic_orders(classes, cosets, rest, rests):
    """For each coset and shift, the row of the other side that row i is paired with."""
    orders = []
    for (coset, others_of_rest), s in product(zip(cosets, rests, strict=True), range(classes.shape[1])):
        order = np.empty(classes.size + len(rest), dtype=int)
        order[rest] = others_of_rest
        for rows, others in zip(classes, coset, strict=True):
            for t, row in enumerate(rows):
                order[row] = others[(t + s) % len(rows)]
        orders.append(order)
    return orders


def permuted_product(a, b, order):
    """Sums of a[i, j] b[order[i], order[j]] off and on the diagonal."""
    n = range(len(a))
    off = sum(a[i, j] * b[order[i], order[j]] for i in n for j in n if i != j)
    return off, sum(a[i, i] * b[order[i], order[i]] for i in n)


def debiased_cka(x, y):
    """Song et al. 2012, section 3, with U-centred kernels written out."""

    def centred(z):
        k = z @ z.T
        n = len(k)
        np.fill_diagonal(k, 0)
        out = np.zeros_like(k)
        for i, j in product(range(n), range(n)):
            if i != j:
                out[i, j] = k[i, j] - (k[i].sum() + k[j].sum()) / (n - 2) + k.sum() / ((n - 1) * (n - 2))
        return out

    a, b = (centred(z - z.mean(0)) for z in (x, y))
    return (a * b).sum() / sqrt((a * a).sum() * (b * b).sum())


def common_neighbours(x, y, k):
    """Means of |A ∩ B| / k and |A ∩ B| / |A ∪ B|, of the k nearest by cosine in either layer."""
    sets = []
    for z in (x - x.mean(0), y - y.mean(0)):
        norm = np.linalg.norm(z, axis=1)
        near = z @ z.T / norm / norm[:, None]
        np.fill_diagonal(near, -inf)
        sets.append([set(row) for row in np.argsort(-near, axis=1, kind="stable")[:, :k]])
    shares = [(len(a & b) / k, len(a & b) / len(a | b)) for a, b in zip(*sets, strict=True)]
    return np.mean(shares, axis=0)


def ranks_of_neighbours(x, y, k):
    """Mean agreement of the ranks of the common ones of the k nearest by cosine (Wang et al. 2020)."""
    lists = []
    for z in (x - x.mean(0), y - y.mean(0)):
        norm = np.linalg.norm(z, axis=1)
        near = z @ z.T / norm / norm[:, None]
        np.fill_diagonal(near, -inf)
        lists.append(np.argsort(-near, axis=1, kind="stable")[:, :k].tolist())
    found = []
    for a, b in zip(*lists, strict=True):
        common = [(a.index(j) + 1, b.index(j) + 1) for j in a if j in b]
        most = sum(1 / r for r in range(1, len(common) + 1))
        found.append(sum(2 / (1 + abs(r - s)) / (r + s) for r, s in common) / (most or 1))
    return np.mean(found)


def eigenspace_overlap(x, y):
    """|UᵀV|² over the larger rank, of orthonormal bases by Gram and Schmidt."""
    bases = []
    for z in (x - x.mean(0), y - y.mean(0)):
        basis = []
        for column in z.T:
            for u in basis:
                column = column - (u @ column) * u
            if np.linalg.norm(column) > 1e-8 * np.linalg.norm(z):
                basis.append(column / np.linalg.norm(column))
        bases.append(basis)
    return sum((u @ v) ** 2 for u in bases[0] for v in bases[1]) / max(map(len, bases))


def predictivity(x, y, shares=(0.1, 0.5, 0.99)):
    """R² of y, by ridge regressions fitted without one example at a time, and of the mean without it."""
    centred = x - x.mean(0)
    square = np.linalg.svd(centred, compute_uv=False) ** 2
    square = square[square > 1e-12 * square[0]]
    rows = range(len(x))
    total = sum(((y[i] - np.delete(y, i, 0).mean(0)) ** 2).sum() for i in rows)
    errors = []
    for share in shares:
        low, high = -40.0, 40.0
        for _ in range(100):
            middle = (low + high) / 2
            freedom = (square / (square + square.mean() * np.exp(middle))).sum()
            low, high = (middle, high) if freedom > share * len(square) else (low, middle)
        hat = centred @ np.linalg.solve(
            centred.T @ centred + square.mean() * np.exp(high) * np.eye(x.shape[1]), centred.T
        )
        hat += 1 / len(x)
        errors.append(sum((((y[i] - hat[i] @ y) / (1 - hat[i, i])) ** 2).sum() for i in rows))
    return 1 - min(errors) / total


def neighbour_influence(ours, theirs, score):
    """For each example j: its score, and what the others' gain if a copy of it takes the place of their k-th."""
    out = []
    for j in range(len(ours)):
        change = 0.0
        for i in range(len(ours)):
            a, b = set(ours[i]), set(theirs[i])
            before = score[len(a & b)]
            if i == j:
                change += before
            if j in a:
                a = (a - {ours[i][-1]}) | {"copy"}
            if j in b:
                b = (b - {theirs[i][-1]}) | {"copy"}
            change += score[len(a & b)] - before
        out.append(change)
    return out


def edge_logits(weights, reads, spans, rows, gate=None):
    """The logits of one edge probe, (rows, labels), one target after the other; ``spans`` is a SpanLayers."""
    import torch

    out = []
    for n, row in enumerate(rows):
        parts = []
        for k in range(spans.first.shape[1]):
            inside = slice(spans.first[row, k], spans.last[row, k] + 1)
            read = np.stack([x[inside] for x in spans.layers]).astype(np.float32)
            x = torch.from_numpy((read - spans.centre) / spans.scale)
            if "mix" in weights:
                at = np.flatnonzero(reads)
                shares = torch.exp(weights["mix"][at]) / torch.exp(weights["mix"][at]).sum()
                z = weights["gamma"] * sum(share * x[i] for share, i in zip(shares, at, strict=True))
            else:
                z = x[int(np.flatnonzero(reads)[0])]
            if f"project{k}" in weights:
                z = z @ weights[f"project{k}"] + weights[f"project{k}_bias"]
            share = torch.softmax(z @ weights[f"score{k}"], 0)
            parts.append(sum(s * piece for s, piece in zip(share, z, strict=True)))
        x = torch.cat(parts)
        if "hidden" in weights:
            x = torch.tanh(x @ weights["hidden"] + weights["hidden_bias"])
            x = (x - x.mean()) / torch.sqrt(x.var(unbiased=False) + 1e-5) * weights["gain"] + weights["shift"]
            x = x if gate is None else x * gate[n]
        out.append(x @ weights["out"] + weights["out_bias"])
    return torch.stack(out)


def dictionary_features(card, arrays, vectors):
    """Features and reconstructions of a folder of SAELens, one vector after the other in float64; after its classes.

    ``StandardSAE``, ``GatedSAE``, ``JumpReLUSAE``, ``TopKSAE`` and, before version 6, ``SAE`` with a
    ``finetuning_scaling_factor``; ``batchtopk`` is what ``process_state_dict_for_saving_inference`` makes of it.
    """
    of = {name: np.asarray(array, dtype=np.float64) for name, array in arrays.items()}
    d, latents = of["W_enc"].shape
    norms = [sqrt(sum(v * v for v in row)) for row in of["W_dec"]]
    features, restored = [], []
    for given in np.asarray(vectors, dtype=np.float64):
        x = list(given)
        if card.get("metadata", card).get("model_from_pretrained_kwargs", {}).get("center_writing_weights"):
            x = [v - sum(x) / d for v in x]
        times, plus = 1.0, 0.0
        if card.get("normalize_activations") == "constant_norm_rescale":
            times = 1 / (sqrt(d) / sqrt(sum(v * v for v in x)))
            x = [v / times for v in x]
        if card.get("normalize_activations") == "layer_norm":
            plus = sum(x) / d
            x = [v - plus for v in x]
            times = sqrt(sum(v * v for v in x) / (d - 1))
            x = [v / (times + 1e-5) for v in x]
        z = [v - b if card.get("apply_b_dec_to_input", True) else v for v, b in zip(x, of["b_dec"], strict=True)]
        before = [sum(z[i] * of["W_enc"][i, j] for i in range(d)) for j in range(latents)]
        kind, f = card.get("architecture", "standard"), [0.0] * latents
        sized = card.get("rescale_acts_by_decoder_norm", False)
        if kind != "gated":
            before = [(p + b) * (n if sized else 1) for p, b, n in zip(before, of["b_enc"], norms, strict=True)]
        function = card.get("activation_fn_str", card.get("activation_fn", "relu"))
        if kind == "gated":
            for j, p in enumerate(before):
                f[j] = max(0.0, p * exp(of["r_mag"][j]) + of["b_mag"][j]) if p + of["b_gate"][j] > 0 else 0.0
        elif "topk" in (kind, function):
            k = card["activation_fn_kwargs"]["k"] if function == "topk" else card["k"]
            for j in sorted(range(latents), key=lambda j: -before[j])[:k]:
                f[j] = max(0.0, before[j])
        else:
            least = of.get("threshold", of.get("topk_threshold", 0.0)) + np.zeros(latents)
            f = [max(0.0, p) if p > t or kind == "standard" else 0.0 for p, t in zip(before, least, strict=True)]
        if function == "tanh-relu":
            f = [tanh(v) for v in f]
        scale = of.get("scaling_factor", np.ones(latents))
        out = [
            sum(f[j] * scale[j] * of["W_dec"][j, i] / (norms[j] if sized else 1) for j in range(latents))
            + of["b_dec"][i]
            for i in range(d)
        ]
        features.append(f)
        restored.append([v * times + plus for v in out])
    return np.array(features), np.array(restored)
