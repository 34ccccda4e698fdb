"""Tasks on one scale: choice of the layer, trees and pairs beside predictions, groups, leaderboards."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

import probekit
from probekit.analyses.scoreboard.line import MODEL, counted
from probekit.analyses.scoreboard.measure import board_rows
from probekit.analyses.scoreboard.tables import tables
from probekit.errors import DataError, UsageError
from probekit.plots.look import Look
from probekit.recipe import Read
from probekit.rows import Result, make_rows
from probekit.statistics.predictions import Predictions

ABOUT = {"analysis": "probe", "split": "dev", "representation": "mean", "estimator": "logistic", "target": "gold"}


def task(name, right, n=400, held_out=None, seed=0):
    """Rows and predictions of models: for each, the accuracy of each layer; shuffled labels are right on half."""
    rng = np.random.default_rng(seed)
    gold = rng.permutation(np.arange(n) % 2)
    fits, predicted = [], []
    for model, values in right.items():
        for layer, value in enumerate(values):
            loss = 1 - value if held_out is None else held_out[layer]
            for target, share in (("gold", value), ("shuffled", 0.5)):
                fits.append({**ABOUT, "task": name, "model": model, "layer": layer, "target": target,
                             "draw": None if target == "gold" else 0, "held_out": loss, "n": n})  # fmt: skip
                hit = rng.permutation(np.arange(n) < round(share * n))
                predicted.append(np.where(hit, gold, 1 - gold))
    table = Predictions(pd.DataFrame(fits), np.arange(n).astype(str), gold, np.array(predicted), ("accuracy",))
    rows = make_rows([{**fit, "metric": "accuracy", "value": float((p == gold).mean())}
                      for fit, p in zip(fits, predicted, strict=True)])  # fmt: skip
    return Result(rows, (table,))


def of(board, metric, **where):
    rows = board.rows[board.rows["metric"] == metric]
    for key, value in where.items():
        rows = rows[rows[key] == value]
    return rows


def test_scores_lie_between_control_and_ceiling_at_the_layer_that_train_chooses():
    board = probekit.scoreboard(task("a", {"m": [0.6, 0.9, 0.8]}, held_out=[0.5, 0.4, 0.3]), groups=("a=syntax",))
    scores = of(board, "normalised(accuracy)")
    assert scores["value"].round(3).tolist() == [0.2, 0.8, 0.6]
    assert scores["chosen"].tolist() == [False, False, True]  # not the best one on dev
    assert set(scores["group"]) == {"syntax"}
    assert of(board, "mean-normalised", group="").iloc[0]["value"] == pytest.approx(0.6)
    assert of(board, "above-control", group="syntax")["value"].item() == 1
    assert board.verdict == ("m is above the control on 1 of 1 tasks (mean 60 % of the way to the ceiling).",)


def test_models_are_ranked_and_equal_ones_are_not_told_apart():
    one = task("a", {"good": [0.9], "twin": [0.7], "other": [0.7]})
    two = task("b", {"good": [0.8], "twin": [0.61], "other": [0.6]}, seed=1)
    board = probekit.scoreboard(one, two)
    overall = of(board, "rank", task="").set_index("model")
    assert overall.loc["good", ["value", "ci_low", "ci_high"]].tolist() == [1, 1, 1]
    assert overall.loc["good", "better_than"] == "twin; other"
    assert overall.loc["twin", ["ci_low", "ci_high"]].tolist() == [2, 3]
    assert overall.loc["other", "better_than"] == ""
    assert any(text.startswith("good ") and text.endswith("than that of twin; other.") for text in board.verdict)


def test_trees_and_pairs_stand_beside_their_own_controls():
    trees = {**ABOUT, "analysis": "structural", "task": "ud", "model": "m", "metric": "uuas", "n": 50}
    rows = [trees | {"layer": None, "representation": "none", "estimator": "linear-chain", "value": 0.4}]
    for layer, value in enumerate((0.55, 0.7)):
        ends = {"value": value, "ci_low": value - 0.1, "ci_high": value + 0.1}
        rows.append(trees | {"layer": layer, "estimator": "structural-8", **ends})
        rows.append(
            trees | {"layer": layer, "estimator": "structural-8", "target": "shuffled", "draw": 0, "value": 0.3}
        )
    pairs = {**ABOUT, "analysis": "pairs", "task": "blimp", "model": "m", "metric": "accuracy", "n": 50, "level": "all"}
    whole = pairs | {"layer": None, "representation": "lm-head", "value": 0.8, "ci_low": 0.7, "ci_high": 0.9}
    lens = whole | {"layer": 0, "representation": "logit-lens", "value": 0.55, "ci_low": 0.45, "ci_high": 0.65}
    board = probekit.scoreboard(Result(make_rows(rows)), Result(make_rows([whole, lens])))
    edges = of(board, "normalised(uuas)")
    assert edges["line"].unique().tolist() == ["ud, structural"]
    assert edges["value"].round(3).tolist() == [0.25, 0.5]
    assert edges["ci_low"].round(3).tolist() == [0.083, 0.333]
    assert edges["chosen"].tolist() == [False, True]
    assert set(edges["chosen_by"]) == {"dev"}
    chosen = of(board, "normalised(accuracy)", chosen=True)
    assert chosen["representation"].tolist() == ["lm-head"]
    assert chosen["value"].item() == pytest.approx(0.6)
    assert of(board, "above-control")["value"].tolist() == [2]


@pytest.mark.parametrize(("layers", "above"), [(1, 1), (6, 0)])
def test_the_best_layer_on_dev_counts_only_if_its_interval_holds_for_all_layers(layers, above):
    """Rows of older files have no loss on held-out train; .50 [.41, .59] beside .40 is above at 95 %, not at 99.2 %."""
    trees = {**ABOUT, "analysis": "structural", "task": "ud", "model": "m", "metric": "uuas", "n": 50}
    rows = [trees | {"layer": None, "representation": "none", "estimator": "linear-chain", "value": 0.4}]
    rows += [trees | {"layer": layer, "estimator": "structural-8", "value": 0.5, "ci_low": 0.41, "ci_high": 0.59}
             for layer in range(layers)]  # fmt: skip
    board = probekit.scoreboard(Result(make_rows(rows)))
    assert of(board, "above-control", group="")["value"].item() == above
    assert of(board, "normalised(uuas)")["above"].tolist() == [bool(above)] * layers
    table = probekit.table("scoreboard", board)
    assert ("∘: not shown to be above" in str(table)) == (not above)


def test_a_leaderboard_in_the_same_order(tmp_path):
    models = {name: [0.9 - 0.08 * i] for i, name in enumerate("abcde")}
    (tmp_path / "board.csv").write_text("model,score\n" + "".join(f"{m},{90 - i}\n" for i, m in enumerate("abcde")))
    board = probekit.scoreboard(task("x", models), against=tmp_path / "board.csv")
    found = of(board, "rank-correlation").iloc[0]
    assert found["value"] == pytest.approx(1)
    assert found["n"] == 5
    assert found["p"] == pytest.approx(2 / 120)


def test_checkpoints_of_one_name_are_not_averaged_for_a_leaderboard(tmp_path):
    (tmp_path / "board.csv").write_text("model,score\na,1\nb,2\nc,3\n")
    first, last = (
        Result(one.rows.assign(checkpoint="run", step=step),
               tuple(Predictions(p.fits.assign(checkpoint="run", step=step), p.ids, p.gold, p.predicted, p.metrics)
                     for p in one.predictions))
        for step, one in ((100, task("x", {"a": [0.7]})), (200, task("x", {"a": [0.8]})))
    )  # fmt: skip
    others = task("x", {"b": [0.6], "c": [0.9]})
    with pytest.raises(UsageError, match=r"2 models of this name \(step 100; step 200\)"):
        probekit.scoreboard(first, last, others, against=tmp_path / "board.csv")
    assert len(of(probekit.scoreboard(last, others, against=tmp_path / "board.csv"), "rank-correlation")) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,score\na,1\n", "line 1: lacks the column model"),
        ("model,score\na,high\n", "line 2: the score of a is 'high'"),
        ("model,score\na,1\na,2\n", "line 3: a is listed twice"),
    ],
)
def test_mistakes_in_a_leaderboard(tmp_path, text, said):
    (tmp_path / "board.csv").write_text(text)
    with pytest.raises(DataError, match=said):  # before hours of resampling, and of anything else
        probekit.scoreboard(tmp_path / "missing.parquet", against=tmp_path / "board.csv")


def test_what_is_refused(tmp_path, caplog):
    one = task("x", {"a": [0.8]})
    board = probekit.scoreboard(one, groups=("y=syntax",))  # such as a task that could not be read
    assert "groups: there is no line y; the lines are x." in caplog.text
    assert set(board.rows["group"]) == {""}
    with pytest.raises(UsageError, match="the form TASK=GROUP"):
        probekit.scoreboard(one, groups=("x",))
    (tmp_path / "board.csv").write_text("model,score\na,1\nb,2\n")
    board = probekit.scoreboard(one, against=tmp_path / "board.csv")
    assert "1 models in common" in caplog.text
    assert len(of(board, "normalised(accuracy)")) == 1  # the rest is not lost
    assert of(board, "rank-correlation").empty
    with pytest.raises(UsageError, match="no layers to put on a scale"):
        probekit.scoreboard(Result(one.rows.assign(analysis="mi")))


def test_the_figure_shows_each_layer(tmp_path):
    board = probekit.scoreboard(task("a", {"m": [0.6, 0.9]}), task("b", {"m": [0.5, 0.7]}, seed=1))
    values = probekit.plots.board_values(board)
    assert len(values) == 4
    figure = probekit.plot("scoreboard", board, out=tmp_path / "board.png")
    [ax, _] = figure.axes
    np.testing.assert_allclose(ax.images[0].get_array(), [[20, 80], [0, 40]], atol=1e-9)
    caption = (tmp_path / "board.caption.txt").read_text()
    assert "0: the control (shuffled labels, whichever is better); 100: the best possible value." in caption
    assert "Metrics: Accuracy. n = 400." in caption


def test_a_narrow_figure_keeps_the_control_beside_the_model_and_names_tasks_in_words():
    board = probekit.scoreboard(task("a", {"m": [0.6, 0.3, *[0.5] * 6], "k": [0.5] * 8}, n=60)).rows
    line = board[board["metric"] == "normalised(accuracy)"]
    names = ["ud-relations:en_ewt, structural", "truth:neg_cities", *(f"task {i}" for i in range(20))]
    rows = pd.concat([line.assign(task=name, line=name) for name in names], ignore_index=True)
    one, other, bar = probekit.plots.board_panels(rows, width=3.3, look=Look(page=1)).axes
    assert {ax.get_title("left") for ax in (one, other)} == {"m", "k"}
    shown = [label.get_text().replace("\n", " ") for label in one.get_yticklabels()]
    assert shown[:2] == ["UD relations: EWT, structural", "Truth: cities, negated"]
    assert len(shown) == 11  # of 22; the others are on the second page
    assert "−40" in [text.get_text() for ax in (one, other) for text in ax.texts]
    assert bar._colorbar.extend == "min"


def test_means_and_their_intervals_have_the_control_of_their_own_model():
    one = task("a", {"low": [0.8]}, n=2000)
    two = task("a", {"high": [0.8]}, n=2000)
    table = two.predictions[0]
    said = table.predicted.copy()
    shuffled = np.flatnonzero(table.fits["target"] == "shuffled")
    said[shuffled] = np.where(np.arange(2000) < 1320, table.gold, 1 - table.gold)  # right on .66
    table = Predictions(table.fits, table.ids, table.gold, said, table.metrics)
    board = probekit.scoreboard(one, Result(two.rows, (table,)))
    means = of(board, "mean-normalised", group="").set_index("model")
    assert means["value"].round(3).to_dict() == {"low": 0.6, "high": pytest.approx(0.412, abs=1e-3)}
    assert (means["ci_low"] < means["value"]).all()
    assert (means["value"] < means["ci_high"]).all()


def test_two_models_of_one_name_are_refused():
    twice = Result(pd.concat([task("a", {"m": [0.8]}).rows] * 2, ignore_index=True), ())
    trees = twice.rows.assign(analysis="structural", metric="uuas")
    with pytest.raises(UsageError, match="two values for layer 0 of m"):
        probekit.scoreboard(Result(make_rows(trees)))


def test_a_control_that_only_some_tasks_have(caplog):
    board = probekit.scoreboard(task("a", {"m": [0.8]}), control="control-task")
    assert "a has no control-task; its control is shuffled labels." in caplog.text
    assert of(board, "normalised(accuracy)")["value"].round(3).tolist() == [0.6]


def two_alike(discordant, n=400):
    """Two models, the first of which is right on so many examples more."""
    gold = np.arange(n) % 2
    said = np.tile(np.where(np.arange(n) < 300, gold, 1 - gold), (2, 1))
    said[1, :discordant] = 1 - said[1, :discordant]
    fits = [{**ABOUT, "task": "a", "model": m, "layer": 0, "held_out": 0.5, "n": n} for m in ("first", "second")]
    fits += [{**fit, "target": "shuffled", "draw": 0} for fit in fits]
    table = Predictions(pd.DataFrame(fits), np.arange(n).astype(str), gold, np.concatenate([said, 1 - said]),
                        ("accuracy",))  # fmt: skip
    rows = [{**fit, "metric": "accuracy", "value": 0.7} for fit in fits]
    return Result(make_rows(rows), (table,))


@pytest.mark.parametrize(("discordant", "better"), [(4, ""), (12, "second")])
def test_four_to_none_is_no_difference(discordant, better):
    """The exact p of 4 to 0 is .125, that of 12 to 0 .0005."""
    board = probekit.scoreboard(two_alike(discordant))
    assert of(board, "rank", model="first")["better_than"].tolist() == [better, better]
    assert of(board, "rank", model="first")["ci_high"].tolist() == [1 if better else 2] * 2


def test_a_task_counts_once_however_many_lines_it_has(caplog):
    """Two representations of a are two lines; the first one counts in means, ranks and counts above the control."""
    first, other = task("a", {"m": [0.9], "k": [0.6]}), task("b", {"m": [0.6], "k": [0.9]}, seed=1)
    second = [Result(one.rows.assign(representation="max"),
                     tuple(Predictions(p.fits.assign(representation="max"), p.ids, p.gold, p.predicted, p.metrics)
                           for p in one.predictions)) for one in [task("a", {"m": [0.8], "k": [0.5]})]]  # fmt: skip
    board = probekit.scoreboard(first, *second, other)
    assert of(board, "normalised(accuracy)")["line"].unique().tolist() == ["a, mean", "a, max", "b"]
    means = of(board, "mean-normalised", group="").set_index("model")
    assert means["tasks"].tolist() == [2, 2]
    assert means["value"].round(3).tolist() == [0.5, 0.5]
    assert of(board, "above-control", group="")["tasks"].tolist() == [2, 2]
    assert set(of(board, "rank")["line"].fillna("")) == {"a, mean", "b", ""}
    assert "a counts once" in caplog.text
    assert of(board, "normalised(accuracy)", counted=True)["line"].tolist() == ["a, mean", "a, mean", "b", "b"]


def test_a_model_with_another_pooling_counts_by_its_own_line():
    first, other = task("a", {"m": [0.9]}), task("a", {"k": [0.8]})
    other = Result(other.rows.assign(representation="last"),
                   tuple(Predictions(p.fits.assign(representation="last"), p.ids, p.gold, p.predicted, p.metrics)
                         for p in other.predictions))  # fmt: skip
    means = of(probekit.scoreboard(first, other), "mean-normalised", group="").set_index("model")
    assert means["value"].round(3).to_dict() == {"m": 0.8, "k": 0.6}


def test_tasks_without_examples_are_said_to_take_the_interval_of_means(caplog):
    trees = {**ABOUT, "analysis": "structural", "task": "ud", "model": "m", "metric": "uuas", "n": 50}
    chain = {"layer": None, "representation": "none", "estimator": "linear-chain", "value": 0.4}
    probe = {"layer": 0, "estimator": "structural-8", "value": 0.55, "ci_low": 0.5, "ci_high": 0.6}
    rows = [trees | chain, trees | probe]
    board = probekit.scoreboard(task("a", {"m": [0.8]}), Result(make_rows(rows)))
    mean = of(board, "mean-normalised", group="").iloc[0]
    assert np.isnan(mean["ci_low"])
    assert "means over tasks with ud, structural have no interval" in caplog.text


def test_cells_that_are_not_above_the_control_are_marked():
    board = probekit.scoreboard(task("a", {"m": [0.9], "k": [0.5]}), task("b", {"m": [0.5], "k": [0.8]}, seed=1))
    (table, legend), _ = tables(board_rows(board.rows), {})
    marked = {line[1]: [cell.endswith("∘") for cell in line[4:]] for line in table.rows}
    assert marked == {"a": [False, True], "b": [True, False]}
    assert "∘: not shown to be above the control" in legend[0]


@pytest.mark.parametrize("among", [False, True])
def test_rows_without_their_predictions_are_refused(tmp_path, among):
    """The file beside them did not come along: said, also where another source has the same task."""
    saved = task("a", {"m": [0.9]}).save(tmp_path / "rows.parquet")
    alone = tmp_path / "alone.parquet"
    alone.write_bytes(saved.path.read_bytes())
    sources = (task("a", {"k": [0.8]}), alone) if among else (alone,)
    with pytest.raises(UsageError, match=r"alone\.parquet has rows of probe for a, dev, but not its predictions.*Bring "
                       r"alone\.examples\.parquet back"):  # fmt: skip
        probekit.scoreboard(*sources)


@pytest.mark.slow
def test_tasks_of_the_same_sentences_are_resampled_together():
    """Twenty tasks of the same answers are as one, and their mean no more certain; those of other ids are not."""

    def widths(rename):
        tasks = []
        for i in range(20):
            one = task("a", {"m": [0.8]}, n=300 - i)  # another number of examples, so that numbers alone do not tell
            e = one.predictions[0]
            ids = np.array([rename(i, name) for name in e.ids])
            fits = e.fits.assign(task=f"t{i}")
            own = Predictions(fits, ids, *same(e, 300 - i), e.metrics)
            tasks.append(of_cache(Result(one.rows.assign(task=f"t{i}"), (own,))))
        board = probekit.scoreboard(*tasks)
        mean = of(board, "mean-normalised", group="").iloc[0]
        scores = of(board, "normalised(accuracy)")
        return (mean["ci_high"] - mean["ci_low"]) / (scores["ci_high"] - scores["ci_low"]).mean()

    def same(e, n):
        gold = np.arange(n) % 2
        return gold, np.stack([np.where(np.arange(n) % 5 < 4, gold, 1 - gold), np.zeros(n, dtype=int)])

    assert 0.85 < widths(lambda i, name: f"s{name}") < 1.15
    assert 0.15 < widths(lambda i, name: f"{i}-{name}") < 0.35


def of_cache(result, folder="data", **changes):
    """The result, with other ids and groups, read from a cache of a folder."""
    [e] = result.predictions
    about = {"spec": {"task": e.task, "split": e.split}, "recipe": {"arguments": {"data_dir": folder}}}
    return Result(result.rows, (replace(e, **changes),), reads=(Read("dev.h5", "cache", "c0", about),))


def test_tasks_of_other_sentences_do_not_chain():
    """Files of one's own and GLUE all have dev-0, dev-1 …: their groups are not each other's, in whichever order."""
    rng, ids = np.random.default_rng(0), np.array([f"dev-{i}" for i in range(400)])
    made = [task(name, {"good": [0.9], "bad": [0.6]}, seed=seed) for seed, name in enumerate("ab")]
    one, two = (of_cache(result, ids=ids, groups=rng.integers(80, size=400)) for result in made)
    for sources in ((one, two), (two, one)):
        board = probekit.scoreboard(*sources)
        mean = of(board, "mean-normalised", group="", model="good").iloc[0]
        assert mean["ci_high"] - mean["ci_low"] < 0.15
        assert set(of(board, "rank", model="good")["better_than"]) == {"bad"}


def test_groups_that_another_task_joins_are_told(caplog):
    ids = np.array([f"weblog-{i}" for i in range(400)])
    one = of_cache(task("a", {"m": [0.8]}), ids=ids)
    documents = of_cache(task("b", {"m": [0.8]}), ids=ids, groups=np.arange(400) // 4)
    probekit.scoreboard(one, documents)
    assert "larger groups: a, probe (100 of 400)." in caplog.text


@pytest.mark.parametrize("value", [0.8, 0.8004])
def test_ties_in_a_layer_that_is_not_chosen_leave_the_interval_of_means(value):
    """The logit lens of layer 0 gives equal scores, which count half in rows and as wrong in predictions.

    The mean over paradigms is not exactly that over pairs where one of them has some pairs less, as in BLiMP.
    """
    about = {**ABOUT, "analysis": "pairs", "task": "mine", "model": "m", "target": "gold", "n": 200}
    head, lens = ({**about, "representation": "lm-head", "layer": None},
                  {**about, "representation": "logit-lens", "layer": 0})  # fmt: skip
    said = np.stack([np.arange(200) % 5 < 4, np.zeros(200)]).astype(int)
    gold, ids = np.ones(200, dtype=int), np.arange(200).astype(str)
    table = Predictions(pd.DataFrame([head, lens]), ids, gold, said, ("accuracy",))
    ends = {"metric": "accuracy", "level": "all", "of": ""}
    rows = make_rows([{**head, **ends, "value": value, "ci_low": 0.74, "ci_high": 0.85},
                      {**lens, **ends, "value": 0.5, "ci_low": 0.43, "ci_high": 0.57}])  # fmt: skip
    board = probekit.scoreboard(Result(rows, (table,)), task("a", {"m": [0.8]}))
    mean = of(board, "mean-normalised", group="").iloc[0]
    assert mean["value"] == pytest.approx(value - 0.2)
    assert mean["ci_low"] < mean["value"] < mean["ci_high"]


def trees(layers, shuffled):
    """Structural probes of some layers, the chain right on .3, shuffled trees as given."""
    about, n = {**ABOUT, "analysis": "structural", "task": "ud", "model": "m"}, 400
    fits = [about | {"layer": None, "representation": "none", "estimator": "linear-chain"}]
    fits += [about | {"layer": layer, "estimator": "structural-8"} for layer in range(len(layers))]
    said = [np.random.default_rng(i).permutation(np.arange(n) < round(n * v)) for i, v in enumerate((0.3, *layers))]
    table = Predictions(pd.DataFrame(fits), np.arange(n).astype(str), np.ones(n, dtype=int), np.array(said, dtype=int),
                        ("uuas",), label_names=("missing", "found"))  # fmt: skip
    every = {"metric": "uuas", "n": n}
    rows = [{**fit, **every, "value": v, "ci_low": v - 0.05, "ci_high": v + 0.05}
            for fit, v in zip(fits, (0.3, *layers), strict=True)]  # fmt: skip
    rows += [{**fit, **every, "target": "shuffled", "draw": 0, "value": v, "ci_low": v - 0.05, "ci_high": v + 0.05}
             for fit, v in zip(fits[1:], shuffled, strict=True)]  # fmt: skip
    return Result(make_rows(rows), (table,))


def test_the_interval_of_trees_does_not_depend_on_the_other_layers():
    """Layer 0 is beside shuffled trees (.4 > .3), whose error counts; layer 1 is beside the chain, or is not there."""
    alone, beside = (probekit.scoreboard(trees(*made)) for made in (([0.5], [0.4]), ([0.5, 0.6], [0.4, 0.25])))
    ends = [of(board, "normalised(uuas)", layer=0)[["ci_low", "ci_high"]].iloc[0].tolist() for board in (alone, beside)]
    assert of(beside, "normalised(uuas)")["against"].tolist() == ["shuffled-trees", "linear-chain"]
    np.testing.assert_allclose(*ends, atol=1e-12)
    assert ends[0][1] - ends[0][0] > 0.1 / 0.6  # wider than with a known control


def step(result, number):
    """The result as that of a training checkpoint."""
    [e] = result.predictions
    own = {"checkpoint": "run", "step": number}
    return Result(result.rows.assign(**own), (replace(e, fits=e.fits.assign(**own)),))


def test_steps_of_one_run_are_models_of_their_own():
    board = probekit.scoreboard(step(task("a", {"m": [0.6]}), 100), step(task("a", {"m": [0.9]}), 2000))
    assert board.verdict == (
        "m, run, step 100 is above the control on 1 of 1 tasks (mean 20 % of the way to the ceiling).",
        "m, run, step 2,000 is above the control on 1 of 1 tasks (mean 80 % of the way to the ceiling); its mean is "
        "higher than that of m, run, step 100.",
    )
    assert of(board, "rank", step=2000)["better_than"].tolist() == ["m, run, step 100"] * 2


@pytest.mark.parametrize(("layers", "ranked"), [((25, 2), False), ((3, 3), True)])
def test_models_are_not_ranked_by_the_best_of_unequally_many_layers(layers, ranked, caplog):
    result = task("a", {f"m{i}": [0.9 - 0.2 * i] * n for i, n in enumerate(layers)})
    rows, [e] = result.rows.drop(columns="held_out"), result.predictions
    board = probekit.scoreboard(Result(rows, (replace(e, fits=e.fits.drop(columns="held_out")),)))
    assert set(of(board, "normalised(accuracy)")["chosen_by"]) == {"dev"}
    assert of(board, "rank").empty != ranked
    assert ("a: dev chose the layers, of different numbers" in caplog.text) != ranked


def test_models_with_different_heads_are_ranked_by_the_score_of_each(tmp_path):
    """Causal models have log-probabilities, masked ones pseudo-log-likelihoods: two lines of one task."""
    names = {"causal": (0.9, "log-probability"), "masked": (0.7, "pll"), "poor": (0.55, "pll")}
    rng, n, results = np.random.default_rng(0), 400, []
    for name, (share, score) in names.items():
        about = {**ABOUT, "analysis": "pairs", "task": "blimp", "model": name, "layer": None,
                 "representation": "lm-head", "estimator": score, "n": n}  # fmt: skip
        said = rng.permutation(np.arange(n) < round(share * n)).astype(int)[None]
        table = Predictions(pd.DataFrame([about]), np.arange(n).astype(str), np.ones(n, dtype=int), said, ("accuracy",))
        ends = {"metric": "accuracy", "level": "all", "value": share, "ci_low": share - 0.04, "ci_high": share + 0.04}
        results.append(Result(make_rows([about | ends]), (table,)))
    (tmp_path / "board.csv").write_text("model,score,task\ncausal,3,blimp\nmasked,2,blimp\npoor,1,blimp\n")
    board = probekit.scoreboard(*results, against=tmp_path / "board.csv")
    assert of(board, "normalised(accuracy)")["line"].nunique() == 2
    assert of(board, "rank", model="causal")["better_than"].tolist() == ["masked; poor"] * 2
    assert of(board, "rank-correlation")[["value", "n"]].iloc[0].tolist() == [1, 3]


def test_naming_the_class_that_is_frequent_on_dev_is_no_knowledge():
    """The majority class of train is the rarer one on dev (.47); a probe that always names the other has .53."""
    n, about = 1000, {**ABOUT, "task": "a", "model": "m", "n": 1000, "held_out": 0.5}
    gold = (np.arange(n) < 530).astype(int)
    fits = [about | {"layer": None, "representation": "none", "estimator": "majority"}, about | {"layer": 0}]
    fits.append(fits[1] | {"target": "shuffled", "draw": 0})
    said = np.stack([np.zeros(n, dtype=int), np.ones(n, dtype=int), np.arange(n) % 2])
    table = Predictions(pd.DataFrame(fits), np.arange(n).astype(str), gold, said, ("accuracy",))
    rows = make_rows([{**fit, "metric": "accuracy", "value": float((p == gold).mean())}
                      for fit, p in zip(fits, said, strict=True)])  # fmt: skip
    row = of(probekit.scoreboard(Result(rows, (table,))), "normalised(accuracy)").iloc[0]
    assert row[["value", "control", "against"]].tolist() == [0, pytest.approx(0.53), "majority"]
    assert not row["above"]


def test_a_share_that_rounds_to_zero_is_not_minus_zero_in_the_figure():
    board = probekit.scoreboard(task("a", {"m": [0.499, 0.7]}, n=1000))
    [ax, _] = probekit.plots.board_panels(board).axes
    assert of(board, "normalised(accuracy)", layer=0)["value"].item() == pytest.approx(-0.002)
    assert [text.get_text() for text in ax.texts] == ["0", "40"]


def test_numbers_are_scored_by_the_first_metric_that_can_be_resampled():
    rng = np.random.default_rng(0)
    gold = rng.normal(size=200)
    fits = [
        {**ABOUT, "task": "where", "model": "m", "layer": i, "target": target, "draw": draw, "held_out": 1.0, "n": 200}
        for i in (0, 1) for target, draw in (("gold", None), ("shuffled", 0))
    ]  # fmt: skip
    predicted = np.array([gold * (fit["target"] == "gold") + rng.normal(size=200) for fit in fits])
    table = Predictions(pd.DataFrame(fits), np.arange(200).astype(str), gold, predicted, ("r2", "spearman"))
    rows = make_rows([{**fit, "metric": "r2", "value": 0.0} for fit in fits])
    board = probekit.scoreboard(Result(rows, (table,)), resamples=100)
    lines = board.rows[board.rows["line"] == "where"]
    assert "normalised(spearman)" in set(lines["metric"])
    assert lines["raw"].between(0.5, 0.9).all()


def test_only_defined_scores_of_a_model_count():
    rows = [
        dict.fromkeys(MODEL) | {"model": "m", "counted": at != 0, "value": v}
        for at, v in enumerate((0.9, float("nan"), 0.5))
    ]
    model = ("m", *[None] * (len(MODEL) - 1))
    assert counted(SimpleNamespace(chosen=pd.DataFrame(rows)), model) == 2
    assert counted(SimpleNamespace(chosen=pd.DataFrame(rows[:2])), model) is None
