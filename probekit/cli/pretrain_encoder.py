"""``probekit pretrain-encoder``: train a shared encoder on one or several objectives."""

from __future__ import annotations

import shlex
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.adaptation.pretraining.options import EncoderOptions
from probekit.cli.show import say

if TYPE_CHECKING:
    from probekit.adaptation.runs.run import Run

__all__ = ["pretrain_encoder"]

CHANCE = {
    "most frequent class": "the most frequent class in train",
    "mean": "the mean of train",
    "unigrams": "the words' frequencies in train",
    "guess": "a random choice",
}
"""What the predictions of chance levels are called in the result."""


def pretrain_encoder(
    *,
    model: str,
    on: tuple[str, ...],
    out: Annotated[Path, Parameter(name="--out")],
    options: Annotated[EncoderOptions, Parameter(name="*")] = EncoderOptions(),
) -> None:
    """Train a shared encoder on one or several objectives, each with a head of its own.

    Each step has a batch of one objective, which the mixture draws. The weights with the best mean validation metric
    are kept; --out becomes a model folder that every command reads, with a card of all objectives (probekit.json) and
    their metrics at each validation (rows.parquet). Run the same command again to show a finished run, or to resume an
    interrupted one after its last validation.

    Examples:

        probekit pretrain-encoder --model models/bilstm --on skip-thought:books.txt --out models/books

        probekit pretrain-encoder --model models/bilstm --on translate:multi30k-en-de,mnli,sst2 --data-dir data --out models/mixed

        probekit pretrain-encoder --model models/bilstm --on mnli,qnli --sampling proportional --steps 20000 --out models/nli

    Parameters
    ----------
    model
        The encoder to begin with: a model folder, such as an untrained one (see the page on pretraining), or hub id.
    on
        Objectives, separated by commas: language-model:CORPUS, masked-language-model:CORPUS, translate:CORPUS,
        skip-thought:CORPUS, reply:CORPUS, denoise:CORPUS, dissent:CORPUS, next-sentence:CORPUS, respond:CORPUS,
        contrast:CORPUS, or names of tasks.
    out
        Folder of the run.
    """  # noqa: E501
    import probekit
    from probekit.cli.progress import bar

    with bar() as progress:
        run = probekit.pretrain_encoder(model, list(on), out, options=options, progress=progress)
    _show(run, options.data_dir)


def _show(run: Run, data_dir: Path | None) -> None:
    """A run's path, its objectives with their results, and the next command."""
    from probekit.metrics import METRICS

    card = run.card
    say(run.path)
    say(
        f"step {card['step']:,} of {card['total_steps']:,} kept, macro average {run.metrics['macro-average']:.4f} (a "
        f"perplexity m counts as 1 - m/250); ended by {card['stopped']}, {card['seconds']:,.0f} s, learning rate "
        f"{card['learning_rate']:g}"
    )
    options = card["identity"]
    for one in card["objectives"]:
        train, dev = one["examples"]
        value = run.metrics[one["objective"]]
        share = f", {one['probability']:.0%} of the steps" if len(card["objectives"]) > 1 else ""
        cut = f"; {one['truncated'][0]:,} texts cut at {options['max_length']} pieces (--max-length)"
        passes = card["step"] * options["accumulation"] * one["probability"] / ceil(train / options["batch_size"])
        prediction, chance = one["chance"].values()
        better = METRICS[one["metric"]].sign * (value - chance) > 0
        say(
            f"  {one['objective']}: {one['metric']} {value:.4g} ({'' if better else 'no better than '}"
            f"{CHANCE[prediction]}: {chance:.4g}) on {dev:,} examples (trained on {train:,}, {passes:,.1f} passes"
            f"{share}{cut if one['truncated'][0] else ''})"
        )
    data = f" --data-dir {shlex.quote(str(data_dir))}" if data_dir else ""
    say(f"Next: probekit cache-activations --model {run.path} --task TASK{data} --split SPLIT --out CACHE.h5")
