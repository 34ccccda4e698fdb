"""Skip-thoughts as an encoder: words in, the vectors of all prefixes out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

from probekit.errors import ModelError, UsageError
from probekit.models.encoder import Batch, Edit, Shown, Sink, Text, Tokens, edited, padded
from probekit.models.options import LoadOptions
from probekit.models.skip_thoughts.files import END, UNKNOWN
from probekit.models.skip_thoughts.model import SkipThoughtsModel
from probekit.models.transformers.encoder import prepare_packed
from probekit.models.transformers.stock import load_described
from probekit.models.words import NO_LIMIT, Splitting, read_splitting, read_words, versions
from probekit.runtime import torch_threads
from probekit.sites import Site


class WordReader:
    """Sentences to rows of the tables; the counterpart of :class:`probekit.models.transformers.tokens.Tokenizer`.

    Plain text is split with NLTK's word tokenizer, as in the original, but not into sentences first: in a text with
    several, all full stops except the last stay attached to their words. A word without a row is read as ``UNK``.

    Attributes
    ----------
    rows : dict[str, int]
        The row of each word.
    end : int, optional
        The row that ends each sentence, or None.
    """

    type_ids = False
    padding_id = 0

    def __init__(
        self, rows: dict[str, int], splitting: Splitting, max_length: int = NO_LIMIT, *, end: int | None = None
    ) -> None:
        self.rows, self.splitting, self.max_length, self.end = rows, splitting, max_length, end

    def __call__(self, texts: Sequence[Text]) -> Tokens:
        """The words of each text, and its end, which is a special piece; raises UsageError if an item is not a text."""
        found = read_words(texts, self.splitting, self.max_length - (self.end is not None))
        words, unknown = self._quoted(texts, found.words, found.length), self.rows[UNKNOWN]
        ids = np.fromiter((self.rows.get(word, unknown) for word in words), np.int32, len(words))
        after = np.cumsum(found.length) if self.end is not None else np.zeros(0, np.int64)

        def with_end(column: np.ndarray, value: Any) -> np.ndarray:
            return np.insert(column, after, value)

        token_ids = with_end(ids, self.end or 0)
        return Tokens(
            token_ids,
            found.length + (self.end is not None),
            with_end(np.zeros(len(ids), np.bool_), 1),
            np.zeros(len(token_ids), np.uint8),
            with_end(found.word_index, -1),
            with_end(found.char_start, 0),
            with_end(found.char_end, 0),
            found.truncated,
        )

    def _quoted(self, texts: Sequence[Text], words: list[str], length: np.ndarray) -> list[str]:
        """The words with quotation marks as in the tokenizer's output, `` and '', which the tables use."""
        if self.splitting is Splitting.TREEBANK and any('"' in text for text in texts):
            from nltk.tokenize import NLTKWordTokenizer

            words, split = list(words), NLTKWordTokenizer()
            for text, stop, n in zip(texts, np.cumsum(length), length, strict=True):
                if isinstance(text, str) and '"' in text:
                    words[stop - n : stop] = split.tokenize(text)[:n]
        return words


def word_reader(folder: Path, config: Any, max_length: int | None = None) -> WordReader:
    """The reader for a model folder; it truncates sentences at ``max_length`` pieces.

    Raises
    ------
    ModelError
        If vocab.txt or tokenizer_config.json does not fit the model.
    UsageError
        If ``max_length`` leaves no room for a word.
    """
    splitting, path = read_splitting(folder), folder / "vocab.txt"
    try:
        words = path.read_bytes().decode().split("\n")[:-1]
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read ({error}); convert the model again.") from error
    rows = {word: row for row, word in enumerate(words)}
    if len(words) != config.vocab_size or any(word not in rows for word in (UNKNOWN, *([END] * config.use_eos))):
        raise ModelError(
            f"{path} has {len(words)} words; expected {config.vocab_size}, including {UNKNOWN!r} and, with use_eos, "
            f"{END!r}. Convert the model again."
        )
    least = 1 + config.use_eos
    if max_length is not None and max_length < least:
        raise UsageError(f"{folder} reads {least} or more pieces, but max_length is {max_length}.")
    return WordReader(rows, splitting, max_length or NO_LIMIT, end=rows[END] if config.use_eos else None)


