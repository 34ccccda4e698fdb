"""``probekit convert``: published files of the older encoders to model folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from probekit.cli.show import say
from probekit.models.options import ConvertOptions, SkipThoughtsOptions

app = App("convert", help="Convert published ELMo, Skip-thoughts and word vector files to models.")


@app.command
def elmo(
    options: Path,
    weights: Path,
    out: Path,
    /,
    *,
    how: Annotated[ConvertOptions, Parameter(name="*")] = ConvertOptions(),
) -> None:
    """Convert ELMo's options and weights to a model folder (config.json and safetensors) that every command reads.

    `--model elmo:OPTIONS,WEIGHTS` converts them on the fly, into data_cache/models/.

    Example:

        probekit convert elmo options.json weights.hdf5 models/elmo

    Parameters
    ----------
    options
        The published options.json.
    weights
        The published weights.hdf5.
    out
        The folder to write.
    """
    import probekit

    say(probekit.convert(f"elmo:{options},{weights}", out, options=how))


@app.command
def skip_thoughts(
    folder: Path,
    out: Path,
    /,
    *,
    how: Annotated[ConvertOptions, Parameter(name="*")] = ConvertOptions(),
    more: Annotated[SkipThoughtsOptions, Parameter(name="*")] = SkipThoughtsOptions(),
) -> None:
    """Convert Skip-thoughts' arrays to a model folder (config.json and safetensors) that every command reads.

    `--model skip-thoughts:FOLDER` converts them on the fly, with default options, into data_cache/models/.

    Examples:

        probekit convert skip-thoughts skip-thoughts/ models/skip-thoughts

        probekit convert skip-thoughts skip-thoughts/ models/skip-thoughts-glove --vectors glove.840B.300d.txt

    Parameters
    ----------
    folder
        The folder with uni_skip.npz, bi_skip.npz, both tables and dictionary.txt.
    out
        The folder to write.
    """
    import probekit

    say(probekit.convert(f"skip-thoughts:{folder}", out, options=how, more=more))


@app.command
def vectors(
    file: Path, out: Path, /, *, how: Annotated[ConvertOptions, Parameter(name="*")] = ConvertOptions()
) -> None:
    """Convert word vectors (word2vec, GloVe, fastText) to a model folder with one layer that every command reads.

    `--model vectors:FILE` converts them on the fly, into data_cache/models/.

    Example:

        probekit convert vectors glove.6B.300d.txt models/glove --words blanks

    Parameters
    ----------
    file
        Text or binary, of word2vec or fastText, or GloVe's text.
    out
        The folder to write.
    """
    import probekit

    say(probekit.convert(f"vectors:{file}", out, options=how))
