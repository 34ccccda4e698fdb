"""The target tasks of Bowman et al. (2018): the sizes of their models, and what a preset replaces."""

import pytest
from lessons import pairs, praise

from probekit.adaptation.options import Hyperparameters, TrainOptions
from probekit.adaptation.targets import SIZES, TASKS, target_options, with_preset
from probekit.adaptation.train import train, train_on_caches
from probekit.errors import UsageError
from probekit.tasks import DATASETS

FROZEN = {"preset": "bowman-2018", "regime": "feature-extraction", "device": "cpu"}
SHORT = {"epochs": 1, "batch_size": 8, "hidden_size": 6}


def test_other_tasks_are_sized_as_the_nine():
    """The rule by number of examples, which is for other tasks, gives the paper's size for each of the paper's."""
    for dataset in map(DATASETS.__getitem__, TASKS):
        paired = dataset.name not in ("cola", "sst2")
        by_rule = target_options("other", dataset.sizes["train"], paired=paired)
        assert target_options(dataset.name, 1, paired=paired) | {"epochs": 0} == by_rule | {"epochs": 0}
        assert by_rule["hidden_size"] == {"small": 128, "medium": 256, "large": 512}[TASKS[dataset.name]]
    assert len(TASKS) == 9


def test_each_option_exists():
    for size in SIZES:
        task = next(name for name, one in TASKS.items() if one == size)
        Hyperparameters(regime="feature-extraction", **target_options(task, 100, paired=task != "cola"))


def test_the_last_evaluation_is_the_thousandth_or_later():
    for n in (635, 8551, 392_702):
        found = target_options("other", n, paired=False)
        steps = found["epochs"] * -(-n // found["batch_size"])
        assert 1000 <= steps / found["evaluate_every"] <= 1300


def test_what_differs_from_its_default_stays():
    found = with_preset(TrainOptions(**FROZEN, patience=3, dropout=0.0, seed=4), "rte", 2490, paired=True)
    assert (found.patience, found.dropout, found.seed) == (3, 0.0, 4)
    assert (found.optimizer, found.schedule, found.hidden_size, found.learning_rate) == (
        "amsgrad",
        "plateau",
        128,
        3e-4,
    )
    assert with_preset(TrainOptions(), "rte", 2490, paired=True) == TrainOptions()


def test_it_is_for_frozen_encoders():
    with pytest.raises(UsageError, match="the preset bowman-2018 is for frozen encoders; add --regime feature"):
        TrainOptions(preset="bowman-2018")
    with pytest.raises(UsageError, match="preset is 'bowman'; did you mean bowman-2018"):
        TrainOptions(**FROZEN | {"preset": "bowman"})


@pytest.mark.slow
@pytest.mark.parametrize(("make", "head"), [(praise, "max-mlp"), (pairs, "attention-max-mlp")])
def test_a_run_is_that_of_the_same_options(make, head, tiny_bert, tmp_path):
    task = make()
    more = SHORT | ({} if head == "max-mlp" else {"head": head})
    run = train(task, tiny_bert, tmp_path / "run", caches=tmp_path / "caches", **FROZEN, **more)
    assert run.card["head"]["head"] == head
    options = target_options(task.name, 40, paired=make is pairs) | more
    again = train(task, tiny_bert, tmp_path / "run", caches=tmp_path / "caches", **options, **FROZEN | {"preset": None})
    assert again.card["created"] == run.card["created"]  # nothing was trained
    caches = [next((tmp_path / "caches").glob(f"*.{split}.*")) for split in ("train", "dev")]
    third = train_on_caches(*caches, tmp_path / "third", **FROZEN, **more)
    assert third.metrics == run.metrics
