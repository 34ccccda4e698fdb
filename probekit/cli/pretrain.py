"""``probekit pretrain``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.adaptation.pretraining.options import PretrainOptions
from probekit.cli.show import say

if TYPE_CHECKING:
    from probekit.adaptation.runs.run import Run

__all__ = ["pretrain"]


def pretrain(
    *,
    text: tuple[Path, ...],
    out: Annotated[Path, Parameter(name="--out")],
    options: Annotated[PretrainOptions, Parameter(name="*")] = PretrainOptions(),
) -> None:
    """Train a language model on plain text: a new one and its tokenizer, or --model further.

    --out becomes a folder with the model, its language-model head, its tokenizer, a card (probekit.json) and the losses
    during training (rows.parquet). Every command reads it as a model. Perplexity and bits per byte are those of
    held-out text: the last part of each text, or --dev. Run the same command again to show a finished run, or to resume
    an interrupted one after its last evaluation.

    Examples:

        probekit pretrain --text wiki.txt,books.txt --out models/tiny

        probekit pretrain --text wiki.txt --dev wiki.valid.txt --save-at log-spaced --dtype bfloat16 --out models/tiny

        probekit pretrain --objective masked-lm --config bert-mini --text wiki.txt --out models/tiny-bert

        probekit pretrain --config gpt2-large/config.json --tokenizer gpt2 --context 512 --text wiki.txt --out models/mine

        probekit pretrain --model gpt2 --text reviews.txt --out models/gpt2-reviews

    Parameters
    ----------
    text
        UTF-8 text files, separated by commas. Each one is a document, which ends with an end-of-text piece.
    out
        Folder of the run.
    """  # noqa: E501
    import probekit
    from probekit.cli.progress import bar

    with bar() as progress:
        run = probekit.pretrain(text, out, options=options, progress=progress)
    _show(run)


def _show(run: Run) -> None:
    """A run's path, sizes, results on held-out text, and the next command."""
    card = run.card
    pieces, held = card["examples"]
    say(run.path)
    what = f"{card['head']['head']} on {pieces:,} pieces of {card['task']}"
    say(f"{card['model']}, {card['parameters']:,} weights: {what}, {card['step']:,} steps in {card['seconds']:,.0f} s")
    numbers = [f"perplexity {run.metrics['perplexity']:.2f} per piece"]
    if "bits-per-byte" in run.metrics:
        numbers.append(f"{run.metrics['bits-per-byte']:.4f} bits per byte")
    say(f"held-out text, {held:,} pieces: {', '.join(numbers)}")
    if card.get("before"):
        say(f"before the training: perplexity {card['before']['perplexity']:.2f}")
    say(f"Next: probekit cache-activations --model {run.path} --task TASK --split SPLIT --out CACHE.h5")
