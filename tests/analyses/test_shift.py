"""``probekit shift``: from planted directions to cells, differences and words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import probekit
from probekit.analyses.shift import ShiftOptions
from probekit.analyses.shift.rows import Cell, cell_rows, difference_rows
from probekit.errors import CacheMismatch, UsageError
from probekit.probes.shift import blocks_of, fit_blocks
from probekit.tasks.task import Example, Split, Task, TaskKind

WORDS = "the cat sat on mats dogs bark".split()


def task(name: str, n: dict[str, int], names: tuple[str, ...] = ("false", "true"), one: bool = False) -> Task:
    rng, splits = np.random.default_rng(len(name)), {}
    for split, count in n.items():
        found = []
        for i in range(count):
            text = " ".join([*rng.choice(WORDS, size=5).tolist(), str(i)])
            found.append(Example(f"{split}{i}", text, 0 if one else i % len(names), group=f"{split} {i // 2}"))
        splits[split] = Split(split, tuple(found))
    return Task(name, TaskKind.CLASSIFICATION, splits, names)


def cached(model: Path, of: Task, folder: Path, **options: object) -> list[Path]:
    folder.mkdir(exist_ok=True)
    name = of.name + "".join(map(str, options.values()))
    return [
        probekit.cache_activations(model, of, split, out=folder / f"{name}.{split}.h5", **options).path  # type: ignore[misc]
        for split in of.splits
    ]


@pytest.fixture(scope="module")
def caches(tiny_bert: Path, tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder, n = tmp_path_factory.mktemp("shift"), {"train": 40, "dev": 24}
    return [path for name in ("one", "other") for path in cached(tiny_bert, task(name, n), folder)]


def test_rows_have_every_cell_and_its_controls(caches: list[Path]) -> None:
    result = probekit.shift(*caches, blocks=4, controls=2, resamples=100, layers=(0, 1), estimators="mass-mean")
    rows = result.rows
    gold = rows[rows["target"] == "gold"]
    cells = gold[gold["metric"] == "auroc"]
    assert sorted(zip(cells["layer"], cells["trained_on"], cells["task"], strict=True)) == [
        (layer, a, b) for layer in (0, 1) for a in ("one", "other") for b in ("one", "other")
    ]
    assert (cells["ci_low"] < cells["value"]).all()
    lacking = gold[gold["metric"] == "recall-at-rate"]
    assert lacking["value"].isna().all()
    assert set(lacking["why"]) == {"the 20 negatives of train resolve no rate of false positives below 5 %"}
    lost = gold[gold["metric"] == "difference(auroc)"]
    assert len(lost) == 4
    value = cells.set_index(["layer", "trained_on", "task"])["value"]
    for row in lost.to_dict("records"):
        b = row["task"]
        gap = value[row["layer"], row["trained_on"], b] - value[row["layer"], b, b]
        assert row["value"] == pytest.approx(gap)
        assert row["p"] <= row["p_adjusted"] <= 1
    assert len(rows[(rows["target"] == "shuffled") & (rows["metric"] == "auroc")]) == 2 * 8
    assert {p.task for p in result.predictions} == {"one", "other"}
    table = next(p for p in result.predictions if p.task == "one")
    at = (table.fits["trained_on"] == "other") & (table.fits["target"] == "gold") & (table.fits["layer"] == 1)
    [fit] = np.flatnonzero(at)
    share = table.probabilities[np.flatnonzero(table.is_gold).tolist().index(fit), :, 1]
    assert roc_auc_score(table.gold, share) == pytest.approx(value[1, "other", "one"], abs=1e-6)
    again = probekit.shift(*caches, blocks=4, controls=2, resamples=100, layers=(0, 1), estimators="mass-mean")
    assert again.rows["value"].equals(rows["value"])
    assert any("one: " in text and "one of other" in text for text in result.verdict)
    for refuse in (probekit.compare, probekit.summary):
        with pytest.raises(UsageError, match="is of probes of several data sets. Their differences are in its rows"):
            refuse(result)


def test_other_weights_have_a_matrix_of_their_own(caches: list[Path], tiny_bert: Path, tmp_path: Path) -> None:
    n = {"train": 40, "dev": 24}
    random = [
        path for name in ("one", "other") for path in cached(tiny_bert, task(name, n), tmp_path, random_weights=1)
    ]
    rows = probekit.shift(*caches, *random, blocks=2, controls=0, resamples=0, estimators="mass-mean", layers=(1,)).rows
    count = rows[rows["metric"] == "auroc"].groupby("checkpoint").size()
    assert count.tolist() == [4, 4]
    with pytest.raises(UsageError, match="only one is given"):
        probekit.shift(*caches, *random[:2])


def test_what_cannot_be_compared_is_refused(caches: list[Path], tiny_bert: Path, tmp_path: Path) -> None:
    n = {"train": 40, "dev": 24}
    named = cached(tiny_bert, task("third", n, ("no", "yes")), tmp_path)
    with pytest.raises(UsageError, match=r"one and third differ in label names \(false, true; no, yes\)"):
        probekit.shift(*caches[:2], *named)
    with pytest.raises(CacheMismatch, match="give each cache once"):
        probekit.shift(*caches[:2], *caches[:2])
    with pytest.raises(UsageError, match="in pairs"):
        probekit.shift(*caches[:3])
    single = cached(tiny_bert, task("single", n, one=True), tmp_path)
    with pytest.raises(UsageError, match="are 'false'; a probe needs examples of two classes"):
        probekit.shift(*caches[:2], *single)
    with pytest.raises(UsageError, match=r"there are \d+ groups of examples in train; 30 blocks need as many"):
        probekit.shift(*caches, blocks=30)


def test_a_test_set_of_one_class_has_accuracy_only(caches: list[Path], tiny_bert: Path, tmp_path: Path) -> None:
    half = task("half", {"train": 40, "dev": 24})
    dev = Split("dev", tuple(e for e in half.split("dev") if e.label))
    paths = cached(tiny_bert, Task("half", half.kind, {"train": half.split("train"), "dev": dev}, half.label_names),
                   tmp_path)  # fmt: skip
    rows = probekit.shift(*caches[:2], *paths, blocks=2, controls=1, layers=(1,), estimators="mass-mean").rows
    mine = rows[(rows["task"] == "half") & (rows["target"] == "gold")].set_index(["trained_on", "metric"])
    assert np.isnan(mine.loc[("half", "auroc"), "value"])
    assert mine.loc[("half", "auroc"), "why"] == "all evaluated examples are of one class"
    assert 0 <= mine.loc[("one", "accuracy"), "value"] <= 1


CAPITALS = {
    "Rome Italy": "Rom Italien", "Vienna Austria": "Wien Österreich", "Athens Greece": "Athen Griechenland",
    "Warsaw Poland": "Warschau Polen", "Paris France": "Paris Frankreich", "Madrid Spain": "Madrid Spanien",
    "Lisbon Portugal": "Lissabon Portugal", "Bratislava Slovakia": "Pressburg Slowakei", "Cairo Egypt": "Kairo Ägypten",
    "Brussels Belgium": "Brüssel Belgien", "Moscow Russia": "Moskau Russland", "Bern Switzerland": "Bern Schweiz",
}  # fmt: skip


@pytest.mark.slow
def test_english_to_german_from_task_files(tiny_gpt2: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Statements of two languages as a user writes them: a translation is in the group of its original."""
    for language, verb, pairs in (("english", "lies in", CAPITALS), ("german", "liegt in", CAPITALS.values())):
        cities, countries = zip(*map(str.split, pairs), strict=True)
        for split, at in (("train", range(8)), ("dev", range(8, 12))):
            lines = [f"{cities[i]} {verb} {countries[i - wrong]}.\t{('true', 'false')[wrong]}\tcity {i}"
                     for i in at for wrong in (0, 1)]  # fmt: skip
            (tmp_path / f"{language}.{split}.tsv").write_text("\n".join(["text\tlabel\tcity", *lines]) + "\n")
    head = 'labels = ["false", "true"]\ngroups = "city"\n[splits]\n'
    found = {}
    for name, train, dev in (
        ("english", "english.train", "english.dev"), ("german", "german.train", "german.dev"),
        ("leaky", "german.dev", "german.train"),
    ):  # fmt: skip
        (tmp_path / f"{name}.toml").write_text(f'{head}train = "{train}.tsv"\ndev = "{dev}.tsv"\n')
        found[name] = cached(tiny_gpt2, probekit.load_task(str(tmp_path / f"{name}.toml")), tmp_path)
    how = {"estimators": "mass-mean", "blocks": 4, "controls": 1, "resamples": 0, "layers": (1,)}
    rows = probekit.shift(*found["english"], *found["german"], **how).rows
    cells = rows[(rows["metric"] == "auroc") & (rows["target"] == "gold")].set_index(["trained_on", "task"])
    assert set(cells.index) == {(a, b) for a in ("english", "german") for b in ("english", "german")}
    assert (cells[["n", "n_train", "n_groups"]] == [8, 16, 4]).all(axis=None)
    assert not cells["seen_in_train"].any()
    assert "in train" not in caplog.text
    rows = probekit.shift(*found["english"], *found["leaky"], **how).rows
    assert set(rows.loc[(rows["trained_on"] == "english") & (rows["task"] == "leaky"), "seen_in_train"].dropna()) == {
        16
    }
    assert "16 of 16 evaluated examples of leaky have a text or a group that is in train of english" in caplog.text


