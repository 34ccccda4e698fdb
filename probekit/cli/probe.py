"""``probekit probe``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from math import isfinite
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Annotated

import typer

from probekit.errors import UsageError

if TYPE_CHECKING:
    import pandas as pd

    from probekit.statistics.predictions import Evaluated

__all__ = ["probe_command"]


def probe_command(
    caches: Annotated[
        list[str],
        typer.Argument(
            metavar="TRAIN.h5 DEV.h5…",
            help="What is fitted and what is evaluated; several pairs at will, or a pair of quoted patterns.",
        ),
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            "--out",
            help="Write the rows: .parquet or .csv, an evidence card (.json) and each probe's word on each example "
            "(.examples.parquet) beside it.",
        ),
    ] = None,
    pooling: Annotated[
        str | None, typer.Option("--pooling", help="Which sentence vectors; the caches' first without it.")
    ] = None,
    layers: Annotated[
        str | None, typer.Option("--layers", help="Some of the layers, with commas: 0,6,final_norm.")
    ] = None,
    metrics: Annotated[
        str | None, typer.Option("--metrics", help="With commas, the main one first; the task's own without it.")
    ] = None,
    estimator: Annotated[
        str | None,
        typer.Option(
            "--estimator",
            help="logistic, mlp, k-sparse or mass-mean (difference of means); ridge for numbers.",
        ),
    ] = None,
    penalties: Annotated[
        str | None,
        typer.Option(
            "--penalties",
            help="With commas: C of logistic regression (inverse), alpha of ridge regression, weight decays of mlp, "
            "numbers of dimensions of k-sparse, shrinkages of mass-mean.",
        ),
    ] = None,
    choose_by: Annotated[
        str, typer.Option("--choose-by", help="What chooses the penalty: log-loss, or a metric.")
    ] = "log-loss",
    folds: Annotated[int, typer.Option("--folds", help="Of train, which choose the penalty.")] = 5,
    held_out: Annotated[
        float | None, typer.Option("--held-out", help="Choose the penalty on one share of train instead.")
    ] = None,
    hold_out_domains: Annotated[
        bool, typer.Option("--hold-out-domains", help="Hold out whole domains of train: templates, genres, documents.")
    ] = False,
    hold_out_types: Annotated[
        bool, typer.Option("--hold-out-types", help="Hold out whole word types of train.")
    ] = False,
    balanced: Annotated[bool, typer.Option("--balanced", help="Give all classes the same weight in the fit.")] = False,
    controls: Annotated[
        int | None,
        typer.Option(
            "--controls",
            help="Shuffled labels, and control tasks for words: how many; 10 (3 for words) without it, 0 for none.",
        ),
    ] = None,
    calibrate: Annotated[
        bool, typer.Option("--calibrate", help="Measure calibration, before and after temperature scaling.")
    ] = False,
    resamples: Annotated[int, typer.Option("--resamples", help="Of the bootstrap interval; 0 for none.")] = 1000,
    seed: Annotated[int, typer.Option("--seed", help="Of folds, controls and resamples.")] = 0,
    threads: Annotated[
        int | None, typer.Option("--threads", help="Layers fitted at a time; one a core without it.")
    ] = None,
) -> None:
    """Fit a diagnostic classifier on each layer of TRAIN.h5 and evaluate it on DEV.h5, with controls.

    Features are standardised on train, the penalty is chosen by cross-validation in train, the classifier (ridge
    regression for numbers) is fitted again on all of train, and dev is looked at once. The same is done for shuffled
    labels, and for random labels by word type where words are labelled; a bag of word pieces and the length of the
    text are probed beside the layers. Further pairs of caches, as of the same model with random weights, go into the
    same rows. A pair of patterns in quotes stands for all pairs that they match, in the order of their steps.

    Examples:

        probekit probe cola.train.h5 cola.dev.h5 --out cola.parquet

        probekit probe cola.train.h5 cola.dev.h5 random.train.h5 random.dev.h5 --out cola.parquet

        probekit probe sst2.train.h5 sst2.dev.h5 --pooling first --penalties 0.001,0.01,0.1,1,10

        probekit probe pos.train.h5 pos.dev.h5 --estimator mlp --controls 1

        probekit probe 'data_cache/cola.train.*step-*' 'data_cache/cola.dev.*step-*' --out trajectory.parquet
    """
    import pandas as pd

    from probekit.activations import ActivationCache
    from probekit.analyses.probe import probe_examples
    from probekit.cli.progress import bar
    from probekit.probes.protocol.selection import Estimator
    from probekit.rows import check_out, evidence, write_rows

    check_out(out)
    if len(caches) % 2:
        raise UsageError(f"caches come in pairs, TRAIN.h5 DEV.h5; {len(caches)} were given.")
    paths = [path for train, dev in zip(caches[::2], caches[1::2], strict=True) for path in _pairs(train, dev)]
    if estimator is not None and estimator not in list(Estimator):
        raise UsageError(f"--estimator is {', '.join(Estimator)}, not {estimator!r}.")
    began = monotonic()
    arguments = {
        "pooling": pooling,
        "layers": _words(layers),
        "metrics": _words(metrics),
        "estimator": None if estimator is None else Estimator(estimator),
        "penalties": None if penalties is None else tuple(_number(word) for word in _words(penalties) or ()),
        "choose_by": choose_by,
        "folds": folds,
        "held_out": held_out,
        "hold_out_domains": hold_out_domains,
        "hold_out_types": hold_out_types,
        "balanced": balanced,
        "controls": controls,
        "calibrate": calibrate,
        "resamples": resamples,
    }
    with ExitStack() as stack:
        opened = [stack.enter_context(ActivationCache(path)) for path in paths]
        found = []
        for train, dev in zip(opened[::2], opened[1::2], strict=True):
            with bar() as progress:
                own = probe_examples(train, dev, seed=seed, threads=threads, progress=progress, **arguments)  # type: ignore[arg-type]
            _show(own[0])
            found.append(own)
        if out is None:
            return
        seconds = monotonic() - began
        card = evidence(caches=opened, arguments=arguments, seeds={"seed": seed}, durations={"probe": seconds})
        rows = pd.concat([rows for rows, _ in found], ignore_index=True)
        typer.echo(f"{write_rows(rows, out, card)}  ({len(rows)} rows, {seconds:.1f} s)")
        for path in _write_examples([examples for _, examples in found], out):
            typer.echo(path)


def _pairs(train: str, dev: str) -> Iterator[str]:
    """TRAIN, DEV, TRAIN, DEV … of what two patterns match, in natural order; a name stands for itself."""
    from probekit.cli.patterns import expand

    one, two = expand(train), expand(dev)
    if len(one) != len(two):
        raise UsageError(f"{train} stands for {len(one)} caches and {dev} for {len(two)}; each has one to go with it.")
    for pair in zip(one, two, strict=True):
        yield from pair


def _write_examples(found: list[Evaluated], out: Path) -> list[Path]:
    """One file for each split that was evaluated, all models in it; its name says which where there are several."""
    from probekit.statistics.predictions import join

    splits: dict[tuple[str, str], list[Evaluated]] = {}
    for one in found:
        splits.setdefault((one.fits["task"].iloc[0], one.fits["split"].iloc[0]), []).append(one)
    paths = []
    for (task, split), same in splits.items():
        stem = out.stem if len(splits) == 1 else f"{out.stem}.{Path(task).stem.replace(':', '-')}-{split}"
        paths.append((join(*same) if len(same) > 1 else same[0]).write(out.with_name(f"{stem}.examples.parquet")))
    return paths


def _words(text: str | None) -> list[str] | None:
    return None if text is None else [word.strip() for word in text.split(",") if word.strip()]


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        raise UsageError(f"--penalties are numbers with commas between them, {word!r} is none.") from None


def _show(rows: pd.DataFrame) -> None:
    """A table by layer on standard output: gold labels with intervals, and beside them what noise reaches."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from probekit.metrics import METRICS
    from probekit.rows import called

    head = rows.iloc[-1]
    constant = rows["estimator"].isin(("majority", "mean")) & (rows["metric"] != "v-information")
    names: Sequence[str] = list(rows.loc[constant, "metric"].unique())
    what = called(rows[rows["layer_name"] != ""].iloc[0])
    title = f"{head['task']} {head['split']}, {what}: {head['n']:,} evaluated, {head['n_train']:,} fitted"
    controls = [name for name in ("shuffled", "control-task") if (rows["target"] == name).any()]
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0))
    table.add_column("layer", justify="right", no_wrap=True)
    for name in names:
        table.add_column(name, justify="right")
        if name == names[0]:
            table.add_column("95 % interval", justify="center", style="dim", no_wrap=True)
            for control in controls:
                table.add_column(control, justify="right", style="dim")
    table.add_column("penalty", justify="right")
    fitted = rows[(rows["layer_name"] != "") & (rows["target"] == "gold")].groupby("metric")["value"]
    lower = {name: METRICS[name].better == "lower" for name in names}
    best = {name: (fitted.min() if lower[name] else fitted.max())[name] for name in names}
    for key, part in rows.groupby(["layer_name", "representation", "estimator"], sort=False):
        layer, how, estimator = map(str, key)
        gold = part[part["target"] == "gold"]
        first, cells = gold.iloc[0], []
        for name in names:
            value, low, high = map(float, gold.loc[gold["metric"] == name, ["value", "ci_low", "ci_high"]].iloc[0])
            cells.append(f"[bold]{value:.3f}[/]" if value == best[name] and layer != "" else f"{value:.3f}")
            if name == names[0]:
                cells.append(f"{low:.3f} – {high:.3f}" if isfinite(low) else "")
                for control in controls:
                    own = part[(part["target"] == control) & (part["metric"] == name)]["value"]
                    cells.append("" if own.empty else f"{own.iloc[0]:.3f}")
        mark = " (edge)" * int(first["penalty_at_edge"]) + " not converged" * (not part["converged"].all())
        penalty = "" if first["penalty"] != first["penalty"] else f"{first['penalty']:g}{mark}"
        table.add_row(layer or (estimator if how in ("none", "word-type") else how), *cells, penalty)
    console = Console()
    console.print(f"[bold]{escape(title)}[/]", highlight=False, soft_wrap=True)
    console.print(table)
    if left_out := [f"{head[c]:,} in {c[9:]}" for c in ("left_out_train", "left_out_dev") if head[c]]:
        typer.echo(f"unlabelled, left out: {', '.join(left_out)}")
    if head["seen_in_train"]:
        typer.echo(
            f"{head['seen_in_train']:,} of dev occur in train exactly; value_unseen in the rows leaves them out."
        )
