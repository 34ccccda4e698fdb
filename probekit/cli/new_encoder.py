"""``probekit new-encoder``: write an untrained encoder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from probekit.cli.show import say
from probekit.models.words import Splitting

__all__ = ["new_encoder"]


def new_encoder(
    *,
    config: Path,
    out: Annotated[Path, Parameter(name="--out")],
    tokenizer: str | None = None,
    elmo: str | None = None,
    vocabulary: Path | None = None,
    words: Splitting = Splitting.TREEBANK,
    lower_case: bool = False,
    seed: int = 0,
) -> None:
    """Write an untrained encoder: a BiLSTM as in Bowman et al. (2018), or any model type of transformers.

    The folder is a model for every command; `probekit pretrain-encoder` trains it. The same configuration and seed
    give the same bytes.

    Examples:

        probekit new-encoder --config bilstm.json --tokenizer minilm --out models/bilstm

        probekit new-encoder --config gpt2-mini.json --tokenizer gpt2 --seed 1 --out models/mini

    Parameters
    ----------
    config
        The model's configuration, a JSON file. Its model_type is bilstm, or a type that transformers knows.
    out
        The folder to write.
    tokenizer
        A model folder or hub id, whose tokenizer is copied; for transformers, and the input "pieces" of a BiLSTM.
    elmo
        For the inputs "characters" and "elmo" of a BiLSTM: an ELMo, whose weights are copied and frozen.
    vocabulary
        For the input "words" of a BiLSTM: a text file with one word per line.
    words
        How plain text is split into words, if the model does not read word pieces.
    lower_case
        For the input "words": convert words to lower case.
    seed
        Seed of the initial weights.
    """
    import probekit

    sources = {"tokenizer": tokenizer, "elmo": elmo, "vocabulary": vocabulary}
    say(probekit.new_encoder(config, out, **sources, words=words, lower_case=lower_case, seed=seed))