def twins(rng: np.random.Generator, n: int, sign: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Class 1 lies along the first axis, or with sign -1 against it; along the second in any case."""
    y, of = np.tile([0, 1], n), np.repeat(np.arange(n), 2)
    x = rng.normal(size=(2 * n, 6))
    x[:, 0] += sign * 3 * (y - 0.5)
    x[:, 1] += 1 * (y - 0.5)
    return x.astype(np.float32), y, of


def test_a_reversed_direction_is_found_and_thresholds_are_those_of_train() -> None:
    rng = np.random.default_rng(0)
    data = [(twins(rng, 150, sign), twins(rng, 120, sign)) for sign in (1, -1)]
    cells = []
    for a, ((x, y, of), _) in enumerate(data):
        block = blocks_of([f"{a} {unit}" for unit in of], 5)
        assert np.bincount(block).tolist() == [60] * 5
        fitted = fit_blocks(x, y[None], 2, block, [dev[0] for _, dev in data])
        for b, (_, (_, y_dev, of_dev)) in enumerate(data):
            about = {"layer": 0, "estimator": "logistic", "trained_on": str(a)}
            cells.append(Cell(about, a, b, y_dev, of_dev, fitted, y, block))
    options = ShiftOptions()
    found = {(c.train, c.test): {r["metric"]: r for r in cell_rows(c, options)} for c in cells}
    assert found[0, 0]["auroc"]["ci_low"] > 0.9
    own = found[0, 0]["recall-at-rate-on-test"]
    assert own["value"] > 0
    assert np.isnan(own["ci_low"])
    assert own["why"] == "1 of the 120 negatives of test lie above the threshold; intervals need 5"
    wide = cell_rows(cells[0], ShiftOptions(rate=0.05))
    assert next(r for r in wide if r["metric"] == own["metric"])["ci_low"] > 0
    assert found[0, 1]["auroc"]["ci_high"] < 0.5
    fitted = cells[0].fitted
    odds = fitted.held_out[:, 1] - fitted.held_out[:, 0]
    at = found[0, 0]["recall-at-rate"]["threshold"]
    assert (odds[cells[0].y_train == 0] > at).sum() == 1
    scores = cells[0].scores[0]
    assert found[0, 0]["recall-at-rate"]["value"] == (scores[cells[0].y == 1] > at).mean()
    assert found[0, 0]["false-positive-rate"]["value"] == (scores[cells[0].y == 0] > at).mean()
    lost = [row for row in difference_rows([cells], options) if row["metric"] == "difference(auroc)"]
    assert all(row["p_adjusted"] < 1e-6 for row in lost)
    assert all(row["error_of_train"] > 0 for row in lost)


def test_held_out_scores_are_of_probes_that_did_not_see_the_block() -> None:
    rng = np.random.default_rng(1)
    x, of = rng.normal(size=(80, 40)).astype(np.float32), np.arange(80)
    y = rng.permutation(np.arange(80) % 2)
    fitted = fit_blocks(x, y[None], 2, blocks_of([str(unit) for unit in of], 4), [x], penalties=[1e4])
    odds, fit = (one[..., 1] - one[..., 0] for one in (fitted.held_out, fitted.tests[0][0]))
    assert roc_auc_score(y, fit) > 0.9
    assert 0.2 < roc_auc_score(y, odds) < 0.8


def test_blocks_agree_between_data_sets_of_the_same_units() -> None:
    names = [f"city {i}" for i in range(50)]
    first, second = blocks_of(names, 10), blocks_of(names[::-1], 10)
    assert first.tolist() == second[::-1].tolist()
    assert np.bincount(first).tolist() == [5] * 10


def test_data_sets_that_share_most_units_have_nearly_the_same_blocks():
    names = [f"subject {i}" for i in range(100)]
    every, some = dict(zip(names, blocks_of(names, 5), strict=True)), names[3:]
    assert np.bincount(list(every.values())).tolist() == [20] * 5
    assert sum(every[name] == block for name, block in zip(some, blocks_of(some, 5), strict=True)) > 90