class SkipThoughtsEncoder(Shown):
    """An Encoder (see :mod:`probekit.models.encoder`) around a :class:`SkipThoughtsModel`.

    Layers ``uni`` and ``bi`` are the states of the two encoders after each word, ``combined`` is both concatenated. At
    the last piece (pooling ``last``) they are the published sentence vectors.
    """

    sites: tuple[Site, ...] = (Site("uni"), Site("bi"), Site("combined"))
    mixed_lengths = True

    def __init__(
        self, model: SkipThoughtsModel, tokenizer: WordReader, folder: Path, *, name: str, spec: dict[str, Any],
        batch_tokens: int,
    ) -> None:  # fmt: skip
        self.model, self.tokenizer, self.folder = model, tokenizer, folder
        self.name, self.batch_tokens, self.max_length = name, batch_tokens, tokenizer.max_length
        config = model.config
        width = config.hidden_size
        self.widths: tuple[int, ...] = (config.uni_size, 2 * config.bi_size, width)
        self.spec = spec | {"layers": [*map(str, self.sites)], "width": width, "max_length": self.max_length}
        self.versions: dict[str, Any] = {
            "torch": str(torch.__version__), "transformers": transformers.__version__,
            **versions(tokenizer.splitting),
        }  # fmt: skip

    def tokenize(self, texts: Sequence[Text]) -> Tokens:
        """Words of each text; raises UsageError if an item is not a text."""
        return self.tokenizer(texts)

    def encode(self, batch: Batch, sink: Sink, edit: Edit | None = None) -> None:
        """Run the model and call ``sink(i, hidden)`` for each site, (t, widths[i]); "combined" comes last."""
        with torch.inference_mode():
            ids = torch.from_numpy(batch.token_ids.astype(np.int64)).to(self.model.uni_words.device)
            states = self.model.run(ids, batch.length)
            uni, bi = (edited(edit, site, x) for site, x in zip(self.sites, states, strict=False))
            for i, hidden in enumerate((uni, bi, edited(edit, self.sites[2], torch.cat([uni, bi], -1)))):
                sink(i, hidden)

    @torch.inference_mode()
    def own_hidden_states(self, batch: Batch, model: SkipThoughtsModel | None = None, longest: int = 0) -> torch.Tensor:
        """The layers from the forward method of ``model`` (default: this encoder's): (3, t, 4800), padded with 0.

        On the CPU; the batch is padded on the right to at least ``longest`` pieces.
        """
        model = model or self.model
        ids, mask = (torch.from_numpy(x).to(model.uni_words.device) for x in padded(batch, longest))
        both = model(ids, mask).last_hidden_state[mask].cpu()
        uni, bi = both.split(self.widths[:2], -1)
        return torch.stack([torch.nn.functional.pad(x, (0, both.shape[-1] - x.shape[-1])) for x in (uni, bi, both)])


@torch_threads(1)
def load_skip_thoughts(model: str | Path, options: LoadOptions) -> SkipThoughtsEncoder:
    """Load a converted model; arguments and errors are those of :func:`probekit.models.loading.load_encoder`.

    Sentences run packed. With oneDNN on a CPU, results do not depend on the rest of the batch.
    """
    net, folder, spec = load_described(model, options)
    encoder = SkipThoughtsEncoder(
        net,
        word_reader(folder, net.config, options.max_length),
        folder,
        name=spec["model"],
        spec=spec,
        batch_tokens=options.batch_tokens or (1024 if spec["device"] == "cpu" else 16384),
    )
    ids = np.random.default_rng(0).integers(net.config.vocab_size, size=6).astype(np.int32)
    prepare_packed(encoder, Batch(ids, np.zeros(6, np.uint8), np.array([1, 2, 3])), onednn=options.onednn)
    return encoder
