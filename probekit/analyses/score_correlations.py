"""Do cheap scores of frozen encoders foretell their results on target tasks? Rank correlations over encoders."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from probekit.adaptation.pretraining.options import PRETRAIN
from probekit.analyses.encoders import SINGLE_TASK, encoder_scores
from probekit.analyses.glue import ENCODER, GLUE
from probekit.errors import UsageError
from probekit.metrics import metric
from probekit.rows import make_rows
from probekit.statistics.correlation import caution, relation
from probekit.statistics.multiplicity import holm

if TYPE_CHECKING:
    import pandas as pd

LEAST = 5
"""Encoders without which no correlation is computed."""
OUTPUT = "output"
ANALYSES = ("probe", "mi", "transferability")


def score_correlations(
    rows: pd.DataFrame, *, draws: int = 10_000, resamples: int = 2000, seed: int = 0
) -> pd.DataFrame:
    """Rank correlations between scores of frozen encoders and their results on target tasks, over encoders.

    A score is read at the output of an encoder, or at its last layer if the rows contain no output. It is one of

    - the main metric of a probe on the labels of the target task;
    - LogME, H-score, TransRate and mutual information with these labels;
    - the similarity to the untrained encoder on the texts of the target task, by each measure;
    - the main metric of a probe on another task, such as the depth of the syntax tree: one number for all targets.

    Parameters
    ----------
    rows : DataFrame
        Rows of :func:`probekit.train` on the target tasks, which are those of GLUE, and of :func:`probekit.probe`,
        :func:`probekit.transferability`, :func:`probekit.mi` and :func:`probekit.similarity` on the same encoders;
        rows of :func:`probekit.pretrain_encoder` say what an encoder is pretrained on. An encoder with several seeds is
        one point: the mean of its results, and the mean of its scores.
    draws, resamples, seed : int
        See :func:`probekit.statistics.correlation.relation`.

    Returns
    -------
    DataFrame
        For each ``score`` (``score_task`` for a probe on another task) and target ``task`` a row with Spearman's rank
        correlation, its interval from resampled encoders, ``p`` from permuted encoders, and ``n``, the number of
        encoders; then one with the task "glue" for the mean of these correlations over ``tasks`` targets, whose
        permutations and resamples keep the tasks of an encoder together. An encoder that is pretrained on the labels of
        a target is left out for this target, because a score may read these labels, and so from the mean. ``models``
        names the encoders. ``p_adjusted`` is corrected (Holm) over the means of all scores, and for single targets over
        all scores and targets. ``caution`` states what so few points can show.

    Raises
    ------
    UsageError
        If no score is known for five encoders with results on the same tasks, or an encoder has two values of a score.

    Notes
    -----
    A probe and a target model are evaluated on the same examples of dev, which adds to their correlation. Encoders of
    one study are related (mixtures contain the single tasks), so p-values describe these encoders.

    Examples
    --------
    >>> table = probekit.table("score-correlations", "rows/*.parquet", "runs/*/rows.parquet")  # doctest: +SKIP
    """
    results = _results(rows)
    seen = _pretrained_on(rows)
    records: list[dict[str, Any]] = []
    for (score, score_task), values in _scores(rows, list(map(str, results))):
        values = values.reindex(results.index)
        for task in values:
            values.loc[[task in seen.get(str(model), ()) for model in values.index], task] = np.nan
        values = values.loc[:, values.nunique() > 1]
        whole = values[values.notna().all(axis=1)]
        whole = whole.loc[:, whole.nunique() > 1]
        for task, x in [*((task, values[[task]].dropna()) for task in values), ("glue", whole)]:
            if len(x) < LEAST or not x.shape[1]:
                continue
            found = relation(
                x.to_numpy(), results.loc[x.index, x.columns].to_numpy(), draws=draws,
                resamples=resamples, seed=seed,
            )["spearman"]  # fmt: skip
            records.append(
                {
                    "analysis": "score-correlations", "split": "dev", "model": "", "layer": None, "target": "gold",
                    "representation": "none", "estimator": "", "metric": "spearman", "score": score,
                    "score_task": score_task, "task": task, "value": found.value, "ci_low": found.low,
                    "ci_high": found.high, "p": found.p, "exact": found.exact, "n": len(x), "tasks": x.shape[1],
                    "models": ", ".join(map(str, x.index)), "caution": caution(len(x)),
                }
            )  # fmt: skip
    if not records:
        raise UsageError(
            f"the rows contain no score of {LEAST} encoders with results on the same tasks ({len(results)} have "
            "results); give those of probekit probe, transferability, mi or similarity on the encoders, too."
        )
    made = make_rows(records)
    mean = (made["task"] == "glue").to_numpy()
    p = made["p"].to_numpy(dtype=float)
    made["p_adjusted"] = np.where(mean, holm(np.where(mean, p, np.nan)), holm(np.where(mean, np.nan, p)))
    return made


def _pretrained_on(rows: pd.DataFrame) -> dict[str, set[str]]:
    """The objectives of each encoder's pretraining."""
    pretrained = rows[rows["regime"] == PRETRAIN]
    return {str(model): set("+".join(part["trained_on"]).split("+")) for model, part in pretrained.groupby("model")}


