"""Features of a sparse dictionary in place of the vectors of a cache (``--through``)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from probekit.activations import ActivationCache
from probekit.activations.foreign.names import site_of
from probekit.activations.pooling import Pooling, TokenLevel
from probekit.activations.tokens import TokenReader
from probekit.analyses.options import VectorOptions
from probekit.analyses.verdict.dictionaries import described
from probekit.dictionaries import Dictionary, Features, Reconstruction, encode, pooled, read_dictionary
from probekit.errors import UsageError
from probekit.notes import logger
from probekit.probes.solvers.attention import Sequences
from probekit.probes.spans import span_vectors
from probekit.recipe import Read
from probekit.sites import RESID_PRE, RESIDUAL, Site

log = logger(__name__)

ONE_PIECE = ("first", "last", "sentence:cls", "sentence:lasttoken")
"""Poolings whose vector is that of a single piece."""
OF_PIECES = {
    Pooling.MEAN: (TokenLevel.PIECE, TokenLevel.WORD_PIECES),
    Pooling.MAX: (TokenLevel.PIECE, TokenLevel.WORD_PIECES),
    Pooling.MEAN_ALL: (TokenLevel.PIECE,),
}
"""Poolings of the features of pieces, and the token vectors that a cache must hold for them."""
ALIASES = {"gpt2-small": "gpt2"}
"""Names of TransformerLens for models that are called otherwise on the hub."""
LITTLE = 0.5
"""The share of variance that a dictionary must explain for its features to be read without a warning."""


@dataclass(slots=True)
class Coding:
    """The dictionary of an analysis for one cache: makes features of its vectors, and says how well they fit.

    Attributes
    ----------
    dictionary : Dictionary
        The map.
    cache : ActivationCache
        Whose vectors are read.
    layer : str
        Their layer, or site.
    found : dict
        What was encoded last.
    """

    dictionary: Dictionary
    cache: ActivationCache
    layer: str
    found: dict[str, Any] = field(default_factory=dict)

    def named(self, how: str) -> str:
        """The representation in rows."""
        return f"{how} sae:{self.dictionary.name}"

    def texts(self, pooling: str) -> Features:
        """Features of texts: of the one piece that the pooling takes, or pooled over the features of the pieces."""
        if pooling in ONE_PIECE:
            each = 1 + (self.cache.spec["pairs"] == "separate")
            return self._kept(encode(self.dictionary, self.cache.layer(self.layer, pooling), each=each))
        level = self.cache.spec["tokens"]
        if level not in OF_PIECES.get(pooling, ()):  # type: ignore[call-overload]
            single = [name for name in self.cache.poolings if name in ONE_PIECE]
            some = f"give --pooling {single[0]}, which takes one piece" if single else "or cache with --pooling last"
            if pooling in set(OF_PIECES):
                need = "Cache it with --tokens, so that the features of the pieces can be pooled"
            else:
                need = "Take --pooling mean of a cache with --tokens"
            raise UsageError(
                f"{self.cache.path}: a dictionary describes the vector of a single piece, and the features of a pooled "
                f"vector ({pooling}) are not the pooled features. {need}; {some}."
            )
        reader = TokenReader(self.cache, [self.layer])
        length = reader.length.reshape(len(reader.length), -1)
        start = reader.start.reshape(length.shape)
        rows = np.repeat(start - (np.cumsum(length) - length.reshape(-1)).reshape(length.shape), length.reshape(-1))
        row = rows + np.arange(int(length.sum()))
        of = np.repeat(np.arange(length.size), length.reshape(-1))
        if pooling != Pooling.MEAN_ALL:
            inner = ~reader.special[row]
            row, of = row[inner], of[inner]
        pieces, fit = encode(self.dictionary, self.cache.tokens(self.layer).values, row)
        count = np.bincount(of, minlength=length.size)
        texts = pooled(pieces, count, largest=pooling == Pooling.MAX)
        return self._kept((texts.reshape((len(length), -1)).tocsr(), fit))

    def words(self) -> Features:
        """Features of words: of their first pieces."""
        if self.cache.spec["tokens"] == TokenLevel.WORD_MEAN:
            raise self._of_means("words")
        return self._kept(encode(self.dictionary, self.cache.layer_words(self.layer)))

    def spans(self, first: np.ndarray, last: np.ndarray, *, mean: bool) -> Any:
        """Features of spans: of their ends, side by side, or the mean over their rows."""
        if self.cache.spec["tokens"] == TokenLevel.WORD_MEAN:
            raise self._of_means("spans")
        values = self.cache.tokens(self.layer).values
        used = np.zeros(len(values) + 1, dtype=np.int64)
        if mean:
            np.add.at(used, first, 1)
            np.add.at(used, last + 1, -1)
            used = np.cumsum(used)
        else:
            used[first], used[last] = 1, 1
        rows = np.flatnonzero(used)
        features = self._kept(encode(self.dictionary, values, rows))
        at = np.cumsum(used > 0) - 1
        return span_vectors(features, at[first], at[last], mean=mean)  # type: ignore[arg-type]

    def pieces(self, row: np.ndarray, start: np.ndarray, length: np.ndarray) -> Sequences:
        """Features of all pieces of texts; arguments as for :class:`Sequences`."""
        if self.cache.spec["tokens"] == TokenLevel.WORD_MEAN:
            raise self._of_means("texts")
        features = self._kept(encode(self.dictionary, self.cache.tokens(self.layer).values, row))
        return Sequences(features, np.arange(len(row)), start, length)

    def _of_means(self, what: str) -> UsageError:
        return UsageError(
            f"{self.cache.path} holds means over the pieces of each word, and a dictionary describes single pieces: "
            f"the features of a mean are not the mean of the features. Cache the {what} with --tokens and "
            "--token-level word-first."
        )

    def _kept(self, made: tuple[Any, Reconstruction]) -> Features:
        sparse, fit = made
        spec, sae = self.cache.spec, self.dictionary
        self.found = {
            "dictionary": f"sae:{sae.name}", "unexplained": fit.unexplained, "active": fit.active, "dead": fit.dead,
            "latents": fit.latents,
        }  # fmt: skip
        if not fit.unexplained < LITTLE:
            log.warning(
                "%s: %s. Such features say little about the layer. Is it the model, the layer and the scale that the "
                "dictionary was trained on? %s", spec["task"], described({**self.found, "split": spec["split"]}), HINT,
            )  # fmt: skip
        return Features(sparse)


HINT = (
    "Some are of models with centred writing weights, which the folder need not say: add "
    '"model_from_pretrained_kwargs": {"center_writing_weights": true} to a copy of its cfg.json.'
)


def coding_of(cache: ActivationCache, options: VectorOptions) -> Coding | None:
    """The dictionary of an analysis for a cache; None without one.

    Raises
    ------
    UsageError
        If it belongs to another model or layer and the options do not name one, or to a layer that the cache lacks.
    """
    if (folder := options.dictionary) is None:
        return None
    sae = read_dictionary(folder)
    for note in sae.notes:
        log.warning("sae:%s %s.", sae.name, note)
    own, why = _own_layer(sae, cache)
    if options.layers is None:
        if why:
            raise UsageError(f"{cache.path}: sae:{sae.name} {why}. --layers names the layer to read all the same.")
        return Coding(sae, cache, own)
    names = list(dict.fromkeys(cache.layer_names(options.layers)))
    if len(names) != 1:
        raise UsageError(f"a dictionary describes one layer, and --layers names {len(names)}; name one.")
    if why or names[0] != own:
        log.warning(
            "%s: sae:%s %s; layer %s is read, as --layers asks.", cache.path, sae.name,
            why or f"belongs to layer {own}", names[0],
        )  # fmt: skip
    return Coding(sae, cache, names[0])


def _own_layer(sae: Dictionary, cache: ActivationCache) -> tuple[str, str]:
    """The layer of the cache that a dictionary belongs to, and why that is not so, or not known."""
    if not sae.model or not sae.hook:
        return "", f"does not say to which {'model' if sae.hook else 'layer'} it belongs"
    if _plain(sae.model) != _plain(str(cache.spec["model"])):
        return "", f"belongs to the model {sae.model}, and the cache to {cache.spec['model']}"
    if (site := site_of(sae.hook)) is None:
        return "", f"belongs to {sae.hook}, which is no site that probekit knows"
    layer = str(Site(RESIDUAL, site.layer) if site.name == RESID_PRE else site)  # what enters block l is layer l
    if layer not in cache.layers:
        return "", f"belongs to layer {layer} ({sae.hook}), and the cache holds {', '.join(cache.layers)}"
    return layer, ""


def _plain(model: str) -> str:
    name = model.rstrip("/").rpartition("/")[2].lower()
    return ALIASES.get(name, name)


def read_of_dictionary(options: VectorOptions) -> tuple[Read, ...]:
    """The entry of a dictionary in a card; () without one."""
    if (folder := options.dictionary) is None:
        return ()
    sae = read_dictionary(folder)
    return (Read(str(folder), "dictionary", sae.digest, {"model": sae.model, "hook": sae.hook}),)


def without_dictionary(options: VectorOptions, analysis: str) -> None:
    """Raise UsageError if an analysis that reads the vectors themselves was asked for features."""
    if options.through is not None:
        raise UsageError(
            f"{analysis} reads the vectors themselves; leave out --through. probe, units, mi, mdl and transferability "
            "read the features of a dictionary."
        )
