"""The eigenvectors of the features' Gram matrix, in which problems on the same features have similar Hessians."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from probekit.probes.solvers.design import Design, product
from probekit.statistics.moments import Moments

FEW = 8  # strongest directions that are checked for a row with half of their power


@dataclass(frozen=True, slots=True)
class Basis:
    """Eigenvectors (d, r) and eigenvalues (r,) of the scaled features' Gram matrix; rows count as one more feature.

    Directions in which no row varies are left out, because no weight grows along them.

    Attributes
    ----------
    lost : float
        The curvature below which directions are indistinguishable from rounding; 0 if there are none.
    """

    vectors: torch.Tensor
    values: torch.Tensor
    scale: torch.Tensor
    rows: float
    lost: float

    @classmethod
    def of(cls, design: Design, sums: Moments) -> Basis:
        scale = torch.as_tensor(design.factors, dtype=torch.float64, device=design.device)
        gram = torch.as_tensor(sums.scatter, dtype=torch.float64, device=design.device) * scale * scale[:, None]
        values, vectors = torch.linalg.eigh(gram)
        noise = 1e-12 if design.dtype == torch.float64 else 1e-8
        top = float(values[-1].clamp_min(torch.finfo(torch.float64).tiny))
        uncertain = lost(gram.diagonal(), values, top, design.dtype)
        if design.dtype == torch.float64:
            kept = values > noise * top
            values, vectors = values[kept], vectors[:, kept]
        return cls(vectors, values.clamp_min(noise * top), scale, sums.weight, uncertain)

    def sound(self, design: Design, penalty: float) -> bool:
        """Whether this basis suits problems of at least this penalty, whose Hessians resemble the Gram matrix.

        They do not if the basis is not complete, or if one row has half the power of a direction: once its label is
        fitted with certainty, it contributes none.
        """
        if not self.complete(design, penalty):
            return False
        if not self.rank:
            return True
        top = float(self.values[-1])
        if top <= min(0.25 * float(self.values.sum()), 1e4 * float(self.values.median())):
            return True
        seen = (self.vectors[:, -FEW:] * self.scale[:, None]).T.to(design.dtype).contiguous()
        most = self.values.new_zeros(len(seen))
        for _, block in design.blocks():
            most = torch.maximum(most, product(seen, block).double().square().amax(1))
        large = self.values[-FEW:] > 0.01 * top
        return bool((most <= 0.5 * self.values[-FEW:])[large].all())

    def complete(self, design: Design, penalty: float) -> bool:
        """Whether problems of at least this penalty need no direction that is lost in rounding."""
        # for directions that are left out, and for overestimated ones
        reach = 1e7 * self.rows if design.dtype == torch.float64 else 0.01
        return bool(np.isfinite(self.lost)) and self.lost * reach <= penalty

    @property
    def rank(self) -> int:
        return len(self.values)

    @property
    def curvature(self) -> torch.Tensor:
        """The curvature of each direction and, last, of the intercept if p(1 - p) were 1: (r + 1,)."""
        return torch.cat([self.values, self.values.new_tensor([self.rows])])

    def outside(self, a: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Weights on x - centre (p, k, d) and intercepts (p, k) of coordinates (p, k, r + 1)."""
        return (a[..., :-1] @ self.vectors.T) * self.scale, a[..., -1].contiguous()

    def inside(self, weights: torch.Tensor, intercepts: torch.Tensor) -> torch.Tensor:
        unscaled = torch.where(self.scale > 0, weights / self.scale.clamp_min(1e-300), 0.0)
        return torch.cat([unscaled @ self.vectors, intercepts[..., None]], -1)


def lost(power: torch.Tensor, values: torch.Tensor, top: float, dtype: torch.dtype) -> float:
    """``Basis.lost`` from the features' squares (d,) and the ascending eigenvalues (d,); infinite for invalid sums."""
    live = power[power > 0]
    if not len(live) or not bool(values.isfinite().all()):
        return 0.0 if bool(values.isfinite().all()) else np.inf
    floor = len(values) * torch.finfo(torch.float64).eps * top  # below it, even exact sums show no direction
    noise = 1e-12 * top if dtype == torch.float64 else 1e-8 * top
    if float(values[0]) < -10 * noise or float(power.min()) < -noise:
        return np.inf
    if dtype == torch.float64:
        graded = bool(((values > floor) & (values < noise)).any()) or float(live.min()) < 1e-10 * float(live.max())
    else:
        graded = int((values < noise).sum()) > len(power) - len(live)
    return noise if graded else 0.0
