"""Each family: our layers are the model's own, named as the convention says, the same bits alone and in any batch."""

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import tiny
import torch
import transformers
from transformers import AutoModel, AutoTokenizer

from probekit.errors import ModelError
from probekit.models import load_encoder
from probekit.models.encoder import Batch
from probekit.models.sites.proof import prove
from probekit.models.transformers import encoder as huggingface
from probekit.models.transformers.blocks import find_blocks
from probekit.models.transformers.encoder import all_layers
from probekit.models.transformers.stock import placed
from probekit.runtime import Dtype
from probekit.sites import Site

TEXTS = ["the cat sleeps.", "a small old dog sees the bird in the garden!", "it was not good.", "dog", "the dog runs."]
TOLERANCE = 5e-6  # largest seen over all families: 1.4e-6


def batches(tokens):
    start = np.cumsum(tokens.length) - tokens.length
    rows = [slice(a, a + n) for a, n in zip(start, tokens.length, strict=True)]
    return [Batch(tokens.token_ids[r], tokens.type_ids[r], tokens.length[[i]]) for i, r in enumerate(rows)]


def joined(parts):
    return Batch(*(np.concatenate([getattr(p, f) for p in parts]) for f in ("token_ids", "type_ids", "length")))


def stock(folder):
    model = AutoModel.from_pretrained(folder, attn_implementation="eager").eval()
    return model.get_encoder() if model.config.is_encoder_decoder else model


