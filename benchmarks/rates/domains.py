"""Divergences of domains: do intervals of the Jensen-Shannon divergence hold that of the populations, and is p right?

Documents have term distributions of their own about their domain's (Dirichlet), so that words of one come together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from calibration import case

from probekit.domains.divergence import js_divergence
from probekit.domains.rows import domain_rows
from probekit.domains.terms import count_domains
from probekit.domains.uncertainty import uncertainty


@dataclass(frozen=True, slots=True)
class Setting:
    """Two domains: how far apart, their documents, words of a document, terms, and how bursty (less is more)."""

    spread: float
    n: tuple[int, int] = (80, 80)
    length: int = 60
    terms: int = 1000
    burst: float = 300.0
    shared: float = 1.0

    def populations(self) -> tuple[np.ndarray, np.ndarray]:
        """Zipf's law times log-normal factors; terms of one domain alone for the rest of ``shared``."""
        fixed = np.random.default_rng(5)
        kind = np.random.default_rng(0).random(self.terms)
        base = 1 / np.arange(1, self.terms + 1)
        p, q = (base * np.exp(fixed.normal(0, self.spread, self.terms)) for _ in range(2))
        if not self.spread:
            q = p
        p = p * np.where(kind < self.shared, 1, 2 * (kind < (1 + self.shared) / 2))
        q = q * np.where(kind < self.shared, 1, 2 * (kind >= (1 + self.shared) / 2))
        return p / p.sum(), q / q.sum()

    def documents(self, p: np.ndarray, n: int, rng: np.random.Generator) -> np.ndarray:
        """Counts (n, terms)."""
        own = rng.gamma(np.maximum(p * self.burst, 1e-12), size=(n, len(p))) + 1e-300
        sizes = rng.poisson(self.length, n) + 1
        return np.array([rng.multinomial(k, x / x.sum()) for k, x in zip(sizes, own, strict=True)])


SETTINGS = {
    "one population": Setting(0.0),
    "truth .03": Setting(0.35),
    "truth .12": Setting(0.66),
    "truth .2": Setting(0.88),
    "truth .4": Setting(1.38),
    "truth .2, bursty documents": Setting(0.88, burst=30),
    "truth .2, 30 and 120 documents": Setting(0.88, n=(30, 120)),
    "truth .2, long documents": Setting(0.88, length=600),
    "truth .3, terms of their own": Setting(0.0, shared=0.7),
    "truth .2, 40 documents of rare terms": Setting(0.55, n=(40, 40), length=40, terms=5000),
}


BEFORE = {"truth .2": "68-73 % (other settings)"}


def _covers(name: str, setting: Setting) -> None:
    @case(f"domains/interval, {name}", "coverage", before=BEFORE.get(name, ""), runs=200, nightly=1000)
    def _(rng: np.random.Generator) -> bool:
        p, q = setting.populations()
        counts = [setting.documents(x, n, rng) for x, n in zip((p, q), setting.n, strict=True)]
        found = uncertainty(counts, setting.n, resamples=200, draws=19, seed=int(rng.integers(1 << 31)))
        one = found["js-divergence"]
        return bool(one.low[0, 1] <= js_divergence(p, q) + 1e-12 and js_divergence(p, q) <= one.high[0, 1])


for _name, _setting in SETTINGS.items():
    _covers(_name, _setting)


def _texts(rng: np.random.Generator, n: int, copies: int, near: bool) -> list[str]:
    setting = Setting(0.0, terms=400)
    counts = setting.documents(setting.populations()[0], n, rng)
    words = [[f"w{term}" for term in np.repeat(np.arange(400), row)] for row in counts]
    texts = [[*own[near and k > 0 :], *([f"x{k}"] * near)] for own in words for k in range(copies)]
    return [" ".join(text) for text in texts]


def _same(name: str, copies: int, near: bool = False, blocks: int = 1000) -> None:
    @case(f"domains/p, {name}", "false positives", runs=200, nightly=1000)
    def _(rng: np.random.Generator) -> bool:
        texts = {domain: _texts(rng, 40, copies, near) for domain in "ab"}
        terms = count_domains(texts, blocks=blocks)
        rows = domain_rows(terms, resamples=0, draws=99, seed=int(rng.integers(1 << 31)))
        return bool(rows.loc[rows["target"] == "gold", "p"].iloc[0] <= 0.05)


_same("one population", 1)
_same("each document twice", 2)
_same("each document twice, one word changed", 2, near=True)
_same("each document four times in 100 blocks", 4, blocks=100)
