"""A dictionary as a map: from vectors to the activations of its features, and back.

The definitions are those of SAELens (``sae_lens/saes``), in float32 whatever the precision of the folder::

    z = normalised(x) - b_dec                                    (b_dec only if apply_b_dec_to_input)
    standard   f = relu(z W_enc + b_enc)
    jumprelu   f = relu(p) where p > threshold, else 0           p = z W_enc + b_enc
    topk       f = relu(p) for the k largest p, else 0
    gated      f = relu(exp(r_mag) z W_enc + b_mag) where z W_enc + b_gate > 0, else 0
    x ≈ restored(f W_dec + b_dec)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import torch


class Architecture(StrEnum):
    """How features become active."""

    STANDARD = "standard"
    GATED = "gated"
    JUMPRELU = "jumprelu"
    TOPK = "topk"


class Normalisation(StrEnum):
    """What is done to each vector before it is encoded; SAELens's names.

    CONSTANT_NORM scales it to the length √d; LAYER_NORM subtracts its mean and divides by its standard deviation.
    """

    NONE = "none"
    CONSTANT_NORM = "constant_norm_rescale"
    LAYER_NORM = "layer_norm"


@dataclass(frozen=True, slots=True, eq=False)
class Dictionary:
    """A dictionary of L features of vectors of d numbers.

    Attributes
    ----------
    name : str
        The name of its folder.
    architecture : Architecture
        How features become active.
    arrays : mapping of str to np.ndarray
        float32: W_enc (d, L), W_dec (L, d), b_dec (d,); b_enc (L,), or b_gate, b_mag, r_mag (L,) of gated ones;
        threshold (L,) of jumprelu.
    k : int
        Of topk, how many features are active at most.
    tanh : bool
        Whether activations are tanh(relu), not relu.
    normalisation : Normalisation
        Of each vector.
    centred : bool
        Whether the mean over the d numbers is subtracted from each vector: it was trained on a model whose writing
        weights TransformerLens had centred.
    subtracts_bias : bool
        Whether b_dec is subtracted from vectors before they are encoded.
    sized : bool
        Whether activations are multiplied by the length of the feature's row in W_dec.
    scale : np.ndarray or None
        float32 (L,), factors of the activations when they are decoded.
    model, hook : str
        The model and the place in it that it was trained on, in the words of the folder; "" if it does not say.
    digest : str
        Of the files.
    notes : tuple of str
        What the folder leaves open.
    """

    name: str
    architecture: Architecture
    arrays: Mapping[str, np.ndarray]
    k: int = 0
    tanh: bool = False
    normalisation: Normalisation = Normalisation.NONE
    centred: bool = False
    subtracts_bias: bool = True
    sized: bool = False
    scale: np.ndarray | None = None
    model: str = ""
    hook: str = ""
    digest: str = ""
    notes: tuple[str, ...] = ()
    _tensors: dict[str, torch.Tensor] = field(default_factory=dict)

    @property
    def width(self) -> int:
        """d, the numbers of a vector."""
        return self.arrays["W_enc"].shape[0]

    @property
    def latents(self) -> int:
        """L, the number of features."""
        return self.arrays["W_enc"].shape[1]

    def __getitem__(self, name: str) -> torch.Tensor:
        import torch

        if name not in self._tensors:
            self._tensors[name] = torch.from_numpy(np.ascontiguousarray(self.arrays[name]))
        return self._tensors[name]

    def read(self, x: torch.Tensor) -> torch.Tensor:
        """The vectors (n, d) that it describes: those given, centred if its model's were."""
        return x - x.mean(1, keepdim=True) if self.centred else x

    def activations(self, x: torch.Tensor) -> torch.Tensor:
        """Activations, float32 (n, L), of vectors float32 (n, d) of :meth:`read`."""
        import torch

        z = self._normalised(x)[0]
        z = z - self["b_dec"] if self.subtracts_bias else z
        if self.architecture is Architecture.GATED:
            gate = z @ self["W_enc"]
            active = gate + self["b_gate"] > 0
            return self._rectified(gate.mul_(self["r_mag"].exp()).add_(self["b_mag"])).mul_(active)
        before = torch.addmm(self["b_enc"], z, self["W_enc"])
        if self.sized:
            before.mul_(self._lengths)
        if self.architecture is Architecture.TOPK:
            values, at = before.topk(self.k, dim=1, sorted=False)
            return before.zero_().scatter_(1, at, self._rectified(values))
        if self.architecture is Architecture.JUMPRELU:
            before.mul_(before > self["threshold"])
        return self._rectified(before)

    def decoded(self, activations: np.ndarray, x: torch.Tensor) -> torch.Tensor:
        """The vectors, float32 (n, d), that activations (n, L), dense or sparse, stand for.

        ``x`` (n, d) are those that were encoded: what was normalised is restored from them.
        """
        import torch

        _, size, shift = self._normalised(x)
        decoder = self.arrays["W_dec"]
        factors = np.ones(self.latents, dtype=np.float32) if self.scale is None else self.scale
        if self.sized:
            factors = factors / np.maximum(self._lengths.numpy(), 1e-8)  # a row of zeros is never active
        if (factors != 1).any():
            decoder = decoder * factors[:, None]
        found = torch.from_numpy(np.asarray(activations @ decoder, dtype=np.float32)) + self["b_dec"]
        return found * size + shift

    def _rectified(self, before: torch.Tensor) -> torch.Tensor:
        found = before.relu_()
        return found.tanh_() if self.tanh else found

    @property
    def _lengths(self) -> torch.Tensor:
        return self["W_dec"].norm(dim=1)

    def _normalised(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """The normalised vectors (n, d), and the factors and the shifts (n, 1) that restore them."""
        zero, one = x.new_zeros((len(x), 1)), x.new_ones((len(x), 1))
        if self.normalisation is Normalisation.CONSTANT_NORM:
            size = x.norm(dim=1, keepdim=True) / self.width**0.5
            size = size.where(size > 0, one)  # a vector of zeros stays one
            return x / size, size, zero
        if self.normalisation is Normalisation.LAYER_NORM:
            mean = x.mean(1, keepdim=True)
            size = x.std(1, keepdim=True)
            return (x - mean) / (size + 1e-5), size, mean
        return x, one, zero
