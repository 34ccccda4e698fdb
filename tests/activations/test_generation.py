"""What a model computes while it writes: the texts that transformers generates, the states of reading them again."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
import tiny
import torch
from chat_templates import CHATML
from toys import toy_pairs, toy_tags
from transformers import AutoModelForCausalLM

import probekit
from probekit.activations.generation import Generation
from probekit.activations.writing.written import _drawing, in_step
from probekit.errors import NonFiniteError, TruncationError, UsageError
from probekit.models import load_encoder
from probekit.models.encoder import Batch
from probekit.models.scoring.head import Head
from probekit.models.transformers.blocks import find_blocks
from probekit.models.transformers.encoder import all_layers, relative_error
from probekit.models.transformers.writing import load_writer
from probekit.runtime import torch_threads
from probekit.tasks.chat import as_chat, transcript
from probekit.tasks.task import Example, Split, Task, TaskKind

TEXTS = ("the cat", "a small dog sees", "the cat", "x")
TASK = Task(
    "prompts",
    TaskKind.CLASSIFICATION,
    {"train": Split("train", tuple(Example(f"e{i}", text, i % 2) for i, text in enumerate(TEXTS)))},
    ("no", "yes"),
)
NEW = 9


@pytest.fixture(scope="module")
def writers(tmp_path_factory):
    made = {}

    def folder(family):
        if family not in made:
            made[family] = tiny.tiny_language_model(family, tmp_path_factory.mktemp(family), causal=True, seed=2)
        return made[family]

    return folder


def cached(folder, out, task=TASK, **how):
    return probekit.cache_activations(folder, task, out=out / "c.h5" if out.is_dir() else out, **how)


def transformers_write(folder, ids, **how):
    """The pieces that transformers itself generates, greedily, and its hidden states meanwhile, (layers, t, d)."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    given = torch.tensor([ids])
    out = model.generate(
        given, attention_mask=torch.ones_like(given), max_new_tokens=NEW, do_sample=False, pad_token_id=0,
        output_hidden_states=True, return_dict_in_generate=True, **how,
    )  # fmt: skip
    states = torch.stack([torch.cat(layer, 1)[0] for layer in zip(*out.hidden_states, strict=True)])
    return out.sequences[0, len(ids) :].tolist(), states


FAMILIES = ("gpt2", "llama", "qwen3", "gemma2", "gemma3", "olmo2", "phi3", "gpt_neox", "mixtral")
QUICK = ("gpt2",)
"""With learned, rotary and scaled positions, sliding windows (of 4 pieces), norms around branches, parallel blocks,
experts."""


