"""Whether a kept probe still holds: each answer once, exit statuses, groups, and what cannot be paired.

A model is a file of word vectors and a text is one word, so each example has the vector that the test gives it.
"""

from __future__ import annotations

import json

import numpy as np
import pytest
import tiny

import probekit
from probekit.analyses.recheck.changes import _reach
from probekit.analyses.recheck.decision import Answer, Change, Finding, answer, more_examples
from probekit.analyses.recheck.sentences import sentences
from probekit.cli import main
from probekit.errors import ModelError, UsageError
from probekit.tasks.task import Example, Split, Task, TaskKind

QUICK = {"resamples": 200, "device": "cpu"}
N, COPIES = 1200, 6
TASK = """
name = "words"
type = "classification"
text = "text"
label = "label"
{group}
labels = ["no", "yes"]
metrics = ["accuracy"]
[splits]
train = "train.tsv"
dev = "dev.tsv"
few = "few.tsv"
"""


def vectors(path, x):
    """Word vectors as a file: word i has row i."""
    lines = [f"w{i} {' '.join(f'{v:.7g}' for v in row)}" for i, row in enumerate(x)]
    path.write_text("\n".join([f"{len(x)} {x.shape[1]}", *lines]) + "\n")
    return f"vectors:{path}"


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A task, a probe of it, and the vectors of other models."""
    folder, rng = tmp_path_factory.mktemp("recheck"), np.random.default_rng(0)
    y = np.arange(2 * N) % 2
    x = rng.normal(size=(2 * N, 6))
    x[:, 0] += 2 * y
    parts = {"train": range(N), "dev": range(N, 2 * N), "few": range(N, N + 40)}
    for name, of in parts.items():
        lines = [f"w{i}\t{('no', 'yes')[y[i]]}\t{i // (2 * COPIES)}.{y[i]}" for i in of]
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel\tfamily", *lines]) + "\n")
    (folder / "words.toml").write_text(TASK.format(group=""))
    (folder / "families.toml").write_text(TASK.format(group='groups = "family"'))
    noise = rng.normal(size=x.shape)
    models = {"old": x, "rounded": x + 0.002 * noise, "moved": x + np.eye(6)[0], "lost": 0.3 * x + noise}
    found = {name: vectors(folder / f"{name}.txt", of) for name, of in models.items()}
    made = [
        probekit.cache_activations(found["old"], folder / "words.toml", split, out=folder / f"{split}.h5")
        for split in ("train", "dev")
    ]
    probekit.probe(*made, controls=0, resamples=200, groups="none", keep=folder / "kept")
    return folder, found


def recheck(here, name, task="words.toml", **how):
    folder, models = here
    return probekit.recheck(folder / "kept", folder / task, model=models[name], before=models["old"], **QUICK, **how)


def only(result, name):
    [row] = result.rows[result.rows["metric"] == name].to_dict("records")
    return row


@pytest.mark.parametrize(
    ("name", "split", "expected"),
    [
        ("rounded", None, "pass"), ("moved", None, "threshold stale"), ("lost", None, "degraded"),
        ("rounded", "few", "inconclusive"),
    ],
)  # fmt: skip
def test_each_answer(here, name, split, expected):
    result = recheck(here, name, split=split)
    assert set(result.rows["answer"]) == {expected}
    assert result.verdict[0].startswith(f"words: {expected}: ")
    at = only(result, "difference(false-positives-at-threshold)")
    assert at["before"] == pytest.approx(0.05, abs=0.06)
    more = result.rows["more"].iloc[0]
    assert (more > 40) == (expected == "inconclusive")
    assert ("kept-threshold" in set(result.rows["metric"])) == (expected == "threshold stale")
    if expected == "threshold stale":
        new, known = only(result, "kept-threshold"), probekit.load_probe(here[0] / "kept").threshold(0.05)
        assert new["value"] == pytest.approx(known + only(result, "score-shift")["value"], rel=0.02)
        assert new["rate_low"] < 0.05 < new["rate_high"]
        assert only(result, "score-correlation")["value"] == pytest.approx(1)
        assert only(result, "difference(auroc)")["finding"] == "holds"
        assert "a new threshold, " in result.verdict[1]
    if expected == "degraded":
        assert only(result, "difference(auroc)")["ci_high"] < -0.02
        assert only(result, "changed-decisions")["value"] > 0.1


def test_groups_are_units(here, tmp_path):
    """Six near copies of each example say no more than one: what holds for them alone is open for them as groups."""
    folder, _ = here
    rng = np.random.default_rng(3)
    of, noise = np.arange(2 * N) // (2 * COPIES) * 2 + np.arange(2 * N) % 2, rng.normal(size=(2 * N, 6))
    x = rng.normal(size=(2 * N, 6))[of] + 0.001 * noise
    x[:, 0] += 2 * (np.arange(2 * N) % 2)
    old, new = (vectors(tmp_path / f"{i}.txt", x + i * 0.002 * noise) for i in (0, 1))
    found = []
    for task in ("words", "families"):
        made = [
            probekit.cache_activations(model, folder / f"{task}.toml", "dev", out=tmp_path / f"{task}.{i}.h5")
            for i, model in enumerate((old, new))
        ]
        result = probekit.recheck(folder / "kept", made[1], before=made[0], resamples=200)
        found.append(only(result, "difference(false-positives-at-threshold)"))
    alone, grouped = found
    assert alone["value"] == grouped["value"]
    assert grouped["ci_high"] > 2 * alone["ci_high"]
    assert (alone["finding"], grouped["finding"]) == ("holds", "open")


def test_exit_status_and_files(here, capsys):
    folder, models = here
    line = [
        "recheck",
        str(folder / "kept"),
        str(folder / "words.toml"),
        "--resamples",
        "200",
        "--before",
        models["old"],
    ]
    out = folder / "rows.csv"
    assert main([*line, "--model", models["rounded"], "--out", str(out)]) == 0
    assert "words: pass: accuracy" in " ".join(capsys.readouterr().out.split())
    read = probekit.read(out)
    assert read.rows["answer"].iloc[0] == "pass"
    assert [*sentences(read.rows, ())] == [
        line.removeprefix("words: ").removesuffix(".") for line in read.card["verdict"]
    ]
    [(grid, _)] = read.grids()
    assert grid.title.endswith("pass, 1,200 examples")
    assert main([*line, "--model", models["moved"], "--json"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert (found["answer"], found["passed"]) == ("threshold stale", False)
    assert found["rows"][0]["finding"]
    assert main([*line, "--model", models["rounded"], "--split", "few"]) == 1
    capsys.readouterr()
    assert main([*line, "--margin", "-1"]) == 2
    assert "margin" in capsys.readouterr().err


def test_caches_of_both_readings(here, tmp_path):
    folder, models = here
    new = probekit.cache_activations(models["moved"], folder / "words.toml", "dev", out=tmp_path / "new.h5")
    result = probekit.recheck(folder / "kept", new.path, before=folder / "dev.h5", resamples=200)
    assert result.rows["answer"].iloc[0] == "threshold stale"
    assert result.rows["unpaired"].iloc[0] == ""
    with pytest.raises(UsageError, match="leave out --prefix"):
        probekit.recheck(folder / "kept", new.path, prefix="so ")
    with pytest.raises(UsageError, match="before is a cache of the same examples"):
        probekit.recheck(folder / "kept", new.path, before=models["old"])


def test_without_the_old_reading(here):
    """Beside the card the intervals are wide: a large loss is seen, a small one is not excluded."""
    folder, models = here
    kept = folder / "kept"
    result = probekit.recheck(kept, folder / "words.toml", before=models["old"], **QUICK)
    assert result.rows["answer"].iloc[0] == "inconclusive"
    assert "not example by example: nothing changed but the data" in " ".join(result.verdict)
    assert only(result, "difference(auroc)")["value"] == pytest.approx(0, abs=1e-6)
    gone = probekit.recheck(kept, folder / "words.toml", model=models["lost"], **QUICK)
    assert "the probe's own model, 'old.txt', cannot be had" in gone.rows["unpaired"].iloc[0]
    assert gone.rows["answer"].iloc[0] == "degraded"
    with pytest.raises(ModelError, match="Give its folder with --model"):
        probekit.recheck(kept, folder / "words.toml", **QUICK)
    with pytest.raises(UsageError, match="was evaluated on 'words'"):
        probekit.recheck(kept, model=models["lost"], **QUICK)


def test_numbers_and_three_classes(here, tmp_path):
    """Without a threshold, the main metric decides."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(500, 4))
    old, lost = (vectors(tmp_path / f"{i}.txt", part) for i, part in enumerate((x, 0.1 * x + rng.normal(size=x.shape))))
    tasks = (
        ("numbers", TaskKind.REGRESSION, x[:, 0] + 0.3 * rng.normal(size=500), (), ("pearson",)),
        ("three", TaskKind.CLASSIFICATION, x[:, :3].argmax(1), ("a", "b", "c"), ("accuracy",)),
    )
    for name, kind, y, names, metrics in tasks:
        examples = [Example(str(i), f"w{i}", of.item()) for i, of in enumerate(y)]
        splits = {"train": Split("train", tuple(examples[:250])), "dev": Split("dev", tuple(examples[250:]))}
        task = Task(name, kind, splits, names, metrics)
        made = [probekit.cache_activations(old, task, s, out=tmp_path / f"{name}.{s}.h5") for s in splits]
        probe = probekit.probe(*made, controls=0, resamples=0, groups="none", penalties=(0.01,)).probe(0)
        result = probekit.recheck(probe, task, model=lost, before=made[1], resamples=200)
        assert result.rows["answer"].iloc[0] == "degraded"
        assert only(result, f"difference({metrics[0]})")["ci_high"] < -0.02
        assert not result.rows["metric"].str.contains("threshold|auroc").any()
        alike = probekit.recheck(probe, task, model=old, before=made[1], resamples=200)
        assert alike.rows["answer"].iloc[0] == "pass"
        assert only(alike, f"difference({metrics[0]})")["value"] == 0


