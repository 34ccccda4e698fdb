"""The loss of a language model beside that of a task: its value, its heads, and what it leaves as it is."""

import numpy as np
import pytest
import torch
from lessons import SHORT, Stop, pairs, praise, same_weights, stopping
from torch.nn import functional
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from probekit.adaptation.optimisation.regularise import DistancePenalty
from probekit.adaptation.options import TrainOptions
from probekit.adaptation.signals.language_model import HEAD, TiedHead, language_model_loss
from probekit.adaptation.train import train
from probekit.adaptation.training.fine_tuning import prepare_fine_tuning
from probekit.errors import UsageError


def learner_of(model, task):
    training = prepare_fine_tuning(model, task, task.split("train"), task.split("dev"), TrainOptions())
    return training.learner, training


@pytest.fixture(scope="module")
def with_head(tiny_bert, tiny_gpt2, tmp_path_factory):
    """The tiny models with heads of language models."""
    made = {}
    for auto, folder in ((AutoModelForMaskedLM, tiny_bert), (AutoModelForCausalLM, tiny_gpt2)):
        torch.manual_seed(0)
        out = tmp_path_factory.mktemp(folder.name) / "model"
        auto.from_pretrained(folder).save_pretrained(out)
        for file in folder.glob("*token*"):
            (out / file.name).write_bytes(file.read_bytes())
        for file in (*folder.glob("vocab*"), *folder.glob("merges*")):
            (out / file.name).write_bytes(file.read_bytes())
        made[auto] = out
    return made


def test_a_decoder_keeps_its_head_and_the_loss_is_that_of_transformers(with_head):
    folder = with_head[AutoModelForCausalLM]
    learner, training = learner_of(folder, praise())
    term = language_model_loss(learner, folder, weight=0.5, anneal=True, seed=0)
    batch = training.objectives[0].train.__getitems__([3])
    learner.encoder.train()
    torch.manual_seed(0)
    for module in learner.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    out = learner(**batch)
    ids = batch["first"]["input_ids"]
    right = AutoModelForCausalLM.from_pretrained(folder).eval()(input_ids=ids, labels=ids).loss
    for step, share in ((0, 1.0), (5, 0.5), (9, 0.1)):
        learner(**batch)
        assert float(term(learner, batch, out, step, 10).detach()) == pytest.approx(
            0.5 * share * float(right.detach()), rel=1e-4
        )
    decoder = learner.auxiliary[HEAD]
    assert decoder.weight is learner.encoder.get_input_embeddings().weight


def test_an_encoder_predicts_masked_pieces_with_its_own_head(with_head):
    folder = with_head[AutoModelForMaskedLM]
    learner, training = learner_of(folder, praise())
    term = language_model_loss(learner, folder, weight=1.0, anneal=False, seed=0)
    own = AutoModelForMaskedLM.from_pretrained(folder).eval()
    learner.eval()
    batch = training.objectives[0].train.__getitems__(list(range(20)))
    seen = []
    learner.encoder.register_forward_pre_hook(lambda _, __, kw: seen.append(kw), with_kwargs=True)
    out = {"logits": torch.zeros(1)}
    first, again, later = (float(term(learner, batch, out, step, 2).detach()) for step in (0, 0, 1))
    ids, read = batch["first"]["input_ids"], seen[0]
    changed = read["input_ids"] != ids
    assert 0 < changed.sum() < 0.3 * (~batch["first"]["special"]).sum()
    assert not (changed & (batch["first"]["special"] | (batch["first"]["attention_mask"] == 0))).any()
    logits = own(**{k: v for k, v in read.items() if k != "special"}).logits
    assert first == again  # the same masks
    assert first != later
    assert first != float(term(learner, batch, out, 0, 2, 1).detach())  # another batch of the same update
    # of the chosen pieces, those that differ from the text have these losses; a tenth is left as it is
    each = functional.cross_entropy(logits[changed], ids[changed], reduction="none")
    assert abs(first - float(each.mean().detach())) < 0.3
    assert type(learner.auxiliary[HEAD]) is type(own.cls)


def test_without_a_head_there_is_a_new_one_on_the_embeddings(tiny_bert, caplog):
    learner, _ = learner_of(tiny_bert, praise())
    language_model_loss(learner, tiny_bert, weight=1.0, anneal=False, seed=0)
    head = learner.auxiliary[HEAD]
    assert isinstance(head, TiedHead)
    named = [name for _, members in learner.groups() for name, _ in members]
    assert len(named) == len(set(named))
    assert not any("decoder.weight" in name for name in named)  # the embeddings, which are trained as such


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "more"),
    [("bert", {}), ("gpt2", {"lm_anneal": True}), ("gpt2", {"unlabelled": "praise:test", "accumulation": 2})],
)
def test_a_run_learns_the_text_and_resumes(family, more, tiny_model, tmp_path):
    model, how = tiny_model(family), {**SHORT, "lm_loss": 0.5, "learning_rate": 1e-3, "epochs": 4, **more}
    whole = train(praise(), model, tmp_path / "whole", **how)
    epoch = 3 if "accumulation" in more else 5
    with pytest.raises(Stop):
        train(praise(), model, tmp_path / "part", progress=stopping(epoch + 2), **how)
    assert same_weights(whole.path, train(praise(), model, tmp_path / "part", **how).path)
    assert not list(tmp_path.glob("whole/*auxiliary*"))


@pytest.mark.slow
def test_pairs_that_are_encoded_separately(tiny_gpt2, tmp_path):
    run = train(pairs(), tiny_gpt2, tmp_path / "run", **SHORT, lm_loss=0.5, pairs="separate")
    assert np.isfinite(run.metrics["loss"])


def test_refused(tiny_bert, tiny_model, tmp_path):
    for model, how, words in (
        (tiny_bert, {"lm_anneal": True}, "only with lm_loss"),
        (tiny_bert, {"lm_loss": 0.5, "regime": "feature-extraction"}, "frozen layers are cached"),
        (tiny_bert, {"lm_loss": -1.0}, "0 or more"),
        (tiny_model("t5"), {"lm_loss": 0.5}, "has no piece for masks"),
    ):
        with pytest.raises(UsageError, match=words):
            train(praise(), model, tmp_path / "run", device="cpu", **how)


def test_a_penalty_holds_the_embeddings_that_the_head_shares(with_head):
    """And the weights of a run have each name once, the encoder's, whatever an auxiliary head shares."""
    folder = with_head[AutoModelForMaskedLM]
    learner, _ = learner_of(folder, praise())
    held, names = set(DistancePenalty("l2-sp", learner, strength=1.0).start), set(learner.weights())
    language_model_loss(learner, folder, weight=0.5, anneal=False, seed=0)
    term = DistancePenalty("l2-sp", learner, strength=1.0)
    assert set(term.start) == held
    assert set(learner.weights()) == names
    with torch.no_grad():
        learner.encoder.get_input_embeddings().weight[0] += 1.0
    width = learner.encoder.config.hidden_size
    assert float(term(learner, {}, {}, 0, 1).detach()) == pytest.approx(width / 2)