@pytest.mark.parametrize("family", [pytest.param(f, marks=[] if f in QUICK else pytest.mark.slow) for f in FAMILIES])
def test_pieces_and_states_of_transformers_as_it_writes(family, writers, tmp_path):
    folder = writers(family)
    cache = cached(folder, tmp_path, generate=f"max_new_tokens={NEW}", tokens=True, pooling="mean,last")
    encoder = load_encoder(folder)
    writer = load_writer(family, folder, encoder)
    assert writer.pads  # so texts of different lengths were written in step
    assert len(find_blocks(writer.head.base)) == 1 < encoder.depth  # the others would take the memory of a second model
    written, length, ids = cache.generated_pieces, cache.index("length"), cache.index("token_ids")
    worst = 0.0
    for i, text in enumerate(TEXTS):
        prompt = encoder.tokenize([text]).token_ids
        pieces, right = transformers_write(folder, prompt.tolist())
        assert written[i].tolist() == pieces
        assert length[i] == len(prompt) + len(written[i]) - 1  # the last one was never read
        rows = slice(cache.index("start")[i], cache.index("start")[i] + length[i])
        whole = np.concatenate([prompt, written[i][:-1]])
        assert ids[rows].tolist() == whole.tolist()
        assert cache.roles[rows].tolist() == ["text"] * len(prompt) + ["generated"] * (len(written[i]) - 1)
        states = {layer: torch.from_numpy(np.array(cache.tokens(layer)[i])) for layer in cache.layers}
        theirs = [name for name in states if name != str(encoder.depth)]  # their last one has passed the final norm
        worst = max(worst, relative_error(torch.stack([states[name] for name in theirs]), right))
        again = all_layers(encoder, Batch(whole, np.zeros(len(whole), np.uint8), np.array([len(whole)])))
        torch.testing.assert_close(
            torch.stack([*states.values()]), again, rtol=0, atol=0
        )  # the bits of reading the text
        assert cache.generated[i] == encoder.tokenizer.backend.decode(written[i].tolist())
        np.testing.assert_allclose(cache.layer(2)[i], states["2"].numpy().mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(cache.layer(2, "last")[i], states["2"][-1].numpy())
    assert worst < 1e-5, worst
    assert cache.spec["counts"]["unique"] == 3
    assert probekit.verify(cache.path).ok


def test_who_writes_with_whom_depends_on_the_prompts_only():
    length, how = np.array([5, 3, 5, 9, 3]), Generation(4)
    assert [part.tolist() for part in in_step(length, how, pads=True, on_cpu=True)] == [[1, 4, 0, 2, 3]]
    assert [part.tolist() for part in in_step(length, how, pads=False, on_cpu=True)] == [[1, 4], [0, 2], [3]]
    two = replace(how, together=2)
    assert [part.tolist() for part in in_step(length, two, pads=True, on_cpu=True)] == [[1, 4], [0, 2], [3]]
    many = in_step(np.full(1000, 100), Generation(28), pads=True, on_cpu=True)
    assert {len(part) for part in many[:-1]} == {8192 // 128}
    assert sorted(np.concatenate(many)) == list(range(1000))


def test_positions_of_what_is_written(writers, tmp_path):
    folder, how = writers("llama"), {"generate": f"max_new_tokens={NEW}", "tokens": True}
    whole = cached(folder, tmp_path, **how)
    for positions, role, count in (("last:2", "text", 2), ("roles:generated", "generated", NEW - 1)):
        cache = cached(folder, tmp_path / f"{positions[:4]}.h5", positions=positions, **how)
        for i in range(1, 4):
            start, n = whole.index("start")[i], whole.index("length")[i]
            rows = np.flatnonzero(whole.roles[start : start + n] == role)[-count:]
            np.testing.assert_array_equal(cache.tokens(3)[i], whole.tokens(3)[i][rows])
    with pytest.raises(UsageError, match=r"prompts has no roles"):
        cached(folder, tmp_path / "x.h5", positions="roles:assistant", **how)


def test_sites_are_those_of_reading_again(writers, tmp_path):
    folder, sites = writers("gpt2"), "attn_out,z,resid_mid,mlp_act"
    cache = cached(folder, tmp_path, generate="max_new_tokens=4", tokens=True, pooling="none", sites=sites)
    encoder = load_encoder(folder, sites=sites)
    start, n = cache.index("start")[1], cache.index("length")[1]
    ids, read = cache.index("token_ids")[start : start + n], {}
    encoder.encode(Batch(ids, np.zeros(n, np.uint8), np.array([n])), lambda i, x: read.update({i: x.clone()}))
    for i, site in enumerate(encoder.sites):
        np.testing.assert_allclose(cache.tokens(site)[1], read[i].numpy(), rtol=1e-4, atol=1e-5)


def test_it_stops_at_the_end_that_it_writes(writers, tmp_path):
    folder = shutil.copytree(writers("gpt2"), tmp_path / "ends")
    encoder = load_encoder(folder)
    free, _ = transformers_write(folder, encoder.tokenize([TEXTS[0]]).token_ids.tolist())
    end = next(piece for piece in free if piece != free[0])
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [end]}))
    cache = cached(folder, tmp_path, generate=f"max_new_tokens={NEW}", tokens=True)
    assert cache.generated_pieces[0].tolist() == free[: free.index(end) + 1]
    import h5py

    with h5py.File(cache.path) as f:
        assert f["/generated/ended"][0] == 1
    assert cache.index("length")[0] == len(encoder.tokenize([TEXTS[0]]).token_ids) + free.index(end)
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": free[0]}))
    message = r"[1-4] of 4 examples of prompts have no piece at --positions roles:generated; the first is 'e0'"
    with pytest.raises(UsageError, match=message):
        cached(folder, tmp_path / "n.h5", generate="max_new_tokens=4", positions="roles:generated")


