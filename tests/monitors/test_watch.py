"""Probes beside a model that writes: the scores of reading its text again, and alarms that stop it."""

from __future__ import annotations

from time import process_time

import numpy as np
import pytest
import tiny
import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM

import probekit
from probekit.errors import UsageError
from probekit.monitors import Alarm, Probe, Watch
from probekit.monitors.alarm import highest
from probekit.probes.kept import Weights
from probekit.probes.solvers.scores import Running, Score

RULES = ("max", "mean", "ema:0.7", "rolling:3", "cusum:0.2")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny.tiny_language_model("llama", tmp_path_factory.mktemp("model") / "tiny", causal=True, seed=2)


@pytest.fixture(scope="module")
def model(folder):
    return AutoModelForCausalLM.from_pretrained(folder)


def probe_of(layer, width, seed=0, **encoder):
    rng = np.random.default_rng(seed)
    arrays = {"mean": rng.standard_normal(width) * 3, "weight": rng.standard_normal((1, width)), "bias": np.ones(1)}
    card = {"layer": str(layer), "estimator": "logistic", "kind": "classification", "classes": ["no", "yes"]}
    card |= {"encoder": {"model": "tiny", **encoder}, "train": {"task": "toy"}}
    return Probe(Weights("linear", {k: v.astype(np.float32) for k, v in arrays.items()}), card)


PROMPTS = torch.tensor([[0, 0, 5, 6, 7], [4, 5, 6, 7, 8]])
MASK = torch.tensor([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]])


