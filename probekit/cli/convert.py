"""``probekit convert``: the published files of the older encoders as model folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["app"]

app = typer.Typer(no_args_is_help=True, help="Published files of ELMo and Skip-thoughts to model folders.")

Words = Annotated[
    str,
    typer.Option("--words", help="How plain text is cut into words: treebank (as NLTK does), or blanks (cut already)."),
]
Out = Annotated[Path, typer.Argument(metavar="OUT", help="The folder to write.")]


@app.command("elmo")
def elmo_command(
    options: Annotated[Path, typer.Argument(metavar="OPTIONS", help="The published options.json.")],
    weights: Annotated[Path, typer.Argument(metavar="WEIGHTS", help="The published weights.hdf5.")],
    out: Out,
    words: Words = "treebank",
) -> None:
    """ELMo's options and weights as a folder with config.json and safetensors, which every command reads as a model.

    `--model elmo:OPTIONS,WEIGHTS` does the same by itself, below data_cache/models/.

    Example:

        probekit convert elmo options.json weights.hdf5 models/elmo
    """
    from probekit.models.elmo.files import convert_elmo

    typer.echo(str(convert_elmo(options, weights, out, splitting=_splitting(words))))


@app.command("skip-thoughts")
def skip_thoughts_command(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="With uni_skip.npz, bi_skip.npz, both tables and dictionary.txt.")
    ],
    out: Out,
    words: Words = "treebank",
    eos: Annotated[bool, typer.Option("--eos", help="Read an end-of-sentence after each sentence.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Leave vectors as long as they are.")] = False,
    vectors: Annotated[
        Path | None,
        typer.Option("--vectors", help="word2vec or GloVe as text: words of it are added by linear regression."),
    ] = None,
) -> None:
    """Skip-thoughts' arrays as a folder with config.json and safetensors, which every command reads as a model.

    `--model skip-thoughts:FOLDER` does the same by itself, without options, below data_cache/models/.

    Examples:

        probekit convert skip-thoughts skip-thoughts/ models/skip-thoughts

        probekit convert skip-thoughts skip-thoughts/ models/skip-thoughts-glove --vectors glove.840B.300d.txt
    """
    from probekit.models.skip_thoughts.files import convert_skip_thoughts

    done = convert_skip_thoughts(
        folder, out, splitting=_splitting(words), use_eos=eos, normalise=not raw, vectors=vectors
    )
    typer.echo(str(done))


def _splitting(words: str) -> str:
    from probekit.errors import UsageError
    from probekit.models.words import Splitting

    if words not in set(Splitting):
        raise UsageError(f"words is {words!r}; it is one of {', '.join(Splitting)}.")
    return words
