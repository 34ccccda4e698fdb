"""What cards of kept probes say of their data: groups, texts that dev shares with train, and stored precision."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import tiny

import probekit
from probekit.tasks import Example, Split, Task, TaskKind
from tests.monitors.test_import_probe import task


@pytest.mark.parametrize("store", ["float16", "bfloat16"])
def test_the_card_says_groups_shared_texts_and_precision(store, tmp_path):
    encoder = probekit.load_encoder(tiny.tiny_model("bert", tmp_path / "tiny"), device="cpu")
    caches = [
        probekit.cache_activations(encoder, task("two"), split, store=store, layers="1", out=tmp_path / f"{split}.h5")
        for split in ("train", "dev")
    ]
    result = probekit.probe(*caches, controls=0, resamples=100, penalties=(1.0,), folds=2)
    probe, row = (
        result.probe(),
        result.rows[(result.rows["layer"] == 1) & (result.rows["metric"] == "log-loss")].iloc[0],
    )
    card = probe.card
    assert card["vectors"]["store"] == store
    for part, cache in (("train", caches[0]), ("dev", caches[1])):
        assert card[part]["grouped"] == (cache.groups is not None)
        assert card[part]["groups"] == (None if cache.groups is None else len(np.unique(cache.groups)))
        assert card[part]["data_digest"] == cache.spec["data_digest"]
    assert card["dev"]["seen_in_train"] == row["seen_in_train"] > 0
    loss = {one["metric"]: one for one in card["metrics"]}["log-loss"]
    assert loss["value_unseen"] == row["value_unseen"] != row["value"]
    renamed = replace(probe, card={**card, "classes": ["low", "high"]})
    assert probekit.load_probe(renamed.save(tmp_path / "renamed")).classes == ("low", "high")


@pytest.mark.parametrize(("shared", "judged", "of_them"), [(40, 80, 0), (0, 120, 0), (120, 120, 120)])
def test_scores_are_judged_on_examples_that_train_lacks(shared, judged, of_them, encoder, tmp_path):
    """Thresholds, AUROC and reliability; where too few are left, all, and the card and the sentence say how many."""
    splits = {"train": [f"{'cat' if i % 2 else 'dog'} a{i}" for i in range(120)]}
    splits["dev"] = splits["train"][:shared] + [f"{'cat' if i % 2 else 'dog'} b{i} c" for i in range(shared, 120)]
    examples = {
        name: Split(name, tuple(Example(f"{name}{i}", text, label=i % 2) for i, text in enumerate(texts)))
        for name, texts in splits.items()
    }
    toy = Task("toy", TaskKind.CLASSIFICATION, examples, ("dog", "cat"))
    made = [probekit.cache_activations(encoder, toy, s, layers="1", out=tmp_path / f"{s}.h5") for s in splits]
    result = probekit.probe(*made, keep=tmp_path / "kept", controls=0, resamples=0, penalties=(1.0,), folds=2)
    card = result.probe().card
    assert card["dev"]["seen_in_train"] == shared
    assert card["scores_on"] == {"n": judged, "seen_in_train": of_them}
    assert sum(one["n"] for one in card["reliability"]) == judged
    assert {one["negatives"] for one in card["thresholds"]} == {judged // 2}
    point = result.probe().operating_point(0.1)
    assert point["above"] == judged // 20
    found = probekit.apply(tmp_path / "kept", made[1], rate=0.1, resamples=0)
    said = f"{of_them} of these examples of dev share a text or a group with train"
    assert (said in found.verdict[-1]) == (of_them > 0)
    answer = next(iter(probekit.monitor(tmp_path / "kept", ["a cat"], model=encoder, rate=0.1)))
    assert answer.get("seen_in_train", 0) == point["seen_in_train"] == of_them
    old = {name: value for name, value in card.items() if name != "scores_on"}  # as cards of before
    assert replace(result.probe(), card=old).operating_point(0.1)["seen_in_train"] == shared