def words(name, kind, y, names, metric, splits):
    """A task whose text i is word i, with the label or number ``y[i]``."""
    parts = {
        split: Split(split, tuple(Example(str(i), f"w{i}", y[i].item()) for i in of)) for split, of in splits.items()
    }
    return Task(name, kind, parts, names, (metric,))


def test_few_examples_prove_nothing(here):
    """Of 60 positives that did not change, one in forty of all positives may fall to the bottom."""
    folder, models = here
    y, chosen = np.arange(2 * N) % 2, np.arange(N, 2 * N)
    negatives, positives = (chosen[y[chosen] == side] for side in (0, 1))
    splits = {
        "rare": [*negatives, *positives[:60]], "one": positives[:1], "no": negatives, "single": [*negatives, chosen[1]]
    }  # fmt: skip
    task = words("words", TaskKind.CLASSIFICATION, y, ("no", "yes"), "accuracy", splits)
    how = {"model": models["rounded"], "before": models["old"], **QUICK}
    rare = probekit.recheck(folder / "kept", task, split="rare", recall_margin=0.2, **how)
    assert set(rare.rows["answer"]) == {"inconclusive"}
    assert only(rare, "difference(auroc)")["ci_low"] < -0.025
    for split in ("one", "no", "single"):
        result = probekit.recheck(folder / "kept", task, split=split, **how)
        assert set(result.rows["answer"]) == {"inconclusive"}
        assert only(result, "difference(recall-at-threshold)")["finding"] == "open"
        assert "nan" not in result.verdict[0]
    assert "1,200" not in rare.verdict[0]
    assert (
        "600 examples, and none of yes: not tested"
        in probekit.recheck(folder / "kept", task, split="no", **how).verdict[0]
    )


