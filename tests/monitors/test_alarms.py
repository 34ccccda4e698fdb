"""Alarms as files, and the thresholds of a card: whose they are, what they say, and when there is none."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pytest

import probekit
from probekit.errors import DataError, UsageError
from probekit.monitors import Alarm

TEXTS = ["the cat sees a dog", "a dog", "the cat"]


@pytest.fixture(scope="module")
def harmless(tmp_path_factory):
    file = tmp_path_factory.mktemp("harmless") / "harmless.txt"
    file.write_text("\n".join(f"the {'cat ' * k}sees" for k in range(1, 41)))
    return file


@pytest.fixture(scope="module")
def alarm(kept, encoder, harmless):
    probe = probekit.load_probe(kept[0], 2)
    return probe.alarm(harmless.read_text().splitlines(), rule="max", rate=0.1, model=encoder, on="cats")


def test_a_saved_alarm_is_the_same(alarm, tmp_path):
    found = probekit.load_alarm(alarm.save(tmp_path / "cats.json"))
    assert found == alarm
    assert (found.layer, found.on, found.texts, found.level) == ("2", "cats", 40, 0.95)
    assert json.loads((tmp_path / "cats.json").read_text())["format"] == "probekit-alarm/1"
    alarm.save(tmp_path / "cats.json")  # ours is replaced
    (tmp_path / "mine.json").write_text("{}")
    with pytest.raises(UsageError, match=r"mine.json"):
        alarm.save(tmp_path / "mine.json")
    with pytest.raises(UsageError, match="does not say whose it is"):
        Alarm("max", 1.0).save(tmp_path / "none.json")
    scores = np.arange(40.0)
    own = Alarm.calibrated(scores, np.ones(40, int), rule="max", rate=0.1, probe=probekit.Probe(*_parts(alarm)))
    assert probekit.load_alarm(own.save(tmp_path / "own.json")).threshold == own.threshold


def _parts(alarm):
    from probekit.probes.kept import Weights

    arrays = {"mean": np.zeros(3, np.float32), "weight": np.ones((1, 3), np.float32), "bias": np.zeros(1, np.float32)}
    return Weights("linear", arrays), {"layer": "1", "classes": ["a", "b"], "kind": "classification", "encoder": {}}


def test_monitor_takes_and_keeps_alarms(kept, encoder, harmless, tmp_path, alarm):
    how = {"layer": "2", "model": encoder}
    calibrated = {"harmless": harmless, "rule": "max", "rate": 0.1, "save_alarm": tmp_path / "a.json"}
    first = list(probekit.monitor(kept[0], TEXTS, **how, **calibrated))
    again = list(probekit.monitor(kept[0], TEXTS, **how, alarm=tmp_path / "a.json"))
    assert first == again
    assert {"highest", "alarm"} <= first[0].keys()
    assert list(probekit.monitor(kept[0], TEXTS, **how, alarm=alarm)) == first
    for wrong, why in (
        ({"alarm": alarm, "rate": 0.1}, "has its own rate"),
        ({"alarm": alarm, "harmless": harmless}, "has its own rate"),
        ({"rule": "max"}, "give them with harmless"), ({"groups": "author"}, "give them with harmless"),
        ({"save_alarm": tmp_path / "b.json"}, "give them with harmless"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=why):
            probekit.monitor(kept[0], TEXTS, **how, **wrong)
    with pytest.raises(UsageError, match=r"another probe \(layer 2, digest .*; this one is of layer 1"):
        probekit.monitor(kept[0], TEXTS, layer="1", model=encoder, alarm=alarm)


def test_monitor_counts_groups_of_harmless_texts(kept, encoder, harmless, tmp_path):
    """As the alarm of the same texts and groups does; without the field, the line is named."""
    texts, authors = harmless.read_text().splitlines(), [k // 2 for k in range(40)]
    lines = [json.dumps({"text": text, "author": author}) for text, author in zip(texts, authors, strict=True)]
    (tmp_path / "harmless.jsonl").write_text("\n".join(lines))
    how = {"layer": "2", "model": encoder, "harmless": tmp_path / "harmless.jsonl", "rule": "max", "rate": 0.1}
    probekit.monitor(kept[0], TEXTS, **how, groups="author", save_alarm=tmp_path / "a.json")
    found, probe = probekit.load_alarm(tmp_path / "a.json"), probekit.load_probe(kept[0], 2)
    alarms = [probe.alarm(texts, rule="max", rate=0.1, model=encoder, groups=of) for of in (authors, None)]
    assert (found.threshold, found.high) == (alarms[0].threshold, alarms[0].high)
    assert found.high > alarms[1].high
    with pytest.raises(DataError, match="line 1: wanted the group of the text in the field 'by'; found text, author"):
        probekit.monitor(kept[0], TEXTS, **how, groups="by")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"format": "probekit-alarm/9"}, "wanted an alarm of the format probekit-alarm/1, found 'probekit-alarm/9'"),
        ({"threshold": None}, "does not say the threshold"),
        ({"threshold": "3"}, "threshold is '3'; it must be a number"),
        ({"threshold": float("nan")}, "threshold is nan; it must be a finite number"),
        ({"threshold": 10**400}, "threshold is a number of 401 digits; it must be a finite number"),
        ({"texts": -1}, "texts is -1; it must be 0 or more"), ({"rate": 7}, "rate is 7; it must be between 0 and 1"),
        ({"low": -0.1}, "low is -0.1; it must be"), ({"level": 1}, "level is 1; it must be between 0 and 1"),
        ({"rule": "last"}, "looks at the end"), ({"rule": "rolling:-1"}, "rolling"),
        ({"texts": 1.5}, "texts is 1.5; it must be a whole number"),
        ({"rate": True}, "rate is True; it must be a number"), ({"probe": None}, "does not say the probe"),
    ],
)  # fmt: skip
def test_damaged_alarms_are_refused(change, why, alarm, tmp_path):
    file = alarm.save(tmp_path / "a.json")
    file.write_text(json.dumps(json.loads(file.read_text()) | change))
    with pytest.raises(DataError, match=why):
        probekit.load_alarm(file)
    file.write_text("[1")
    with pytest.raises(DataError):
        probekit.load_alarm(file)
    with pytest.raises(DataError, match="no such file"):
        probekit.load_alarm(tmp_path / "none.json")


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"scores": np.r_[np.nan, np.arange(199.0)]}, r"scores must be finite numbers \(t,\)"),
        ({"scores": np.zeros((200, 1))}, r"scores must be finite numbers \(t,\).* they are float64 \(200, 1\)"),
        ({"length": np.r_[0, 2, np.ones(198, int)]}, "length must say how many of the 200 pieces each text has"),
        ({"scores": np.arange(199.0)}, "length must say how many of the 199 pieces"),
        ({"groups": np.arange(5)}, r"groups must name the group of each of the 200 texts; it is \(5,\)"),
        ({"rate": 0}, "rate is 0; it must be between 0 and 1"), ({"rate": 2}, "rate is 2; it must be between"),
        ({"level": 2}, "level is 2; it must be between 0 and 1"),
    ],
)  # fmt: skip
def test_what_no_alarm_is_calibrated_on(wrong, why, kept):
    given = {"scores": np.arange(200.0), "length": np.ones(200, int), "rule": "max", **wrong}
    with pytest.raises(UsageError, match=why):
        Alarm.calibrated(**given)
    if set(wrong) == {"rate"}:
        with pytest.raises(UsageError, match=why):
            probekit.load_probe(kept[0], 2).alarm(TEXTS, model="nowhere", **wrong)


def test_thresholds_of_the_card(kept, encoder, caches):
    """Of whole texts, in monitor, apply and score."""
    probe = probekit.load_probe(kept[0], 2)
    point = probe.operating_point(0.1)
    answers = list(probekit.monitor(probe, TEXTS, model=encoder, rate=0.1))
    for answer in answers:
        assert answer["above"] is (answer["score"] > point["threshold"])
        assert [answer[name] for name in ("rate", "rate_low", "rate_high")] == [
            point[name] for name in ("rate", "rate_low", "rate_high")
        ]
    table = probe.score([*TEXTS, " "], model=encoder, rate=0.1)
    assert table["above"].tolist()[:3] == [answer["above"] for answer in answers]
    assert table["above"].isna()[3]
    found = probekit.apply(probe, caches["dev"], rate=0.1, resamples=0)
    rows = found.rows[found.rows["metric"] == "probe-score"]
    negative = caches["dev"].labels == 0
    assert (rows["above"].to_numpy(dtype=bool) & negative).sum() == point["above"]
    assert rows["rate_high"].unique().tolist() == [point["rate_high"]]
    assert f"of 120 scores ({100 * rows['above'].mean():.3g} %) are above" in found.verdict[-1]
    with pytest.raises(UsageError, match="are of whole texts"):
        probe.score(TEXTS, model=encoder, by="piece", rate=0.1)
    with pytest.raises(UsageError, match="are of whole texts"):
        probekit.apply(probe, "grammar:sentiment", rate=0.1, by="piece")


def test_why_there_is_no_threshold(kept, encoder, caches, tmp_path):
    """Another rate, too few negatives, more classes; said before a model runs."""
    probe = probekit.load_probe(kept[0], 2)
    for rate, why in (
        (0.02, r"for the rates 0.01, 0.05, 0.1, not 0.02; take one of these"),
        (0.01, r"no threshold for a rate of 0.01: \d+ negatives.* cannot resolve it"),
    ):
        with pytest.raises(UsageError, match=why):
            probekit.monitor(probe, TEXTS, model="nowhere", rate=rate)
        with pytest.raises(UsageError, match=why):
            probekit.apply(probe, "nothing.txt", model="nowhere", rate=rate)
    card = {name: value for name, value in probe.card.items() if name != "thresholds"}
    three = probekit.Probe(probe.weights, {**card, "classes": ["a", "b", "c"]})
    with pytest.raises(UsageError, match="which are of probes of two classes; this one is of 3 classes"):
        three.threshold(0.1)


def test_a_dev_split_with_three_negatives(caches, encoder, tmp_path):
    """Each rate says why it has no threshold."""
    task = probekit.load_task("grammar:sentiment")
    examples = task.split("dev").examples
    negatives = [e for e in examples if e.label == 0][:3]
    few = [*negatives, *(e for e in examples if e.label == 1)][:30]
    data = probekit.tasks.Task(task.name, task.kind, {"dev": probekit.tasks.Split("dev", tuple(few))}, task.label_names)
    dev = probekit.cache_activations(encoder, data, "dev", out=tmp_path / "dev.h5")
    how = {"controls": 0, "resamples": 0, "layers": "1", "groups": "none", "keep": tmp_path / "kept"}
    probekit.probe(caches["train"], dev, **how)
    for rate in (0.01, 0.05, 0.1):
        with pytest.raises(UsageError, match=f"no threshold for a rate of {rate:g}: 3 negatives.* cannot resolve it"):
            probekit.apply(tmp_path / "kept", dev, rate=rate)


def test_rows_keep_what_is_above(kept, caches, tmp_path):
    out = tmp_path / "scores.parquet"
    probekit.apply(kept[0], caches["dev"], layer="2", rate=0.1, resamples=0, out=out)
    rows = pd.read_parquet(out)
    assert rows["above"].dropna().isin([True, False]).all()
    assert len([*probekit.read(out).grids()]) == 2
