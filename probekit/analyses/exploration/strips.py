"""One example, token by token and layer by layer."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.analyses.exploration.texts import surfaces
from probekit.errors import UsageError, did_you_mean

if TYPE_CHECKING:
    from probekit.analyses.exploration.data import SceneData

KINDS = ("norm", "distance", "unit", "logit")


@dataclass(frozen=True, eq=False)
class TokenStrip:
    """A number for each layer and token of one example.

    Attributes
    ----------
    kind : str
        "norm", "distance", "unit" or "logit".
    id : str
        The example.
    tokens : tuple of tuple of str
        For each side the tokens as they stand in the text, without special ones.
    values : tuple of np.ndarray
        For each side float32 (layers, tokens).
    note : str
        What the numbers are.
    """

    kind: str
    id: str
    tokens: tuple[tuple[str, ...], ...]
    values: tuple[np.ndarray, ...]
    note: str

    def __repr__(self) -> str:
        shapes = " and ".join(
            f"{layers} layers of {tokens} tokens" for layers, tokens in (v.shape for v in self.values)
        )
        return f"<{self.kind} of {self.id}: {shapes}>"


def token_strip(
    scene: SceneData, i: int | str, kind: str = "norm", *, unit: int | None = None, label: int | str | None = None
) -> TokenStrip:
    """A number for each layer and token of one example, on each side.

    Parameters
    ----------
    i : int or str
        Position or id of the point.
    kind : str
        "norm"; "distance" to the vector of the first side, relative to its norm; "unit", one unit; "logit", the log
        odds of a label that a probe fitted on train gives for each token.
    unit : int, optional
        For "unit".
    label : int or str, optional
        For "logit"; default: the second of two labels.

    Raises
    ------
    UsageError
        If a cache has no token vectors, or for "logit" no training cache was given.
    """
    if kind not in KINDS:
        raise UsageError(f"kind is {kind!r}; {did_you_mean(kind, KINDS)}")
    at = scene.index(i)
    tokens, vectors = _read(scene, at)
    if kind == "norm":
        found, note = (
            [_stack(np.linalg.norm(x, axis=1) for x in side) for side in vectors],
            "Norm of each token's vector.",
        )
    elif kind == "distance":
        found, note = _distances(scene, tokens, vectors)
    elif kind == "unit":
        found, note = _units(vectors, unit)
    else:
        found, note = _logits(scene, vectors, label)
    name = str(scene.ids[at]).rpartition(":")[0] if scene.tokens_unit else str(scene.ids[at])
    return TokenStrip(kind, name, tuple(tokens), tuple(found), note)


def _read(scene: SceneData, at: int) -> tuple[list[Any], list[Any]]:
    """The tokens of a point's example on each side, and their vectors in each layer; those of the last one are kept."""
    sources = scene.open_sources
    if at not in sources.strip:
        tokens, vectors = [], []
        for s, table in enumerate(sources.tokens):
            if not table.cache.spec["tokens"]:
                raise UsageError(f"{table.cache.path} has no token vectors; make it with --tokens.")
            example = np.array([sources.example_row(s, at)])
            rows, _ = table.rows(example)
            tokens.append(surfaces(table, example, [scene.text_of(at)])[0])
            vectors.append([table.vectors(name, rows).astype(np.float64) for name in sources.layers[s]])
        sources.strip.clear()
        sources.strip[at] = tokens, vectors
    return sources.strip[at]


def _stack(layers: Any) -> np.ndarray:
    return np.array(list(layers), dtype=np.float32)


def _distances(scene: SceneData, tokens: list[Any], vectors: list[Any]) -> tuple[list[np.ndarray], str]:
    if len(vectors) < 2:
        raise UsageError("a distance needs two models; the scene has one.")
    found = [np.zeros((len(vectors[0]), len(tokens[0])), dtype=np.float32)]
    for side, strings in zip(vectors[1:], tokens[1:], strict=True):
        if any(x.shape != y.shape for x, y in zip(side, vectors[0], strict=True)):
            raise UsageError(
                f"the models cut this text into {len(tokens[0])} and {len(strings)} tokens, or have vectors of another "
                "width, so there is no distance between their tokens."
            )
        found.append(
            _stack(
                np.linalg.norm(x - y, axis=1) / np.maximum(np.linalg.norm(y, axis=1), 1e-30)
                for x, y in zip(side, vectors[0], strict=True)
            )
        )
    return (
        found,
        f"Distance of each token's vector from that of {scene.sides[0].name}, divided by the norm of the latter.",
    )


def _units(vectors: list[Any], unit: int | None) -> tuple[list[np.ndarray], str]:
    widths = {x.shape[1] for side in vectors for x in side}
    if unit is None or not 0 <= unit < min(widths):
        raise UsageError(f"unit is {unit}; expected a number from 0 to {min(widths) - 1}.")
    return [_stack(x[:, unit] for x in side) for side in vectors], f"Unit {unit} of each token's vector."


def _logits(scene: SceneData, vectors: list[Any], label: int | str | None) -> tuple[list[np.ndarray], str]:
    sources = scene.open_sources
    found, numbers = [], scene.labels.dtype.kind == "f"
    c = scene.label_index(1 if label is None and len(scene.label_names) == 2 else label)
    for s, side in enumerate(vectors):
        values = []
        for layer, x in enumerate(side):
            probe = sources.discriminant(s, layer)
            if probe.coef.shape[1] != x.shape[1]:
                raise UsageError("pairs are probed by features of both texts, so a token has no logit.")
            logits = probe.logits(x)
            others = np.delete(logits, c, axis=1)
            values.append(logits[:, 0] if numbers else logits[:, c] - np.logaddexp.reduce(others, axis=1))
        found.append(_stack(values))
    if numbers:
        return found, "The probe's number for each token's vector; for mean pooling the sentence's is their mean."
    mean = (
        ", whose mean over tokens is the sentence's"
        if len(scene.label_names) == 2 and sources.pooling == "mean"
        else ""
    )
    return found, (
        f"Log odds of {scene.label_names[c]} that the linear discriminant of each layer, fitted on the vectors of "
        f"{'words' if sources.points.unit == 'words' else 'texts'} in train, gives for each token{mean}."
    )
