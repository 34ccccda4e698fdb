"""Slow twins: what the fast code computes, written as its definition says, in float64."""

from __future__ import annotations

import numpy as np
from scipy.special import digamma, logsumexp


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
