"""What is drawn for an interval is one rule, whether a probe, a training or an evaluation asks."""

from dataclasses import replace

import numpy as np
import pytest
from lessons import SHORT, praise, tags

from probekit.activations import cache_activations
from probekit.activations.grouping import stored_groups
from probekit.adaptation.evaluate import evaluate
from probekit.adaptation.runs.constant import constants_of
from probekit.adaptation.train import train, train_on_caches
from probekit.analyses.probe import probe
from probekit.tasks.task import Split

ONE = SHORT | {"epochs": 1}


def in_domains(task, *, copies):
    """The task's examples in six domains of unlike labels, each example there twice with ``copies``."""
    splits = {}
    for name, split in task.splits.items():
        ranked = sorted(split, key=lambda e: e.label)
        told = [replace(e, domain=f"{6 * i // len(ranked)}") for i, e in enumerate(ranked)]
        twice = [replace(e, id=f"{e.id}-{k}", label=e.label) for e in told for k in range(1 + copies)]
        splits[name] = Split(name, tuple(twice))
    return replace(task, splits=splits)


def majority(rows):
    own = constants_of(rows)
    return own[(own["metric"] == "accuracy") & (own["split"] == "dev")].iloc[0][["value", "ci_low", "ci_high"]]


@pytest.mark.slow
@pytest.mark.parametrize("copies", [False, True])
def test_the_constant_answer_has_one_interval(tiny_bert, tmp_path, copies):
    task = in_domains(praise(60, 50), copies=copies)
    paths = [tmp_path / f"{split}.h5" for split in ("train", "dev")]
    for split, path in zip(("train", "dev"), paths, strict=True):
        cache_activations(tiny_bert, task, split, out=path, tokens=True).close()
    run = train(task, tiny_bert, tmp_path / "run", **ONE)
    on_layers = train_on_caches(*paths, tmp_path / "features", **ONE)
    again = evaluate(run, task=task, split="dev", device="cpu")
    found = [majority(one.rows) for one in (run, on_layers, again)]
    for held_out in (True, False):
        found.append(majority(probe(*paths, layers=[0], controls=0, folds=3, hold_out_domains=held_out).rows))
    for one in found:
        np.testing.assert_allclose(one.astype(float), found[0].astype(float), atol=0.02)  # of 1,000 and more draws
    value, low, high = found[0]
    alone = 2 * 1.96 * np.sqrt(value * (1 - value) / 50)  # of 50 examples, as often as they may stand there
    assert high - low == pytest.approx(alone, rel=0.15)


def test_words_are_drawn_by_sentence_and_copies_of_it(tiny_bert, tmp_path):
    task = tags(40, 30)
    dev = task.split("dev").examples
    doubled = Split("dev", (*dev, *(replace(e, id=f"{e.id}-again") for e in dev)))
    run = train(replace(task, splits={**task.splits, "dev": doubled}), tiny_bert, tmp_path / "run", **ONE)
    said = run.predictions[-1]
    assert len(set(said.sentences)) == 60
    assert len(set(said.groups)) == len(set(stored_groups(doubled.examples, task.kind)[0]["/groups"])) <= 30
