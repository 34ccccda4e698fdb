"""What the commands that train print: a run, its options and its metrics."""

from __future__ import annotations

import shlex
from math import ceil
from typing import TYPE_CHECKING

from probekit.cli.made import made
from probekit.cli.show import saved, say
from probekit.cli.terminal import show_table
from probekit.grid import Column, Grid

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

    from probekit.adaptation.pretraining.options import EncoderOptions
    from probekit.adaptation.runs.run import Run
    from probekit.adaptation.search.search import Search
    from probekit.rows import Result

CHANCE = {
    "most frequent class": "the most frequent class in train",
    "mean": "the mean of train",
    "unigrams": "the words' frequencies in train",
    "guess": "a random choice",
}
"""What the predictions of chance levels are called in the result."""


@made()
def train(run: Run) -> None:
    """A run's path, options and metrics; of several seeds their means."""
    from probekit.adaptation.runs.rows import slice_sentences
    from probekit.adaptation.runs.seeds import described
    from probekit.runtime import processes

    if processes()[0]:  # only the first of torchrun's processes prints
        return
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
    _labels(run.rows)
    for sentence in slice_sentences(run.rows):
        say(sentence)
    if card["layers"]:
        weights = run.rows[run.rows["kept"].astype(bool) & (run.rows["metric"] == "mix-weight")]
        say("layers: " + ", ".join(f"{n} {w:.3f}" for n, w in zip(card["layers"], weights["value"], strict=True)))
    say(f"{card['seconds']:.1f} s of training and evaluation")


@made()
def evaluate(result: Result) -> None:
    """The metrics of each task and split with their intervals."""
    from probekit.adaptation.runs.rows import REST, slice_sentences
    from probekit.rows.selection import of_all_labels

    assert result.recipe is not None
    options = result.recipe.arguments
    if "text" in options:
        from probekit.adaptation.perplexity import text_sentence

        say(text_sentence(result.rows))
        saved(result)
        return
    measured = result.rows[result.rows["against"] != REST] if "slices" in options else result.rows
    for (task, split), rows in measured.groupby(["task", "split"], sort=False):
        everything, rows = rows, of_all_labels(rows[rows["kept"].astype(bool)])
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
        _labels(everything)
    for sentence in slice_sentences(result.rows):
        say(sentence)
    saved(result)


@made()
def average(run: Run) -> None:
    """Which runs are averaged, and the metrics of their mean beside their own."""
    from probekit.rows.selection import of_all_labels

    say(run.path)
    rows, card = run.rows, run.card
    say(
        f"mean of the weights of {len(card['kept'])} of {len(card['identity']['averaged'])} runs: "
        f"{', '.join(card['kept'])}"
    )
    for row in of_all_labels(rows[rows["kept"].astype(bool) & rows["ci_low"].notna()]).to_dict("records"):
        same = (rows["metric"] == row["metric"]) & (rows["task"] == row["task"]) & (rows["split"] == row["split"])
        own = rows[same & (rows["estimator"] == "member")]["value"].astype(float)
        of_runs = f"; its runs {own.min():.4f} to {own.max():.4f}" if len(own) else ""
        task = f"{row['task']} " if card.get("also") else ""
        ends = f"[{row['ci_low']:.4f}, {row['ci_high']:.4f}]"
        say(f"{task}{row['split']} {row['metric']}: {row['value']:.4f} {ends}{of_runs}")


def _labels(rows: pd.DataFrame) -> None:
    """A table of each of several labels or numbers alone, for each split: its support and its metrics."""
    if "label" not in rows:
        return
    for (task, split), own in rows[rows["label"].notna()].groupby(["task", "split"], sort=False):
        names, lines = list(dict.fromkeys(own["metric"])), []
        for label, row in own.groupby("label", sort=False):
            values = dict(zip(row["metric"], row["value"], strict=True))
            lines.append([str(label), f"{row['support'].iloc[0]:,.0f}", *(f"{values[name]:.4f}" for name in names)])
        measured = [Column(name.removeprefix("by-label(").removesuffix(")")) for name in names]
        title = f"{task} {split}: each label alone"
        show_table(Grid([Column("label", align="left", key=True), Column("examples"), *measured], lines, title))