@pytest.mark.parametrize("how", ["greedy", "sampled", "without cache", "several", "parts", "parts of 4", "static"])
def test_scores_are_those_of_reading_the_text_again(how, model, folder):
    depth = model.config.num_hidden_layers
    probes = [
        probe_of(place, model.config.hidden_size, seed=k) for k, place in enumerate((0, 1, depth, 1, "final_norm"))
    ]
    options = {
        "greedy": {"do_sample": False}, "sampled": {"do_sample": True}, "without cache": {"use_cache": False},
        "several": {"do_sample": True, "num_return_sequences": 2}, "parts": {"prefill_chunk_size": 2},
        "parts of 4": {"prefill_chunk_size": 4}, "static": {"cache_implementation": "static"},
    }[how]  # fmt: skip
    steps = []
    torch.manual_seed(0)
    options |= {"input_ids": PROMPTS, "attention_mask": MASK, "max_new_tokens": 6, "pad_token_id": 0}
    with probes[0].attach(model, *probes[1:], callback=lambda n, scores: steps.append((n, scores.shape))) as watch:
        out = model.generate(**options, stopping_criteria=[watch])
    assert watch.prompts == 5
    assert (options.get("prefill_chunk_size", 5), (5, len(out))) == steps[0]
    assert steps[-1][0] == out.shape[1] - 1  # the last piece is never read
    encoder = probekit.load_encoder(folder, device="cpu")
    for row, ids in enumerate(out):
        begin = int((MASK[row % 2 if how != "several" else row // 2] == 0).sum())
        own = ids[begin:-1]
        batch = probekit.models.encoder.Batch(own.numpy(), np.zeros(len(own), np.uint8), np.array([len(own)]))
        states = {}
        encoder.encode(batch, lambda i, x, states=states: states.__setitem__(str(encoder.sites[i]), x.clone().numpy()))
        for probe, scores in zip(probes, watch.scores, strict=True):
            right = probe.weights.of_pieces(states[probe.layer])[:, 0]
            assert np.isnan(scores[row, :begin]).all()
            ended = np.flatnonzero(ids[5:].numpy() == model.generation_config.eos_token_id)
            stop = begin + len(right) if not len(ended) else 5 + int(ended[0])
            np.testing.assert_allclose(
                scores[row, begin:stop], right[: stop - begin], atol=1e-4, rtol=1e-5
            )  # of scores of about 10


def test_it_leaves_the_model_as_it_was(model):
    probe = probe_of(1, model.config.hidden_size)
    before = sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    with pytest.raises(ValueError, match="stop"), probe.attach(model):
        raise ValueError("stop")
    assert before == sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())
    with probe.attach(model) as watch:
        for size in (4, 3, 6, 7):  # each begins anew, also one that is longer by a piece
            model(input_ids=torch.arange(size, 2 * size)[None])
            assert watch.scores[0].shape == (1, size)
            alone = watch.scores[0]
            watch.reset()
            model(input_ids=torch.arange(size, 2 * size)[None])
            np.testing.assert_array_equal(watch.scores[0], alone)


def test_an_alarm_ends_a_text(model):
    probe = probe_of(1, model.config.hidden_size)
    how = {"input_ids": PROMPTS[1:], "max_new_tokens": 12, "do_sample": False, "pad_token_id": 0, "eos_token_id": -1}
    with probe.attach(model, ends=()) as watch:
        whole = model.generate(**how)
    written = watch.scores[0][0, 5:]
    at = int(np.argmax(written[:8]))
    alarm = Alarm("max", float(np.sort(written[: at + 1])[-1]) - 1e-3)
    assert "alarm max above" in str(alarm)
    with probe.attach(model, alarm=alarm, ends=()) as watch:
        out = model.generate(**how, stopping_criteria=[watch])
    first = int(np.flatnonzero(written > alarm.threshold)[0])
    assert watch.stopped.tolist() == [True]
    assert out.shape[1] == 5 + first + 2  # it ends with the piece that was chosen after the piece was read
    assert out[0].tolist() == whole[0, : out.shape[1]].tolist()


@pytest.mark.parametrize("size", [None, 2, 4])
def test_an_alarm_does_not_read_a_prompt_in_parts(model, size):
    """The last part has one piece, which with size 4 ends texts elsewhere."""
    probe, alarm = probe_of(1, model.config.hidden_size), Alarm("max", -1e9)
    how = {"input_ids": PROMPTS, "attention_mask": MASK, "max_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
    with probe.attach(model, alarm=alarm, ends=(7, 8)) as watch:
        out = model.generate(**how, stopping_criteria=[watch], prefill_chunk_size=size)
    assert out.shape[1] == 5 + 2  # it reads one written piece, and stops with the next
    assert np.isfinite(watch.scores[0][:, 5]).all()


@pytest.mark.parametrize("rule", RULES)
def test_rules_piece_by_piece(rule):
    """The highest score of all beginnings, by the definition of each."""
    rng = np.random.default_rng(0)
    score, length = Score.parse(rule), np.array([1, 7, 3, 12, 2])
    pieces = rng.standard_normal(length.sum())
    found = highest(score, pieces, length)
    running, written = Running(score, len(length)), np.full(len(length), -np.inf)
    first = np.cumsum(length) - length
    for k in range(12):  # a piece of each text at a time, as a model writes
        at = np.flatnonzero(length > k)
        written[at] = np.maximum(written[at], running.read(at, pieces[first[at] + k][:, None])[:, 0])
    filled = length >= (score.pieces if score.name == "rolling" else 1)
    np.testing.assert_allclose(written[filled], found[filled], atol=1e-12)
    assert (written[~filled] == -np.inf).all()  # a text that ends before its moving mean is filled is not stopped
    if score.name != "mean":
        np.testing.assert_array_equal(found, score.of(pieces[:, None], length)[:, 0])
    for value, text in zip(found, np.split(pieces, np.cumsum(length)[:-1]), strict=True):
        beginnings = [text[: k + 1] for k in range(len(text))]
        if score.name == "rolling":
            beginnings = [text[: k + 1] for k in range(min(score.pieces, len(text)) - 1, len(text))]
        each = [score.of(part[:, None], np.array([len(part)]))[0, 0] for part in beginnings]
        assert value == pytest.approx(max(each, default=-np.inf))


def test_long_and_many_texts_are_scored_at_once():
    """A text of 300,000 pieces, and 2,000 of one piece under a moving mean of 100,000."""
    rng = np.random.default_rng(0)
    pieces, start = rng.standard_normal(300_000), process_time()
    for rule in RULES:
        assert np.isfinite(highest(Score.parse(rule), pieces, np.array([300_000])))
    np.testing.assert_array_equal(
        highest(Score.parse("rolling:100000"), pieces[:2000], np.ones(2000, int)), pieces[:2000]
    )
    assert process_time() - start < 3  # measured .4 s; piece by piece 35 s and 1.6 GB


@pytest.mark.parametrize(("texts", "copies"), [(99, 1), (100, 1), (250, 1), (60, 5)])
def test_alarms_stop_no_more_than_the_stated_share_on_average(texts, copies):
    """Exact for scores of a known distribution; where texts come in copies, their groups count."""
    rng, rate, share = np.random.default_rng(2), 0.01 if copies == 1 else 0.05, []
    groups = np.repeat(np.arange(texts), copies) if copies > 1 else None
    for _ in range(400):
        scores = np.repeat(rng.random(texts), copies)
        alarm = Alarm.calibrated(scores, np.ones(len(scores), int), rule="max", rate=rate, groups=groups)
        share.append(1 - alarm.threshold)
    error = np.std(share) / 20
    assert rate / 2 - 2 * error < np.mean(share) < rate + 2 * error
    with pytest.raises(UsageError, match="50 harmless texts in 10 groups cannot resolve a rate of 0.05; 19 groups"):
        Alarm.calibrated(np.arange(50.0), np.ones(50, int), rate=0.05, rule="max", groups=np.repeat(np.arange(10), 5))


@pytest.mark.parametrize("rule", RULES)
def test_alarms_stop_the_stated_share_of_harmless_texts(rule):
    rng = np.random.default_rng(1)
    length = rng.integers(5, 30, size=400)
    alarm = Alarm.calibrated(rng.standard_normal(length.sum()), length, rule=rule, rate=0.05, on="noise")
    new = rng.integers(5, 30, size=20_000)
    share = (highest(Score.parse(rule), rng.standard_normal(new.sum()), new) > alarm.threshold).mean()
    assert alarm.low < share < alarm.high
    assert alarm.rule == str(Score.parse(rule))


def test_refusals(model, folder):
    width = model.config.hidden_size
    for probe, why in (
        (probe_of(99, width), "reads layer 99 of width"), (probe_of(1, width + 1), "the model has"),
        (probe_of("z.0", width), "the probe reads z.0"),
        (probe_of(1, width, weights_digest="0"), "the model's weights"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=why):
            probe.attach(model)
    assert probe_of(1, width, weights_digest="0").attach(model, anyway=True)
    with pytest.raises(UsageError, match="no probe to attach"):
        Watch((), model)
    with pytest.raises(UsageError, match="looks at the end"):
        Alarm("last", 0.0)
    with pytest.raises(UsageError, match="4 harmless texts cannot resolve"):
        Alarm.calibrated(np.zeros(8), np.full(4, 2))


def test_another_precision_quantisation_or_adapter_is_refused(folder):
    """Of a model in memory; so is what is no model of transformers."""
    how = probekit.load_encoder(folder, device="cpu")
    known = {name: how.spec[name] for name in ("weights_digest", "dtype")}
    probe = probe_of(1, how.width, **known)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert probe.attach(model)
    half = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.bfloat16)
    with pytest.raises(UsageError, match=r"the precision \(float32, now bfloat16\); anyway=True attaches it"):
        probe.attach(half)
    assert probe.attach(half, anyway=True)
    model.config.quantization_config = {"quant_method": "fp8"}
    with pytest.raises(UsageError, match=r"quantised \(None, now fp8\)"):
        probe.attach(model)
    del model.config.quantization_config
    adapted = get_peft_model(model, LoraConfig(r=1, target_modules=["q_proj"]))
    with pytest.raises(UsageError, match=r"adapters \(None, now \['default'\]\)"):
        probe.attach(adapted)
    with pytest.raises(UsageError, match=r"a watch is of a model of transformers.* this is HuggingFaceEncoder"):
        probe.attach(how)


def test_what_the_watch_has_not_seen_is_refused(model):
    """A cache of a former text, and a rule under which texts tie."""
    probe = probe_of(1, model.config.hidden_size)
    kept = model(input_ids=torch.arange(4)[None], use_cache=True).past_key_values
    with probe.attach(model), pytest.raises(UsageError, match="has not seen the pieces that the model keeps"):
        model(input_ids=torch.arange(2)[None], past_key_values=kept, use_cache=True)
    with pytest.raises(UsageError, match="38 of 40 texts have the score 0 of the threshold"):
        Alarm.calibrated(np.r_[5.0, 6.0, np.zeros(38)], np.ones(40, int), rule="cusum:1", rate=0.1)
    few = Alarm.calibrated(np.r_[np.arange(35.0), 36, 36, 37, 38, 39], np.ones(40, int), rule="max", rate=0.1)
    assert few.threshold == 36  # two texts there, three above it


def test_pieces_after_the_end_are_padding(model):
    """Of a text that ends before another, and beams, whose texts change rows."""
    probe = probe_of(1, model.config.hidden_size)
    how = {"input_ids": PROMPTS, "attention_mask": MASK, "do_sample": False, "pad_token_id": 0}
    free = model.generate(**how, max_new_tokens=6, eos_token_id=99)
    end = int(free[0, 6])
    assert end not in free[1, 5:9]
    model.generation_config.eos_token_id = end
    with probe.attach(model) as watch:
        out = model.generate(**how, max_new_tokens=6)
        at = int(np.flatnonzero(out[0, 5:].numpy() == end)[0]) + 5
        assert np.isnan(watch.scores[0][0, at + 1 :]).all()
        assert np.isfinite(watch.scores[0][1, :9]).all()
        with pytest.raises(UsageError, match="beam"):
            model.generate(**how, max_new_tokens=6, num_beams=3, stopping_criteria=[watch])
    model.generation_config.eos_token_id = 2


def test_two_logits_are_one_score(model):
    """Mass-mean and k-sparse probes have a logit of each class."""
    one = probe_of(1, model.config.hidden_size)
    arrays = dict(one.weights.arrays)
    arrays |= {
        "weight": np.concatenate([-arrays["weight"], arrays["weight"]]) / 2,
        "bias": np.array([-0.5, 0.5], np.float32),
    }
    two = Probe(Weights("linear", arrays), one.card)
    with one.attach(model, two) as watch:
        model(input_ids=torch.arange(5)[None])
    np.testing.assert_allclose(watch.scores[1], watch.scores[0], rtol=1e-5, atol=1e-4)


def test_an_alarm_from_texts(folder, model):
    encoder = probekit.load_encoder(folder, device="cpu")
    probe = probe_of(1, encoder.width)
    texts = [f"the {' '.join(['cat'] * k)} sees a dog" for k in range(1, 21)]
    alarm = probe.alarm(texts, rule="max", rate=0.1, model=encoder, on="toys", anyway=True)
    scores = probe.score(texts, model=encoder, by="piece", anyway=True).groupby("id", sort=False)["score"].max()
    assert (scores > alarm.threshold).sum() == 1  # of 20 and a further one, 2
    assert (alarm.texts, alarm.on) == (20, "toys")
    assert probe.attach(model, alarm=alarm)
    with pytest.raises(UsageError, match="calibrated on the scores of another probe"):
        probe_of(1, encoder.width, seed=3).attach(model, alarm=alarm)