def test_numbers_shift_and_units(tmp_path):
    """A correlation forgives shift and scale, and errors have the unit of the labels: neither hides a broken probe."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(700, 4))
    old, shifted, noise = (
        vectors(tmp_path / f"{i}.txt", part) for i, part in enumerate((x, 3 * x + 10, rng.normal(size=x.shape)))
    )
    y = 0.001 * (x[:, 0] + 0.3 * rng.normal(size=700))
    splits = {"train": range(350), "dev": range(350, 700), "few": range(350, 400)}
    for metric, new in (("pearson", shifted), ("rmse", noise)):
        task = words(metric, TaskKind.REGRESSION, y, (), metric, splits)
        made = [
            probekit.cache_activations(old, task, s, out=tmp_path / f"{metric}.{s}.h5", device="cpu") for s in splits
        ]
        probe = probekit.probe(*made[:2], controls=0, resamples=200, groups="none", penalties=(0.01,)).probe(0)
        result = probekit.recheck(probe, task, model=new, before=made[1], resamples=200)
        assert result.rows["answer"].iloc[0] == "degraded"
        assert only(result, "difference(rmse)")["finding"] == "moved"
        assert only(result, "difference(rmse)")["margin"] == pytest.approx(0.02 * y[350:].std())
        if metric == "pearson":
            assert only(result, "difference(pearson)")["value"] == pytest.approx(0, abs=1e-6)
        same = probekit.recheck(probe, made[2], before=made[2], resamples=200)
        assert same.rows["answer"].iloc[0] == "inconclusive"
        beside = probekit.recheck(probe, task, model=new, **QUICK)
        assert only(beside, "difference(rmse)")["finding"] == "moved"
        assert same.rows["more"].iloc[0] == pytest.approx(140, rel=0.05)  # 3.7 / 0.02 in all


def test_the_card_decides_how_far_new_examples_help(here):
    """Where the card's interval is wider than the margin, no number of new examples is promised."""
    folder, models = here
    how = {"model": models["lost"].replace("lost", "rounded"), **QUICK}
    result = probekit.recheck(folder / "kept", folder / "words.toml", **how)
    assert result.rows["more"].iloc[0] == np.inf
    assert "no number of new examples would probably decide; give --before" in result.verdict[0]
    assert "the card's mix of classes may be another than no 50%, yes 50%" in " ".join(result.verdict)
    with pytest.raises(UsageError, match="was evaluated on 'words', .*name its file"):
        probekit.recheck(folder / "kept", **how)


