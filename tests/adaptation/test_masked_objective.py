"""Masked language modelling in mixtures: which pieces are hidden, the loss beside a naive twin, and resuming."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

import probekit
from probekit.adaptation.heads.head import IGNORED
from probekit.adaptation.heads.language_model_head import check_both_sides
from probekit.adaptation.pretraining.masking import masked
from probekit.adaptation.pretraining.objective import Encoded
from probekit.adaptation.pretraining.objectives import make_objective
from probekit.adaptation.pretraining.options import EncoderOptions
from probekit.adaptation.training.fine_tuning import encoder_of
from probekit.adaptation.training.learners import FineTuning
from probekit.errors import UsageError
from probekit.models.loading import text_reader
from probekit.models.new import new_encoder
from probekit.models.transformers.stock import load_model
from probekit.models.transformers.tokens import load_tokenizer

ON = "masked-language-model:text.txt"
QUICK = {"steps": 8, "evaluate_every": 2, "batch_size": 8, "hidden_size": 8, "outputs": 40, "dev_limit": 12}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("masked")
    draw = np.random.default_rng(0)
    words = ("cat", "dog", "bird", "child", "teacher", "sleeps", "runs", "sees", "small", "old", "red")
    lines = ["the " + " ".join(draw.choice(words, size=int(draw.integers(4, 12)))) + " ." for _ in range(120)]
    (place / "text.txt").write_text("\n".join(lines) + "\n")
    return place


def test_pieces_are_hidden_replaced_or_left():
    n, mask, vocabulary = 200_000, 3, 1000
    pieces, special = torch.randint(4, vocabulary, (n,)), torch.arange(n) % 10 == 0
    found, chosen = masked(pieces, special, mask=mask, vocabulary=vocabulary, draw=torch.Generator().manual_seed(0))
    assert not (chosen & special).any()
    assert torch.equal(found[~chosen], pieces[~chosen])
    hidden, left = found[chosen] == mask, found[chosen] == pieces[chosen]
    for share, expected, trials in (
        (chosen.sum() / (~special).sum(), 0.15, 0.9 * n),
        (hidden.float().mean(), 0.8 + 0.1 / vocabulary, 0.135 * n),
        (left.float().mean(), 0.1 + 0.1 / vocabulary, 0.135 * n),
    ):
        assert abs(float(share) - expected) < 4 * math.sqrt(expected * (1 - expected) / trials)


def test_equal_to_a_naive_twin(folder, tiny_bert, tmp_path):
    options = EncoderOptions(**QUICK, data_dir=folder, device="cpu")
    encoder = encoder_of(tiny_bert)
    objective = make_objective(
        ON, Encoded(encoder, text_reader(tiny_bert, encoder.config, 40), tiny_bert), options, tmp_path / "text"
    )
    learner = FineTuning(encoder, objective.head).eval()
    pieces = objective.train.first
    tokenizer = load_tokenizer(tiny_bert)
    outputs = 3 + np.argsort(-np.bincount(pieces.ids, minlength=len(tokenizer)), kind="stable").argsort()
    stock = load_model(tiny_bert).eval()

    def nats(batch):
        """The loss of each hidden piece, one sentence after another."""
        inputs, found = batch["first"], []
        for i, n in enumerate(inputs["attention_mask"].sum(1)):
            states = stock(input_ids=inputs["input_ids"][i : i + 1, :n]).last_hidden_state[0]
            for state, label in zip(states, batch["labels"][i, :n], strict=True):
                if label != IGNORED:
                    logits = objective.head.output.weight @ state + objective.head.output.bias
                    found.append(float(logits.logsumexp(0) - logits[label]))
        return found

    with torch.no_grad():
        torch.manual_seed(5)
        batch = objective.train.__getitems__(range(8))
        for row in range(8):  # labels are the output words of the pieces in the text
            at = batch["labels"][row] != IGNORED
            text = torch.from_numpy(pieces.ids[pieces.start[row] : pieces.start[row + 1]].astype(int))
            assert batch["labels"][row][at].tolist() == [int(outputs[piece]) for piece in text[at[: len(text)]]]
            assert not (at & batch["first"]["special"][row]).any()
        expected = nats(batch)
        assert float(learner(**batch)["loss"]) == pytest.approx(np.mean(expected), rel=1e-5)
        scores = [objective.score(learner, size, "cpu") for size in (4, 5)]
        expected = nats(objective.dev.__getitems__(range(len(objective.dev))))
    assert objective.about["hidden"] == len(expected)
    for score in scores:  # the same pieces in each validation, in batches of any size
        assert score["perplexity"] == pytest.approx(math.exp(np.mean(expected)), rel=1e-5)


@pytest.mark.slow
def test_an_interrupted_run_ends_with_the_same_bytes(folder, tiny_bert):
    on = [ON, "grammar:sentiment"]

    def stop(stage, done, total, /, **_):
        if stage == "pretraining" and done == 7:
            raise KeyboardInterrupt

    def run(out, **more):
        return probekit.pretrain_encoder(tiny_bert, on, folder / out, data_dir=folder, **QUICK, **more)

    whole = run("whole")
    with pytest.raises(KeyboardInterrupt):
        run("cut", progress=stop)
    assert run("cut").metrics == whole.metrics
    for name in ("model.safetensors", "head.safetensors"):
        assert (folder / "cut" / name).read_bytes() == (folder / "whole" / name).read_bytes()
    (first, _) = whole.card["objectives"]
    assert (first["objective"], first["metric"]) == (ON, "perplexity")


def test_encoders_that_cannot_hide_pieces(folder, tiny_gpt2, tmp_path):
    (tmp_path / "words.txt").write_text("the\ncat\n")
    config = {"model_type": "bilstm", "input": "words", "cells": 4, "embedding_size": 4}
    words = new_encoder(config, tmp_path / "words", vocabulary=tmp_path / "words.txt")
    for model, message in ((words, "this bilstm reads words"), (tiny_gpt2, "without a piece for masks")):
        with pytest.raises(UsageError, match=message):
            probekit.pretrain_encoder(model, ON, tmp_path / "run", data_dir=folder, **QUICK)
    with pytest.raises(UsageError, match="only the words before each one"):
        check_both_sides(encoder_of(tiny_gpt2))


def test_a_bilstm_that_reads_pieces(folder, tiny_bert, tmp_path):
    config = {"model_type": "bilstm", "input": "pieces", "cells": 6, "embedding_size": 5}
    model = new_encoder(config, tmp_path / "bilstm", tokenizer=tiny_bert)
    run = probekit.pretrain_encoder(model, ON, tmp_path / "run", data_dir=folder, **QUICK)
    assert 1 < run.metrics[ON] < 60
