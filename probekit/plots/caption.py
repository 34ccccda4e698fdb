"""Sentences of suggested captions: what was measured on how many examples, names of curves, references."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from probekit.display import shown_label
from probekit.metrics import metric as metric_called
from probekit.metrics import within
from probekit.plots.curves import INFORMATION, RANDOM
from probekit.plots.legends import common
from probekit.plots.look import Look, one_line

if TYPE_CHECKING:
    import pandas as pd


def measured(gold: pd.DataFrame, look: Look, *, sized: bool = True) -> Iterator[str]:
    """Metrics with their tasks, splits and n (``sized``); models, estimators and representations."""
    parts = []
    for metric, of in gold.groupby("metric", sort=False):
        many = [
            look.task(str(task)) + f", {listed(part['split'].unique())}, n = {part['n'].max():,}" * sized
            for task, part in of.groupby("task", sort=False)
        ]
        parts.append(f"{one_line(str(metric))} ({'; '.join(many)})")
    yield f"{'; '.join(parts)}."
    yield from _sampled(gold, look)
    trained = gold.groupby("model", sort=False)["random"].agg(lambda random: not random.all())
    models = [
        look.shown(str(name).rsplit("/", 1)[-1]) + f", {RANDOM}" * (not some) for name, some in trained.items() if name
    ]
    estimated = gold[gold["estimator"] != ""]
    information, several = (estimated["metric"] == INFORMATION).any(), estimated["estimator"].nunique() > 1
    noun = "estimators" if information and several else "estimator" if information else "probes"
    noun = "scores" if (estimated["representation"] == "logit-lens").all() else noun
    methods = [f"{listed(map(look.shown, estimated['estimator'].unique()))} {noun}"] if len(estimated) else []
    pooled = [name for name in gold["representation"].unique() if name not in ("", "none")]
    methods += [f"{listed(pooled)} representations"] if pooled else []
    if models:
        plural = "Models" if len(models) > 1 else "Model"
        yield f"{plural}: {listed(models)}{'; ' if methods else ''}{', '.join(methods)}."


def _sampled(gold: pd.DataFrame, look: Look) -> Iterator[str]:
    """How many examples the probes were fitted on, and in how many groups the evaluated examples are resampled."""
    facts = []
    tasks = list(gold.groupby("task", sort=False))
    for column, words in (("n_train", "fitted on {} examples"), ("n_groups", "{} groups, resampled as wholes")):
        for task, part in tasks if column in gold else ():
            if part[column].notna().any():
                counts = [f"{int(n):,}" for n in sorted(part[column].dropna().unique())]
                fact = words.format(counts[0] if len(counts) == 1 else f"{counts[0]} to {counts[-1]}")
                facts.append((fact, look.task(str(task))))
    for fact in dict.fromkeys(fact for fact, _ in facts):
        of = [task for other, task in facts if other == fact]
        yield f"{first_upper(fact)}." if len(of) == len(tasks) else f"{listed(of)}: {fact}."


def curve_names(names: Iterable[str], look: Look) -> str:
    labels = [look.shown(label) for label in names]
    same = common(labels)
    return f"Curves: {'; '.join(label.removeprefix(f'{same}, ') for label in labels)}."


def compared_with(curve: pd.DataFrame, look: Look) -> Iterator[str]:
    """What rows of similarity and movement are compared with."""
    if "reference" in curve and curve["reference"].notna().any():
        references = listed(look.shown(shown_label(name)) for name in curve["reference"].dropna().unique())
        yield f"Each layer is compared with the same layer of {references}."


def metrics_of(rows: pd.DataFrame) -> str:
    return first_upper(listed(within(metric_called(str(m)).title.replace("\n", " ")) for m in rows["metric"].unique()))


def sizes_of(rows: pd.DataFrame) -> Iterator[str]:
    if rows["n"].notna().any():
        low, high = int(rows["n"].min()), int(rows["n"].max())
        yield f"n = {low:,}." if low == high else f"n from {low:,} to {high:,}."


def widest(rows: pd.DataFrame, look: Look) -> Iterator[str]:
    """How far the intervals of cells reach, which heat maps cannot draw."""
    if not {"ci_low", "ci_high"} <= set(rows) or rows["ci_low"].isna().all():
        return
    far = (rows["ci_high"] - rows["value"]).combine(rows["value"] - rows["ci_low"], max).groupby(rows["metric"]).max()
    several = len(far.dropna()) > 1
    reach = (f"{most:.2g}{f' ({one_line(str(name))})' * several}" for name, most in far.dropna().items())
    yield f"{first_upper(look.interval)}s are in the rows; none reaches farther from its value than {listed(reach)}."


def by_task(rows: pd.DataFrame, look: Look) -> Iterator[str]:
    """The n of each task, or the common one."""
    if rows["n"].nunique() < 2:
        yield from sizes_of(rows)
        return
    sizes = (
        f"{size[:-1]} ({look.task(str(task))})"
        for task, of in rows.groupby("task", sort=False)
        for size in sizes_of(of)
    )
    yield f"{'; '.join(sizes)}."


def listed(words: Iterable[str]) -> str:
    """Words as a list in a sentence."""
    *first, last = list(dict.fromkeys(map(str, words))) or [""]
    return f"{', '.join(first)}{' and ' * bool(first)}{last}"


def first_upper(words: str) -> str:
    return words[:1].upper() + words[1:]
