"""The variational code of labels (Voita & Titov 2020, section 2.2.1): labels and the weights of a linear probe.

Sender and receiver share a prior of the weights. With a posterior q, bits-back coding sends labels and weights in
KL(q ‖ prior) + E_q[-ln p(labels)] nats (Hinton & van Camp 1993), which training minimises.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from scipy.special import gammaln
from torch.nn.functional import cross_entropy, softplus

from probekit.errors import UsageError
from probekit.probes.codes.online import checked_codes
from probekit.probes.solvers.design import moments
from probekit.runtime import resolve_device, torch_threads

DRAWS = 16  # from the posterior, for the reported expectation
ROWS = 8192


@dataclass(frozen=True, slots=True)
class VariationalCode:
    """The variational code of some targets.

    Attributes
    ----------
    weight_bits, label_bits : np.ndarray
        float64 (targets,), bits of the probe, and bits of the labels given the probe.
    kept : np.ndarray
        Int (targets,), number of features that the probe uses: those with log alpha < 0.
    n : int
        Number of examples.
    classes : int
        Number of classes.
    prior_bits : np.ndarray
        float64 (targets,), bits of the labels under a code that learns only the class frequencies, label by label
        (Krichevsky & Trofimov 1981).
    """

    weight_bits: np.ndarray
    label_bits: np.ndarray
    kept: np.ndarray
    n: int
    classes: int
    prior_bits: np.ndarray

    @property
    def bits(self) -> np.ndarray:
        """The code length, float64 (targets,)."""
        return self.weight_bits + self.label_bits

    @property
    def uniform_bits(self) -> float:
        """Bits of the labels under the uniform code: n log2 classes."""
        return self.n * math.log2(self.classes)

    @property
    def compression(self) -> np.ndarray:
        """Uniform code length / code length, float64 (targets,)."""
        return self.uniform_bits / self.bits


def variational_code(
    x: np.ndarray,
    Y: np.ndarray,
    *,
    classes: int | None = None,
    steps: int = 3000,
    batch: int = 1024,
    learning_rate: float = 0.05,
    seed: int = 0,
    device: str = "cpu",
) -> VariationalCode:
    """Code length of labels together with the linear probe that predicts them; all targets are trained in parallel.

    Prior and posterior are those of Louizos, Ullrich & Welling 2017 (section 4.1, group normal-Jeffreys): feature i has
    a scale z_i with p(z) ∝ 1/|z| and q(z) = N(m, α m²), its weights are z_i w_ik with p(w) = N(0, 1) and
    q(w) = N(μ, σ²). An unused feature costs nothing (α grows, its KL falls to 0), so only used features take bits.
    KL(q(z) ‖ p(z)) is the approximation of Molchanov, Ashukha & Vetrov 2017 (equation 14), which omits the constant of
    the improper prior, as all published figures do. Differences from the published implementation: m is
    parameterised by its logarithm (w carries the sign), z is drawn once per step instead of once per example, two
    classes need one column of weights instead of two, and there is no dev set: the reported value is the bound itself
    for the final posterior.

    Parameters
    ----------
    x : np.ndarray
        Float (n, d), standardised here.
    Y : np.ndarray
        Int (n,) or (n, targets), class indices, all labelled.
    classes : int, optional
        Number of classes (default: the largest index + 1).
    steps, batch, learning_rate : int or float
        Settings of Adam; the rate decays to 0 along a cosine.
    seed : int, default 0
        Seed of batches and noise.

    Raises
    ------
    UsageError
        For numeric labels, unlabelled rows, or shapes that do not match.
    """
    codes, classes = checked_codes(x, Y, classes)
    if steps < 1 or batch < 1:
        raise UsageError(f"steps and batch must be positive, not {steps} and {batch}.")
    with torch_threads(1):
        draw = torch.Generator(device := resolve_device(device)).manual_seed(seed)
        [sums] = moments(x)
        features = torch.from_numpy(((x - sums.mean) * sums.inverse_deviation).astype(np.float32)).to(device)
        labels = torch.from_numpy(codes).to(device)
        q = _posterior(len(codes), x.shape[1], 1 if classes == 2 else classes, draw)
        adam = torch.optim.Adam(q, lr=learning_rate)
        n, size = len(x), min(batch, len(x))
        for step in range(steps):
            adam.param_groups[0]["lr"] = learning_rate * (1 + math.cos(math.pi * step / steps)) / 2
            rows = torch.randint(n, (size,), generator=draw, device=device) if size < n else slice(None)
            loss = _nats(features[rows], labels[:, rows], q, draw).sum() * (n / size) + _divergence(q).sum()
            adam.zero_grad()
            (loss / n).backward()
            adam.step()
        with torch.no_grad():
            nats = torch.zeros(len(codes), dtype=torch.float64, device=device)
            for at in range(0, n, ROWS):
                for _ in range(DRAWS):
                    nats += _nats(features[at : at + ROWS], labels[:, at : at + ROWS], q, draw)
            label_bits, weight_bits = (part.cpu().numpy() / math.log(2) for part in (nats / DRAWS, _divergence(q)))
            kept = (q[1] < 0).sum(1).cpu().numpy()
    prior = np.array([_prior_bits(np.bincount(y, minlength=classes)) for y in codes])
    return VariationalCode(weight_bits.astype(np.float64), label_bits, kept, n, classes, prior)


def _prior_bits(counts: np.ndarray) -> float:
    """Bits of labels with these counts, each with probability (count so far + 1/2) / (number so far + classes/2)."""
    half = len(counts) / 2
    nats = gammaln(counts.sum() + half) - gammaln(half) - (gammaln(counts + 0.5) - gammaln(0.5)).sum()
    return float(nats / math.log(2))


def _posterior(targets: int, width: int, columns: int, draw: torch.Generator) -> list[torch.Tensor]:
    """Log m and log α of z (targets, d), μ and log σ² of w (targets, d, columns) and of the intercepts."""
    full = partial(torch.full, device=draw.device)
    weights, intercepts = (targets, width, columns), (targets, columns)
    q = [
        full((targets, width), -0.5 * math.log(width)),
        full((targets, width), -4.0),
        0.1 * torch.randn(weights, generator=draw, device=draw.device),
        full(weights, -4.0),
        full(intercepts, 0.0),
        full(intercepts, -4.0),
    ]
    return [tensor.requires_grad_() for tensor in q]


def _divergence(q: list[torch.Tensor]) -> torch.Tensor:
    """KL(q ‖ prior) in nats, (targets,)."""
    _, log_alpha, mu, log_var, bias, bias_log_var = q
    scales = 0.63576 * (1 - (1.8732 + 1.48695 * log_alpha).sigmoid()) + softplus(-log_alpha) / 2
    weights, biases = (
        (m.square() + v.exp() - v - 1).flatten(1).sum(1) / 2 for m, v in ((mu, log_var), (bias, bias_log_var))
    )
    return scales.sum(1) + weights + biases


def _nats(x: torch.Tensor, y: torch.Tensor, q: list[torch.Tensor], draw: torch.Generator) -> torch.Tensor:
    """-ln p(labels) of x (b, d) and y (targets, b) under one draw from q, summed over the examples: (targets,).

    Logits are drawn instead of weights (local reparameterisation, Kingma, Salimans & Welling 2015).
    """

    def noise(like: torch.Tensor) -> torch.Tensor:
        return torch.randn(like.shape, generator=draw, device=like.device)

    log_m, log_alpha, mu, log_var, bias, bias_log_var = q
    z = (log_m.exp() * (1 + (log_alpha / 2).exp() * noise(log_m)))[..., None]
    mean = torch.einsum("bd,tdk->tbk", x, z * mu) + bias[:, None]
    variance = torch.einsum("bd,tdk->tbk", x.square(), z.square() * log_var.exp()) + bias_log_var.exp()[:, None]
    logits = mean + variance.sqrt() * noise(mean)
    if logits.shape[2] == 1:
        return softplus(torch.where(y == 1, -logits[..., 0], logits[..., 0])).sum(1)
    return cross_entropy(logits.transpose(1, 2), y, reduction="none").sum(1)
