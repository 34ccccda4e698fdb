"""``probekit convert``: the published files of the older encoders as model folders."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from probekit.cli.show import say
from probekit.models.options import ConvertOptions, SkipThoughtsOptions

__all__ = ["app"]

app = App("convert", help="Published files of ELMo and Skip-thoughts to model folders.")


@app.command
def elmo(
    options: Path,
    weights: Path,
    out: Path,
    /,
    *,
    how: Annotated[ConvertOptions, Parameter(name="*")] = ConvertOptions(),
) -> None:
    """ELMo's options and weights as a folder with config.json and safetensors, which every command reads as a model.

    `--model elmo:OPTIONS,WEIGHTS` does the same by itself, below data_cache/models/.

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
    """Skip-thoughts' arrays as a folder with config.json and safetensors, which every command reads as a model.

    `--model skip-thoughts:FOLDER` does the same by itself, without options, below data_cache/models/.

    Examples:

        probekit convert skip-thoughts skip-thoughts/ models/skip-thoughts

        probekit convert skip-thoughts skip-thoughts/ models/skip-thoughts-glove --vectors glove.840B.300d.txt

    Parameters
    ----------
    folder
        With uni_skip.npz, bi_skip.npz, both tables and dictionary.txt.
    out
        The folder to write.
    """
    import probekit

    say(probekit.convert(f"skip-thoughts:{folder}", out, options=how, more=more))