def test_draws_depend_on_the_seed_and_the_example_only(writers, tmp_path, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    folder, out = writers("gpt2"), tmp_path / "c.h5"
    how = {"tokens": True, "generate": "max_new_tokens=6,temperature=1.5,seed=3"}
    first = cached(folder, out, **how)
    texts, before = first.generated.tolist(), out.read_bytes()
    assert texts[0] != texts[2]  # the same prompt, of another example
    out.unlink()
    with torch_threads(2):
        cached(folder, out, batch_tokens=8, **how)
    assert out.read_bytes() == before
    turned = Task("prompts", TASK.kind, {"train": Split("train", TASK.split("train")[::-1])}, TASK.label_names)
    assert cached(folder, tmp_path / "t.h5", turned, **how).generated.tolist() == texts[::-1]
    other = cached(folder, tmp_path / "o.h5", tokens=True, generate="max_new_tokens=6,temperature=1.5")
    assert other.generated.tolist() != texts
    assert other.spec_id != first.spec_id


@pytest.mark.parametrize("how", ["", ",temperature=1"])
def test_scores_that_are_not_finite_choose_no_piece(how, writers, tmp_path, monkeypatch):
    predict = Head.predict

    def spoiled(self, hidden):
        scores = predict(self, hidden)
        scores[-1, ..., 3] = np.nan  # of the longest text
        return scores

    monkeypatch.setattr(Head, "predict", spoiled)
    with pytest.raises(NonFiniteError, match="the scores of the next piece of example 'e1' are not finite"):
        cached(writers("gpt2"), tmp_path, generate=f"max_new_tokens=2{how}")


def test_drawn_pieces_have_their_probabilities():
    logits = np.log(np.array([0.5, 0.25, 0.25, 1e-9], dtype=np.float32))
    n = 4000
    for temperature, right in ((1.0, [0.5, 0.25, 0.25, 0]), (0.5, [2 / 3, 1 / 6, 1 / 6, 0])):
        draw = _drawing(Generation(1, temperature), "x")
        found = np.bincount([draw(logits) for _ in range(n)], minlength=4) / n
        assert np.abs(found - right).max() < 4 * np.sqrt(0.25 / n)  # four standard errors


def test_conversations_are_continued_after_the_prompt_for_an_answer(writers, tmp_path):
    folder = shutil.copytree(writers("gpt2"), tmp_path / "chat")
    (folder / "chat_template.jinja").write_text(CHATML.replace("assistant\\n", "A"))
    chat = as_chat([{"role": "user", "content": "ab"}])
    example = Example("0", transcript(chat), 0, chat=chat)
    (folder / "chat_template.jinja").write_text(
        "{{ messages[0]['content'] }}:{% if add_generation_prompt %}!{% endif %}"
    )
    task = Task("chats", TaskKind.CLASSIFICATION, {"train": Split("train", (example,))}, ("a",))
    cache = cached(folder, tmp_path, task, generate="max_new_tokens=3", tokens=True)
    assert cache.roles.tolist() == ["user"] * 2 + ["template"] * 2 + ["generated"] * 2


@pytest.mark.slow
def test_several_workers_write_the_same_numbers(writers, tmp_path):
    how = {"tokens": True, "generate": "max_new_tokens=6"}
    one, two = (cached(writers("gpt2"), tmp_path / f"{n}.h5", workers=n, **how) for n in (1, 2))
    assert one.spec_id == two.spec_id
    for layer in one.layers:
        np.testing.assert_array_equal(one.tokens(layer).values, two.tokens(layer).values)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ("tokens=3", r"generate is 'tokens=3'; expected max_new_tokens=N"),
        ("max_new_tokens=x", r"expected max_new_tokens=N"),
        ("temperature=1", r"expected max_new_tokens=N"),
        ("max_new_tokens=0", r"max_new_tokens of 1 or more"),
        ("max_new_tokens=3,seed=1", r"without temperature=T nothing is drawn"),
    ],
)
def test_how_it_is_written(how, message, tiny_gpt2, tmp_path):
    with pytest.raises(UsageError, match=message):
        cached(tiny_gpt2, tmp_path, generate=how)


def test_models_and_data_that_are_not_continued(tiny_model, writers, tmp_path):
    how = {"generate": "max_new_tokens=3"}
    masked = tiny.tiny_language_model("bert", tmp_path / "masked", causal=False)
    for folder, message in (
        (masked, "predicts masked pieces, not the next one, so it cannot write"),
        (tiny_model("bert"), "has no head of a language model .*, so it cannot write"),
        (tiny_model("t5"), "is an encoder-decoder, of which probekit reads the encoder; it cannot write"),
    ):
        with pytest.raises(UsageError, match=message):
            cached(folder, tmp_path, Task("p", TASK.kind, {"train": TASK.split("train")}, ("a", "b")), **how)
    gpt2 = writers("gpt2")
    with pytest.raises(UsageError, match="leave out --random-weights"):
        cached(gpt2, tmp_path, random_weights=0, **how)
    for task in (toy_pairs(4), toy_tags(4)):
        with pytest.raises(UsageError, match="continues single texts and conversations, not the pairs or words of toy"):
            cached(gpt2, tmp_path, task, **how)
    long = Task("long", TASK.kind, {"train": Split("train", (Example("0", "cat " * 60, 0),))}, ("a",))
    with pytest.raises(TruncationError, match="1 texts are longer than the model reads"):
        cached(gpt2, tmp_path, long, **how)
    with pytest.raises(UsageError, match="an empty text gives the model no piece to begin with"):
        cached(gpt2, tmp_path, Task("e", TASK.kind, {"train": Split("train", (Example("0", "", 0),))}, ("a",)), **how)
    with pytest.raises(UsageError, match="holds nothing that the model wrote; create a cache with --generate"):
        _ = cached(gpt2, tmp_path).generated
    assert sorted(path.name for path in tmp_path.glob("*.h5*")) == ["c.h5"]