def _constant(rows: pd.DataFrame) -> None:
    """The metrics of the constant prediction, by task and split."""
    constant = rows[rows["estimator"].isin(("majority", "mean"))]
    if "slice" in rows and len(whole := constant[constant["slice"].isna()]):
        constant = whole
    several = constant["task"].nunique() > 1
    for (task, split, estimator), group in constant.groupby(["task", "split", "estimator"], sort=False):
        name = "most frequent class" if estimator == "majority" else "mean"
        numbers = _numbers(dict(zip(group["metric"], group["value"], strict=True)))
        say(f"{f'{task} ' if several else ''}{split}, constant prediction ({name} of train): {numbers}")


def _numbers(metrics: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {value:.4f}" for name, value in metrics.items())


@made()
def search(found: Search) -> None:
    """The best options and their metrics: mean and standard deviation over the seeds."""
    from probekit.adaptation.runs.constant import constants_of
    from probekit.adaptation.runs.seeds import described
    from probekit.adaptation.search.expected import expected_sentence

    pruned = int((found.trials["state"] == "pruned").sum())
    say(f"{len(found.trials)} trials, {pruned} of them pruned; the best on dev:")
    options = sorted(found.options.items())
    lines = [[name, f"{value:.3g}" if isinstance(value, float) else str(value)] for name, value in options]
    show_table(Grid([Column("option", align="left", key=True), Column("value", align="left")], lines))
    for sentence in described(found.rows):
        say(f"{found.rows['task'].iloc[0]} {sentence}")
    say(expected_sentence(found.rows))
    for one in constants_of(found.rows).to_dict("records"):
        constant = f"{one['value']:.4f}, constant baseline ({one['estimator']})"
        say(f"{one['task']} {one['split']} {one['metric']}: {constant}")
    assert found.path is not None
    say(f"{found.path / 'rows.parquet'}  {found.path / 'best.toml'}")


@made()
def pretrain(run: Run) -> None:
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


@made()
def pretrain_encoder(run: Run, *, options: EncoderOptions) -> None:
    """A run's path, its objectives with their results, and the next command."""
    from probekit.metrics import METRICS

    card = run.card
    say(run.path)
    say(
        f"step {card['step']:,} of {card['total_steps']:,} kept, macro average {run.metrics['macro-average']:.4f} (a "
        f"perplexity m counts as 1 - m/250); ended by {card['stopped']}, {card['seconds']:,.0f} s, learning rate "
        f"{card['learning_rate']:g}"
    )
    how = card["identity"]
    for one in card["objectives"]:
        train, dev = one["examples"]
        value = run.metrics[one["objective"]]
        share = f", {one['probability']:.0%} of the steps" if len(card["objectives"]) > 1 else ""
        cut = f"; {one['truncated'][0]:,} texts cut at {how['max_length']} pieces (--max-length)"
        passes = card["step"] * how["accumulation"] * one["probability"] / ceil(train / how["batch_size"])
        prediction, chance = one["chance"].values()
        better = METRICS[one["metric"]].sign * (value - chance) > 0
        say(
            f"  {one['objective']}: {one['metric']} {value:.4g} ({'' if better else 'no better than '}"
            f"{CHANCE[prediction]}: {chance:.4g}) on {dev:,} examples (trained on {train:,}, {passes:,.1f} passes"
            f"{share}{cut if one['truncated'][0] else ''})"
        )
    data = f" --data-dir {shlex.quote(str(options.data_dir))}" if options.data_dir else ""
    say(f"Next: probekit cache-activations --model {run.path} --task TASK{data} --split SPLIT --out CACHE.h5")