def change(low, high, **how):
    return Change("x", 0.5, 0.5 + (low + high) / 2, (low + high) / 2, low, high, 0.02, **how)


def test_a_ranking_without_errors_cannot_rise():
    """All positives are above all negatives, before and after: the upper end is 0, and no number is divided by 0."""
    assert _reach(np.zeros(60), np.arange(60) % 2, None, 0.0, 0.95) == 0


def test_findings():
    assert change(-0.01, 0.5).finding is Finding.HOLDS  # better is no loss
    assert change(-0.01, 0.5, better=0).finding is Finding.OPEN
    assert change(0.03, 0.5, better=0).finding is Finding.MOVED
    assert change(-0.5, 0.01, better=-1).finding is Finding.HOLDS  # a loss that became smaller
    assert change(0.03, 0.05, better=-1).finding is Finding.MOVED
    assert change(0.021, 0.5, better=0, reach=1.1).finding is Finding.OPEN
    nan = float("nan")
    assert change(nan, nan).finding is Finding.OPEN
    assert change(nan, nan, same=True).finding is Finding.HOLDS
    assert change(nan, nan, same=True, unseen=0.03).finding is Finding.OPEN


def test_answers_exclude_each_other():
    good, bad, wide = (change(*ends, ranking=True) for ends in ((-0.01, 0.01), (-0.2, -0.1), (-0.1, 0.1)))
    moved, unsure = change(0.1, 0.2, better=0), change(-0.1, 0.1, better=0)
    assert answer([good, unsure]) is Answer.INCONCLUSIVE
    assert answer([good, moved, unsure]) is Answer.STALE
    assert answer([wide, moved]) is Answer.INCONCLUSIVE
    assert answer([bad, moved]) is Answer.DEGRADED
    assert answer([good, change(-0.2, -0.1, ranking=True, needed=False)]) is Answer.DEGRADED
    assert answer([good]) is Answer.PASS
    assert answer([]) is Answer.INCONCLUSIVE