@pytest.mark.parametrize("family", tiny.families(tiny.FAMILIES))
def test_layers_are_the_models_own(family, tiny_model):
    folder = tiny_model(family)
    encoder, model, tokenizer = load_encoder(folder), stock(folder), AutoTokenizer.from_pretrained(folder)
    depth = model.config.num_hidden_layers
    names = [*map(str, range(depth + 1)), *(["final_norm"] if family in tiny.FINAL_NORM else [])]
    assert [*map(str, encoder.sites)] == names == encoder.spec["layers"]
    for text, batch in zip(TEXTS, batches(encoder.tokenize(TEXTS)), strict=True):
        ids = tokenizer(text, return_tensors="pt")["input_ids"]
        np.testing.assert_array_equal(batch.token_ids, ids[0])
        with torch.inference_mode():
            own = model(input_ids=ids, output_hidden_states=True)
        ours = all_layers(encoder, batch)
        assert ours.shape == (len(encoder.sites), ids.shape[1], encoder.widths[0])
        for layer in range(depth):
            torch.testing.assert_close(ours[layer], own.hidden_states[layer][0], rtol=TOLERANCE, atol=TOLERANCE)
        torch.testing.assert_close(ours[-1], own.last_hidden_state[0], rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("family", tiny.families(tiny.FAMILIES))
def test_a_model_stops_after_the_last_wanted_layer(family, tiny_model):
    """One block runs for layer 1, and no norm; the bits are those of a whole pass, also after one that was stopped."""
    encoder, ran, kept = load_encoder(tiny_model(family)), [], {}
    batch = batches(encoder.tokenize(TEXTS))[1]
    whole = all_layers(encoder, batch)
    for block in find_blocks(encoder.model):
        block.register_forward_hook(lambda *_: ran.append(1))
    encoder.encode(batch, lambda i, rows: kept.setdefault(i, rows.clone()), wanted={1})
    assert (len(ran), [*kept]) == (1, [0, 1])
    assert all(torch.equal(rows, whole[i]) for i, rows in kept.items())
    assert torch.equal(all_layers(encoder, batch), whole)


def xlm(folder, kind="XLM", **more):
    """A tiny model that keeps attentions, norms and feed-forward parts in lists of their own."""
    tokenizer = tiny.tiny_tokenizer("bert")
    tokenizer.save_pretrained(folder)
    sizes = {"emb_dim": 32, "n_layers": 3, "n_heads": 4, "max_position_embeddings": 40, "embed_init_std": 0.2}
    config = getattr(transformers, f"{kind}Config")(**sizes, vocab_size=len(tokenizer), pad_index=0, **more)
    torch.manual_seed(0)
    getattr(transformers, f"{kind}Model")(config).save_pretrained(folder)
    return folder


def test_blocks_in_several_lists(tmp_path):
    """Their last attention's output is not the last layer."""
    encoder, model = load_encoder(xlm(tmp_path)), stock(tmp_path)
    assert [*map(str, encoder.sites)] == ["0", "1", "2", "3"]
    for batch in batches(encoder.tokenize(TEXTS)):
        with torch.inference_mode():
            own = model(input_ids=torch.tensor(batch.token_ids[None].astype(np.int64)), output_hidden_states=True)
        torch.testing.assert_close(all_layers(encoder, batch), torch.cat(own.hidden_states), rtol=1e-5, atol=1e-5)
    proofs = prove(encoder).proofs
    assert not proofs[Site("resid_post", 3)].refusal
    assert "own hidden state" in proofs[Site("resid_post", 3)].identity


def test_layers_that_are_not_the_models_hidden_states_are_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(huggingface, "find_blocks", lambda model: [layer.attention for layer in model.encoder.layer])
    monkeypatch.setattr(transformers.models.bert.modeling_bert.BertLayer, "forward", lambda self, x, *a, **k:
                        self.output(self.intermediate(y := self.attention(2 * x)[0]), y))  # fmt: skip
    with pytest.raises(ModelError, match="not the hidden states that BertModel itself returns"):
        load_encoder(tiny.tiny_model("bert", tmp_path))


@pytest.mark.parametrize("family", sorted(tiny.FINAL_NORM))
def test_the_last_layer_stands_before_the_final_norm(family, tiny_model):
    encoder, model = load_encoder(tiny_model(family)), stock(tiny_model(family))
    norm = next(m for name, m in model.named_children() if name in ("ln_f", "norm", "final_layer_norm"))
    ours = all_layers(encoder, batches(encoder.tokenize(TEXTS[:1]))[0])
    assert not torch.allclose(ours[-2], ours[-1], atol=1e-2)
    with torch.inference_mode():
        torch.testing.assert_close(norm(ours[-2]), ours[-1], rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", tiny.families(tiny.FAMILIES))
def test_the_same_bits_alone_and_in_any_batch(family, dtype, tiny_model):
    encoder = load_encoder(tiny_model(family), dtype=dtype)
    parts = sorted(batches(encoder.tokenize(TEXTS)), key=lambda b: b.length[0])
    alone = [all_layers(encoder, part) for part in parts]
    if encoder.mixed_lengths:
        together = all_layers(encoder, joined(parts)).split([int(p.length[0]) for p in parts], dim=1)
    else:
        others = [Batch(p.token_ids[::-1], p.type_ids, p.length) for p in parts]
        together = [
            all_layers(encoder, joined([o, p, o]))[:, int(p.length[0]) : 2 * int(p.length[0])]
            for o, p in zip(others, parts, strict=True)
        ]
    for one, two in zip(alone, together, strict=True):
        assert torch.equal(one, two)


@pytest.mark.parametrize("family", tiny.families(tiny.FAMILIES))
def test_known_families_are_packed(family, tiny_model):
    grouped = family in ("deberta-v2", "t5")
    encoder = load_encoder(tiny_model(family))
    assert encoder.mixed_lengths is not grouped
    assert encoder.spec["path"].startswith("grouped" if grouped else "packed")
    assert encoder.versions["self_check"] < 5e-6


def test_each_layer_is_handed_over_as_soon_as_it_is_there(tiny_bert):
    encoder = load_encoder(tiny_bert)
    seen = []

    def sink(i, hidden):
        seen.append(i)
        if i == 1:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        encoder.encode(batches(encoder.tokenize(TEXTS))[0], sink)
    assert seen == [0, 1]
    assert len(all_layers(encoder, batches(encoder.tokenize(TEXTS))[0])) == 4  # and nothing of it is left behind


def test_segments_reach_the_model(tiny_bert):
    encoder = load_encoder(tiny_bert)
    tokens = encoder.tokenize([("the cat", "a dog")])
    one = Batch(tokens.token_ids, tokens.type_ids, tokens.length)
    assert tokens.type_ids.tolist() == [0, 0, 0, 0, 1, 1, 1]
    assert not torch.equal(
        all_layers(encoder, one), all_layers(encoder, Batch(one.token_ids, one.type_ids * 0, one.length))
    )


def test_random_weights(tiny_bert):
    state = torch.random.get_rng_state()
    one, again, other = (load_encoder(tiny_bert, random_weights=seed) for seed in (1, 1, 2))
    trained = load_encoder(tiny_bert)
    assert torch.equal(state, torch.random.get_rng_state())
    batch = batches(trained.tokenize(TEXTS))[1]
    assert torch.equal(all_layers(one, batch), all_layers(again, batch))
    for different in (other, trained):
        assert not torch.allclose(all_layers(one, batch), all_layers(different, batch), atol=1e-2)
    assert one.spec["random_weights"] == 1
    assert one.spec != other.spec
    assert one.sites == trained.sites


@pytest.mark.parametrize("family", ["bert", "gpt2", "t5"])
def test_without_onednn(family, tiny_model):
    plain, fast = load_encoder(tiny_model(family), onednn=False), load_encoder(tiny_model(family))
    assert "onednn" not in plain.spec["path"]
    batch = batches(plain.tokenize(TEXTS))[1]
    torch.testing.assert_close(all_layers(plain, batch), all_layers(fast, batch), rtol=TOLERANCE, atol=TOLERANCE)


def test_half_precision_on_the_cpu(tiny_bert):
    half, full = load_encoder(tiny_bert, dtype="float16"), load_encoder(tiny_bert)
    batch = batches(full.tokenize(TEXTS))[1]
    layers = all_layers(half, batch)
    assert layers.dtype is torch.float16
    torch.testing.assert_close(layers.float(), all_layers(full, batch), rtol=2e-2, atol=2e-2)


def test_positions_keep_their_precision(tiny_model):
    folder, ids = tiny_model("llama"), np.arange(39) % 50 + 1
    encoder = load_encoder(folder, dtype="bfloat16", onednn=False)
    own = AutoModel.from_pretrained(folder, dtype=torch.bfloat16).eval()
    ours = all_layers(encoder, Batch(ids, np.zeros(39, np.uint8), np.array([39])))
    with torch.no_grad():
        theirs = own(input_ids=torch.tensor(ids[None]), output_hidden_states=True).hidden_states
    errors = [huggingface.relative_error(ours[i], theirs[i][0]) for i in range(encoder.depth)]
    assert max(errors) < 4e-3  # measured 0; .023 with frequencies in bfloat16
    net = placed(AutoModel.from_config(own.config, dtype=torch.float32), "cpu", Dtype.BFLOAT16)
    assert {x.dtype for x in net.parameters()} == {torch.bfloat16}
    assert {x.dtype for x in net.buffers()} == {torch.float32}


@pytest.mark.slow
def test_compiled(tiny_bert):
    compiled, plain = load_encoder(tiny_bert, compile=True), load_encoder(tiny_bert)
    assert "compiled" in compiled.spec["path"]
    for batch in batches(plain.tokenize(TEXTS)):
        torch.testing.assert_close(all_layers(compiled, batch), all_layers(plain, batch), rtol=1e-5, atol=1e-5)


@pytest.mark.slow
@pytest.mark.shared
def test_minilm_on_300_sentences(minilm):
    treebank = Path(__file__).parents[2] / "../shared/data/ud_english_ewt/en_ewt-ud-dev.conllu"
    if not treebank.is_file():
        pytest.skip("the shared data sets are not here")
    lines = treebank.read_text(encoding="utf-8").splitlines()
    encoder = load_encoder(minilm)
    texts = [line.removeprefix("# text = ") for line in lines if line.startswith("# text = ")][:300]
    parts = sorted(batches(encoder.tokenize(texts)), key=lambda b: b.length[0])
    together = all_layers(encoder, joined(parts)).split([int(p.length[0]) for p in parts], dim=1)
    assert all(torch.equal(ours, all_layers(encoder, part)) for part, ours in zip(parts, together, strict=True))


@pytest.mark.slow
def test_minilm_in_bfloat16_alone_and_in_a_batch(minilm):
    """At the width of real models oneDNN's own kernels depend on the number of rows, on some processors."""
    encoder = load_encoder(minilm, dtype="bfloat16")
    texts = [" ".join([text] * k) for text in TEXTS for k in (1, 2, 3, 5, 9)]
    parts = sorted(batches(encoder.tokenize(texts)), key=lambda b: b.length[0])
    together = all_layers(encoder, joined(parts)).split([int(p.length[0]) for p in parts], dim=1)
    assert all(torch.equal(all_layers(encoder, part), ours) for part, ours in zip(parts, together, strict=True))


def test_minilm(minilm):
    encoder, model = load_encoder(minilm), stock(minilm)
    assert encoder.spec["path"].startswith("packed")
    parts = sorted(
        batches(encoder.tokenize([*TEXTS, "A man is playing the guitar on stage."])), key=lambda b: b.length[0]
    )
    together = all_layers(encoder, joined(parts)).split([int(p.length[0]) for p in parts], dim=1)
    for part, ours in zip(parts, together, strict=True):
        assert torch.equal(ours, all_layers(encoder, part))
        with torch.inference_mode():
            own = model(input_ids=torch.tensor(part.token_ids[None].astype(np.int64)), output_hidden_states=True)
        torch.testing.assert_close(ours, torch.cat(own.hidden_states), rtol=1e-5, atol=1e-5)


def test_a_model_whose_layers_are_counted_by_sense_is_refused():
    model = torch.nn.Module()
    model.config = SimpleNamespace(num_hidden_layers={"vision": 5, "language": 9})
    with pytest.raises(ModelError, match="has no list of num_hidden_layers equal blocks"):
        find_blocks(model)
