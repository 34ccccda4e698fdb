"""The order of layers by name: the old names train what they trained, the grammar trains what it says."""

import logging

import pytest
from lessons import SHORT, pairs, same_weights, weights
from safetensors.torch import load_file

from probekit.adaptation.optimisation.order import ORDERS, plan, shown_plan
from probekit.adaptation.options import Hyperparameters, Unfreezing
from probekit.adaptation.train import train
from probekit.adaptation.training.groups import order_of, settled_epoch, trained_groups
from probekit.errors import UsageError

NAMES = ["embeddings", "block 1", "block 2", "head"]


def as_before(unfreezing, epoch, groups, sequential=(1, 1)):
    """The rule before there were orders."""
    top = groups - 1
    match unfreezing:
        case Unfreezing.TOP:
            return range(top, groups)
        case Unfreezing.GRADUAL:
            return range(max(top - epoch, 0), groups)
        case Unfreezing.CHAIN_THAW if epoch < groups:
            return range(epoch - 1, epoch) if epoch else range(top, groups)
        case Unfreezing.SEQUENTIAL if epoch < sum(sequential):
            return range(top if epoch < sequential[0] else min(1, top), groups)
    return range(groups)


def settled_before(unfreezing, groups, sequential):
    stages = {
        Unfreezing.GRADUAL: groups - 1,
        Unfreezing.CHAIN_THAW: groups if groups > 1 else 0,
        Unfreezing.SEQUENTIAL: sum(sequential) if groups > 1 else 0,
    }
    return stages.get(unfreezing, 0)


@pytest.mark.parametrize("unfreezing", Unfreezing)
def test_names_of_unfreezing_are_orders(unfreezing):
    lengths = [(a, b) for a in range(4) for b in range(4)] if unfreezing is Unfreezing.SEQUENTIAL else [(1, 1)]
    for a, b in lengths:
        order = order_of(Hyperparameters(unfreezing=unfreezing, sequential_head=a, sequential_body=b))
        for groups in (1, 3, 4, 14):
            names = ["head"] if groups == 1 else ["embeddings", *(f"block {i}" for i in range(1, groups - 1)), "head"]
            stages = plan(order, names)
            for epoch in range(20):
                assert trained_groups(stages, epoch) == set(as_before(unfreezing, epoch, groups, (a, b)))
            if groups > 1:
                assert settled_epoch(stages) == settled_before(unfreezing, groups, (a, b))


@pytest.mark.parametrize(
    ("order", "shown"),
    [
        ("head,blocks:top-down", "1: head; 2: block 2, head; from 3: block 1, block 2, head"),
        ("head=2,blocks:bottom-up,all", "1-2: head; 3: block 1, head; 4: block 1, block 2, head; from 5: all layers"),
        ("layers:top-down:alone=2", "1-2: block 2; 3-4: block 1; from 5: embeddings"),
        ("head=0,body=3,all", "1-3: block 1, block 2, head; from 4: all layers"),
        ("embeddings,blocks,head", "1: embeddings; 2: block 1, block 2; from 3: head"),
        ("gradual", "1: head; 2: block 2, head; 3: block 1, block 2, head; from 4: all layers"),
        ("all,all", "from 1: all layers"),
    ],
)
def test_the_grammar(order, shown):
    assert shown_plan(plan(order, NAMES), NAMES) == shown


@pytest.mark.parametrize(
    "order", ["heads", "head,", "blocks:down", "head:top-down", "blocks:alone", "head=-1", "head=x", "all head"]
)
def test_what_is_no_order(order):
    with pytest.raises(UsageError, match=r"order is '.*Give a name \(all, top, gradual, chain-thaw, sequential\)"):
        Hyperparameters(order=order)


def test_an_order_and_unfreezing_exclude_each_other():
    with pytest.raises(UsageError, match="order and unfreezing both say"):
        Hyperparameters(order="head,all", unfreezing="gradual")
    with pytest.raises(UsageError, match="order, mixout, compile and shard are for fine-tuning"):
        Hyperparameters(order="head,all", regime="feature-extraction")


TASK = pairs(16, 9)


def test_an_order_trains_as_its_name_and_as_it_says(tiny_bert, tmp_path, caplog):
    how = SHORT | {"epochs": 3, "schedule": "slanted-triangular"}
    name = train(TASK, tiny_bert, tmp_path / "name", unfreezing="gradual", **how)
    with caplog.at_level(logging.INFO, "probekit.adaptation.training.groups"):
        text = train(TASK, tiny_bert, tmp_path / "text", order="head,layers:top-down", **how)
    assert same_weights(name.path, text.path)
    assert "trained layers by epoch: 1: head; 2: block 3, head; 3: block 2, block 3, head; 4:" in caplog.text
    blocks = train(TASK, tiny_bert, tmp_path / "blocks", order="blocks:bottom-up:alone", keep="last", **SHORT)
    before, after = load_file(tiny_bert / "model.safetensors"), load_file(blocks.path / "model.safetensors")
    changed = {k for k in before if not before[k].equal(after.get(f"bert.{k}", before[k]))}
    assert changed
    assert all("layer." in k for k in changed)