def test_more_examples_decide():
    """With as many more, half the interval fits between the difference and its margin, with room for chance."""
    wide = change(-0.1, 0.1, ranking=True)
    more = more_examples([wide], 1000)
    half = 0.1 / np.sqrt((1000 + more) / 1000)
    assert half == pytest.approx(0.02 * 1.96 / (1.96 + 0.8416), rel=0.01)
    more = more_examples([wide], 1000, level=0.9)
    assert 0.1 / np.sqrt((1000 + more) / 1000) == pytest.approx(0.02 * 1.645 / (1.645 + 0.8416), rel=0.01)
    half = 0.02 * 1.96 / (1.96 + 0.8416)
    with_card = change(-0.1, 0.1, ranking=True, fixed=0.01)
    more = more_examples([with_card], 1000)
    assert np.hypot(0.01, np.sqrt((0.1**2 - 0.01**2) * 1000 / (1000 + more))) == pytest.approx(half, rel=0.02)
    assert more_examples([change(-0.1, 0.1, ranking=True, fixed=0.015)], 1000) == np.inf
    assert np.isnan(more_examples([change(float("nan"), float("nan"))], 1000))


@pytest.mark.slow
def test_precision_attention_prefix_and_template(tmp_path):
    """Of a transformer, what is changed is read, and said."""
    folder = tiny.tiny_model("bert", tmp_path / "tiny")
    task = probekit.load_task("grammar:sentiment")
    made = [
        probekit.cache_activations(folder, task, s, limit=120, layers="1", out=tmp_path / f"{s}.h5", device="cpu")
        for s in ("train", "dev")
    ]
    probe = probekit.probe(*made, controls=0, resamples=200).probe(1)
    (tmp_path / "chat.jinja").write_text("{% for m in messages %}{{ m.role }} : {{ m.content }} . {% endfor %}")
    for how, said in (
        ({"dtype": "bfloat16"}, "the precision (float32, now bfloat16)"), ({"attention": "eager"}, "attention (eager)"),
        ({"prefix": "the cat sees a dog . "}, "a prefix"), ({"template": tmp_path / "chat.jinja"}, "chat template"),
    ):  # fmt: skip
        result = probekit.recheck(probe, "grammar:sentiment", model=folder, limit=100, **how, **QUICK)
        assert said in result.rows["changed"].iloc[0]
        assert result.rows["unpaired"].iloc[0] == ""
        correlation = only(result, "score-correlation")["value"]
        assert correlation > 0.999 if {"dtype", "attention"} & {*how} else correlation < 0.999
    encoder = probekit.load_encoder(folder, device="cpu")
    with pytest.raises(UsageError, match="loaded already; give dtype to load_encoder"):
        probekit.recheck(probe, "grammar:sentiment", model=encoder, dtype="bfloat16", **QUICK)
    certified = probekit.recheck(
        probe, "grammar:sentiment", model=folder, before=folder, dtype="bfloat16", certify=True, limit=60, **QUICK
    )
    errors = certified.rows[certified.rows["metric"] == "extraction-error"]
    assert {"batch", "padding right", "attention"} <= {*errors["check"]}