def _results(rows: pd.DataFrame) -> pd.DataFrame:
    """The results of encoders (by name) on the tasks that all of them have."""
    scores = encoder_scores(rows)
    scores = scores[(scores["model"] != SINGLE_TASK) & ~scores["task"].isin(["wnli", "glue"])]
    kinds = scores[list(ENCODER)].drop_duplicates()
    if (twice := kinds["model"].duplicated()).any():
        model = kinds.loc[twice, "model"].iloc[0]
        raise UsageError(
            f"{model} has results in several regimes or variants, but each score only once; give the rows of one."
        )
    table = scores.pivot_table("value", "model", "task", sort=False)
    return table[[task for task in GLUE if task in table]].dropna()


def _scores(rows: pd.DataFrame, targets: list[str]) -> Iterator[tuple[tuple[str, str], pd.DataFrame]]:
    """Each score as a table of encoders and target tasks; its name and, if it is not about the target, its task."""
    found = rows[rows["analysis"].isin(ANALYSES) & (rows["target"] == "gold") & (rows["site"] != "")]
    found = _at_output(found[[not metric(name).derived for name in found["metric"]]], "", ["model", "analysis", "task"])
    main = found.groupby(["analysis", "task", "estimator"])["metric"].transform("first")
    found = found[(found["analysis"] == "transferability") | (found["metric"] == main)]
    found = found.assign(score=found["metric"].mask(found["analysis"] == "probe", "probe"))
    for column in ("estimator", "representation"):
        several = found.groupby(["score", "task"])[column].transform("nunique") > 1
        found["score"] = found["score"].mask(several, found["score"] + ", " + found[column])
    of_target = found["task"].isin(targets)
    for score, part in found[of_target].groupby("score", sort=False):
        yield (str(score), ""), _table(part, targets)
    yield from _similarities(rows, targets)
    others = found[~of_target & (found["analysis"] == "probe")]
    for (name, task), part in others.groupby(["score", "task"], sort=False):
        values = _table(part, [str(task)])
        yield (str(name), str(task)), values[[task] * len(targets)].set_axis(targets, axis=1)


def _similarities(rows: pd.DataFrame, targets: list[str]) -> Iterator[tuple[tuple[str, str], pd.DataFrame]]:
    """The similarity of each encoder to the untrained one, by measure; none if not exactly one is untrained."""
    runs = rows[rows["analysis"].isin(["train", "evaluate"])]
    untrained = set(runs["model"]) - set(runs.loc[runs["regime"] == PRETRAIN, "model"])
    if len(untrained) != 1 or "model_b" not in rows:
        return
    (first,) = untrained
    found = rows[(rows["analysis"] == "similarity") & rows["task"].isin(targets)]
    found = _at_output(_at_output(found, "", ["model", "task"]), "_b", ["model_b", "task"])
    found = found[(found["model"] == first) != (found["model_b"] == first)]
    found = found.assign(model=found["model_b"].where(found["model"] == first, found["model"]))
    for name, part in found.groupby("metric", sort=False):
        values = _table(part, targets)
        values.loc[first] = 1.0 if metric(name).alike else 0.0
        yield (f"{name} with {first}", ""), values


def _at_output(rows: pd.DataFrame, side: str, keys: list[str]) -> pd.DataFrame:
    """The rows at the output of each encoder, or at its last layer; ``side`` is the end of the columns' names."""
    place = rows[f"layer{side}"].astype("float64").fillna(-np.inf).mask(rows[f"site{side}"] == OUTPUT, np.inf)
    return rows[place == place.groupby([rows[key] for key in keys]).transform("max")]


def _table(rows: pd.DataFrame, tasks: list[str]) -> pd.DataFrame:
    """Values by encoder and task, means over seeds and splits; UsageError for two values of one."""
    same = [c for c in ("model", "task", "split", "run_seed", "step") if c in rows]
    if (
        twice := rows.duplicated(same, keep=False)
        & (rows.groupby(same, dropna=False)["value"].transform("nunique") > 1)
    ).any():
        first = rows[twice].iloc[0]
        raise UsageError(
            f"{first['model']} has several values of {first['metric']} on {first['task']} {first['split']}; give the "
            "rows of one analysis."
        )
    return rows.pivot_table("value", "model", "task", sort=False).reindex(columns=tasks)
