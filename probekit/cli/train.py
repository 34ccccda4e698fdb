"""``probekit train`` and ``probekit evaluate``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from probekit.adaptation.options import EvaluateOptions, TrainOptions
from probekit.cli.show import saved, say

if TYPE_CHECKING:
    import pandas as pd

    from probekit.adaptation.runs.run import Run

__all__ = ["evaluate", "train"]


def train(
    *,
    task: str,
    model: str,
    out: Annotated[Path, Parameter(name="--out")],
    options: Annotated[TrainOptions, Parameter(name="*")] = TrainOptions(),
) -> None:
    """Fine-tune a model on a task, or train a task model on its frozen layers, which are cached once.

    --out becomes a folder with the weights, a card (probekit.json) and the metrics during training (rows.parquet). The
    folder of a fine-tuned encoder is a model folder that every command reads. Run the same command again to show a
    finished run, or to resume an interrupted one after its last evaluation.

    Examples:

        probekit train --task mrpc --model bert-base-uncased --out runs/mrpc

        probekit train --task mrpc --model bert-base-uncased --regime feature-extraction --out runs/mrpc-esim

        probekit train --task cola --model bert-base-uncased --save-at log-spaced --out runs/cola

        probekit train --task rte --model bert-base-uncased --seeds 5 --out runs/rte

        probekit train --task wnut17 --model roberta-base --head crf --dtype bfloat16 --out runs/wnut

        probekit train --task sst2 --model bert-base-uncased --schedule slanted-triangular --unfreezing gradual --layer-factor 0.4 --epochs 15 --out runs/ulmfit

    Parameters
    ----------
    task
        Name of a task (see *probekit tasks*), or a TOML file.
    model
        A Hub id, or a local folder with config.json and safetensors; elmo:OPTIONS,WEIGHTS or skip-thoughts:FOLDER for
        published files.
    out
        Folder of the run.
    """  # noqa: E501
    import probekit
    from probekit.cli.progress import bar
    from probekit.runtime import processes

    with bar() as progress:
        run = probekit.train(task, model, out, options=options, progress=progress)
    if not processes()[0]:  # only the first of torchrun's processes prints
        _show(run)


def _show(run: Run) -> None:
    """A run's path, options and metrics; of several seeds their means."""
    from probekit.adaptation.runs.rows import slice_sentences
    from probekit.adaptation.runs.seeds import described

    card, kept = run.card, run.card["identity"]["keep"]
    say(run.path)
    say(f"{card['task']}, {card['model']}, {card['regime']} with the head {card['head']['head']}")
    if run.runs:
        for sentence in described(run.rows):
            say(sentence)
        for one in run.runs:
            for sentence in slice_sentences(one.rows):
                say(f"seed {one.card['seeds']['seed']}, {sentence}")
        _constant(run.rows)
        say(f"{card['seconds']:.1f} s of training and evaluation")
        return
    step = f"step {card['step']} of {card['total_steps']}, kept: {kept}"
    say(f"{card['splits'][1]}: {_numbers(run.metrics)} ({step})")
    if run.test is not None:
        say(f"{card['splits'][2]}: {_numbers(run.test)}")
    _constant(run.rows)
    for sentence in slice_sentences(run.rows):
        say(sentence)
    if card["layers"]:
        weights = run.rows[run.rows["kept"].astype(bool) & (run.rows["metric"] == "mix-weight")]
        say("layers: " + ", ".join(f"{n} {w:.3f}" for n, w in zip(card["layers"], weights["value"], strict=True)))
    say(f"{card['seconds']:.1f} s of training and evaluation")


def evaluate(
    run: Path,
    /,
    *,
    options: Annotated[EvaluateOptions, Parameter(name="*")] = EvaluateOptions(),
    out: Path | None = None,
) -> None:
    """Evaluate a model that probekit train trained, on other examples.

    Prints the metrics, each except the loss with its 95 % interval over the examples (over whole sentences if words are
    tagged). The task and the model are read from where training read them.

    Examples:

        probekit evaluate runs/mrpc --split test

        probekit evaluate runs/fiction --task mnli:travel --task mnli:slate --split dev-matched --out transfer.parquet

        probekit evaluate runs/mrpc-esim --cache mrpc.test.h5

        probekit evaluate runs/mnli --task glue-diagnostic --data-dir diagnostic --by-domain

        probekit evaluate runs/cola --split dev --slices slices.toml

        probekit evaluate runs/cola --text wiki.test.tokens

    Parameters
    ----------
    run
        A run, or one of its checkpoints.
    out
        Write the rows (.parquet or .csv), with an evidence card (.json) next to them.
    """
    import probekit
    from probekit.adaptation.runs.rows import REST, slice_sentences
    from probekit.cli.progress import bar

    with bar() as progress:
        result = probekit.evaluate(run, options=options, out=out, progress=progress)
    if options.text is not None:
        from probekit.adaptation.perplexity import text_sentence

        say(text_sentence(result.rows))
        saved(result)
        return
    measured = result.rows if options.slices is None else result.rows[result.rows["against"] != REST]
    for (task, split), rows in measured.groupby(["task", "split"], sort=False):
        everything, rows = rows, rows[rows["kept"].astype(bool)]
        is_loss = rows["metric"].isin(("log-loss", "mean-squared-error"))
        names = rows["metric"].where(~is_loss, "loss")
        values = dict(zip(names, rows["value"], strict=True))
        say(f"{task} {split}, {rows['n'].iloc[0]:,} examples: {_numbers(values)}")
        for row in rows[~is_loss].to_dict("records"):
            if row["ci_low"] == row["ci_low"]:
                say(f"{row['metric']}: 95 % interval {row['ci_low']:.4f} to {row['ci_high']:.4f}")
            else:
                why = row.get("why")
                say(f"{row['metric']}: no interval{f', {why}' if isinstance(why, str) and why else ''}")
        _constant(everything)
    for sentence in slice_sentences(result.rows):
        say(sentence)
    saved(result)


def _constant(rows: pd.DataFrame) -> None:
    """The metrics of the constant prediction, by split."""
    constant = rows[rows["estimator"].isin(("majority", "mean"))]
    if "slice" in rows and len(whole := constant[constant["slice"].isna()]):
        constant = whole
    for (split, estimator), group in constant.groupby(["split", "estimator"], sort=False):
        name = "most frequent class" if estimator == "majority" else "mean"
        numbers = _numbers(dict(zip(group["metric"], group["value"], strict=True)))
        say(f"{split}, constant prediction ({name} of train): {numbers}")


def _numbers(metrics: dict[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())