@pytest.mark.parametrize(("name", "factor"), [("ulmfit", 1 / 2.6), ("electra", 0.9), ("electra-base", 0.8)])
def test_published_layer_factors(name, factor):
    assert Hyperparameters(layer_factor=name).layer_factor == factor
    assert Hyperparameters(layer_factor=factor) == Hyperparameters(layer_factor=name)


def test_a_layer_factor_that_is_unknown():
    with pytest.raises(UsageError, match="layer_factor is 'bert'; it must be a number above 0, at most 1, or one of"):
        Hyperparameters(layer_factor="bert")


def test_every_kind_of_unfreezing_is_an_order():
    assert ORDERS.keys() == {str(one) for one in Unfreezing}


def numbers(run):
    """The trained weights that the card and the rows state."""
    (of_rows,) = set(run.rows["trained_parameters"].dropna())
    assert of_rows == run.card["parameters"]["trained"]
    return run.card["parameters"]["trained"], run.card["parameters"]["all"]


@pytest.mark.slow
def test_the_card_counts_the_weights_that_are_trained_at_any_time(tiny_bert, tmp_path):
    how = SHORT | {"pooling": "mean", "epochs": 2}
    top = train(TASK, tiny_bert, tmp_path / "top", unfreezing="top", **how)
    whole = train(TASK, tiny_bert, tmp_path / "whole", **how)
    before, after = weights(top.path), weights(whole.path)
    head = sum(w.size for name, w in before.items() if "classifier" in name or name.startswith("head."))
    assert numbers(top)[0] == head < numbers(whole)[0]
    moved = sum(w.size for name, w in after.items() if "pooler" not in name)
    assert numbers(whole)[0] == moved
    body = sum(w.size for name, w in after.items() if "embeddings" in name)
    some = train(TASK, tiny_bert, tmp_path / "some", order="head,body,all", **how)  # all would be the third epoch
    assert numbers(some)[0] == moved - body
    early = train(
        TASK, tiny_bert, tmp_path / "early", order="head=2,all", patience=1, learning_rate=1e-9, **how | {"epochs": 4}
    )
    assert early.card["total_steps"] == 4
    assert numbers(early)[0] == head


NOTHING = {"pooling": "mean", "unfreezing": "top"}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (NOTHING | {"mixout": 0.5}, "mixout holds the weights of the encoder's linear layers"),
        ({"pooling": "mean", "method": "bitfit", "mixout": 0.5}, "mixout holds the weights of the encoder's linear"),
        ({"pooling": "mean", "method": "norms", "mixout": 0.5}, "mixout holds the weights of the encoder's linear"),
        (NOTHING | {"penalty": "l2-sp", "penalty_strength": 0.1}, "the penalty l2-sp holds the encoder's weights"),
        ({"unfreezing": "top", "lm_loss": 0.5}, "--lm-loss trains the encoder's layers, and this run trains none"),
        ({"pooling": "mean", "order": "head=2,all", "mixout": 0.5}, "mixout holds"),
    ],
)
def test_what_would_have_no_effect_is_refused(options, words, tiny_bert, tmp_path):
    with pytest.raises(UsageError, match=words):
        train(TASK, tiny_bert, tmp_path / "run", **SHORT | options)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "options",
    [
        {"unfreezing": "top", "mixout": 0.5},  # on the pooler, which the head reads
        pytest.param({"method": "bitfit", "lm_loss": 0.5, "pooling": "mean"}, marks=pytest.mark.slow),
        pytest.param(
            NOTHING | {"penalty": "l2-sp", "penalty_strength": 0, "head_penalty": 10.0}, marks=pytest.mark.slow
        ),
    ],
)
def test_what_has_an_effect_is_not(options, tiny_bert, tmp_path):
    how = SHORT | {"learning_rate": 1e-3, "dropout": 0.0, "encoder_dropout": 0.0}
    run = train(TASK, tiny_bert, tmp_path / "run", **how | options)
    kept = ("unfreezing", "method", "pooling")
    plain = train(TASK, tiny_bert, tmp_path / "plain", **how | {k: v for k, v in options.items() if k in kept})
    assert not same_weights(run.path, plain.path)
