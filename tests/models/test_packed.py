"""The packed path against the definition, and against mistakes that the self-check must find."""

import numpy as np
import pytest
import tiny
import torch
import transformers
from transformers import AttentionInterface

from probekit.errors import ModelError, UsageError
from probekit.models import load_encoder
from probekit.models.encoder import Batch
from probekit.models.options import LoadOptions
from probekit.models.transformers import encoder as huggingface
from probekit.models.transformers import onednn
from probekit.models.transformers.onednn import PrepackedLinear, onednn_available
from probekit.models.transformers.packed import PACKED, Groups, groups_of, packed_attention, positions_of
from probekit.runtime import torch_threads


def leaking(module, query, key, value, attention_mask, **kwargs):
    """Attention over the whole row, as if it were one sequence."""
    kwargs["probekit_groups"] = Groups(((0, 1, query.shape[2]),))
    return packed_attention(module, query, key, value, attention_mask, **kwargs)


def test_groups():
    assert groups_of(np.array([2, 2, 3, 7])).parts == ((0, 2, 2), (4, 1, 3), (7, 1, 7))


def test_positions():
    ids, length = np.array([5, 6, 7, 1, 8, 5]), np.array([1, 2, 3])
    assert positions_of(ids, length).tolist() == [0, 0, 1, 0, 1, 2]
    assert positions_of(ids, length, 1).tolist() == [2, 2, 3, 1, 2, 3]  # RoBERTa's: padding spelt out takes no place


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("key_heads", [2, 4])
def test_attention_is_within_each_sequence(causal, key_heads):
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(1, 4, 8, 6, generator=generator)
    key, value = torch.randn(2, 1, key_heads, 8, 6, generator=generator)
    module = torch.nn.Module()
    module.is_causal = causal
    found, _ = packed_attention(
        module, query, key, value, None, scaling=0.3, probekit_groups=Groups(((0, 2, 1), (2, 2, 3)))
    )
    key, value = (x.repeat_interleave(4 // key_heads, 1) for x in (key, value))
    sequence = torch.tensor([0, 1, 2, 2, 2, 3, 3, 3])
    allowed = sequence[:, None] == sequence
    scores = (0.3 * query @ key.transpose(2, 3)).masked_fill(~(allowed.tril() if causal else allowed), -torch.inf)
    torch.testing.assert_close(found, (scores.softmax(-1) @ value).transpose(1, 2))


@pytest.mark.parametrize("asked", [{"sliding_window": 4}, {"softcap": 30.0}, {"s_aux": torch.zeros(1)}, {"novel": 1}])
def test_attention_refuses_what_it_would_not_honour(asked):
    x = torch.zeros(1, 1, 2, 4)
    with pytest.raises(ModelError, match=next(iter(asked))):
        packed_attention(
            torch.nn.Module(), x, x, x, None, is_causal=False, probekit_groups=Groups(((0, 1, 2),)), **asked
        )
    with pytest.raises(ModelError, match="attention_mask"):
        packed_attention(torch.nn.Module(), x, x, x, x, is_causal=False, probekit_groups=Groups(((0, 1, 2),)))


def test_a_sliding_window_is_read_in_groups(tmp_path):
    folder = tiny.tiny_model("mistral", tmp_path, sliding_window=3)
    encoder = load_encoder(folder)
    assert encoder.spec["path"].startswith("grouped")
    with pytest.raises(ModelError, match="sliding_window"):
        load_encoder(folder, packing="packed")


LONGROPE = {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 8}
LONGROPE |= {"short_factor": [1.0] * 4, "long_factor": [4.0] * 4}


@pytest.mark.parametrize("family", ["llama", "gpt_neox"])
def test_positions_that_depend_on_the_longest_text_are_read_in_groups(family, tmp_path, monkeypatch):
    folder = tiny.tiny_model(family, tmp_path, rope_parameters=LONGROPE)
    encoder = load_encoder(folder)
    assert encoder.spec["path"].startswith("grouped")
    with pytest.raises(ModelError, match="longest sequence of a batch changes"):
        load_encoder(folder, packing="packed")
    monkeypatch.setattr(huggingface, "switches", lambda config: False)  # then the check of the packed path finds it
    with pytest.raises(ModelError, match="from the model.s own forward pass"):
        load_encoder(folder, packing="packed")
    stock = transformers.AutoModel.from_pretrained(folder).double().eval()
    for count in (30, 5, 9, 5):  # a long text before a short one changes nothing
        ids = np.random.default_rng(count).integers(50, size=count)
        with torch.no_grad():
            own = stock(input_ids=torch.tensor(ids)[None], output_hidden_states=True).hidden_states
        ours = huggingface.all_layers(encoder, Batch(ids, np.zeros(count, np.uint8), np.array([count])))
        for layer in range(3):
            torch.testing.assert_close(ours[layer].double(), own[layer][0], rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_control_leaking_attention_is_found(family, tiny_model, monkeypatch):
    monkeypatch.setitem(AttentionInterface._global_mapping, PACKED, leaking)
    assert load_encoder(tiny_model(family)).mixed_lengths is False
    with pytest.raises(ModelError, match="from the model.s own forward pass"):
        load_encoder(tiny_model(family), packing="packed")


@pytest.mark.parametrize("family", ["bert", "roberta", "llama"])
def test_control_wrong_positions_are_found(family, tiny_model, monkeypatch):
    if family == "llama":  # rotary positions are relative: a common shift is no mistake, a reversal is
        wrong = lambda ids, length, padding_id: positions_of(ids, length)[::-1].copy()  # noqa: E731
    else:
        wrong = lambda ids, length, padding_id: np.arange(len(ids))  # noqa: E731
    monkeypatch.setattr(huggingface, "positions_of", wrong)
    assert load_encoder(tiny_model(family)).mixed_lengths is False


def test_a_text_that_spells_padding_out(tiny_model):
    packed, grouped = (load_encoder(tiny_model("roberta"), packing=p) for p in ("packed", "grouped"))
    tokens = packed.tokenize(["the <pad> cat"])
    assert 1 in tokens.token_ids
    batch = Batch(tokens.token_ids, tokens.type_ids, tokens.length)
    one, two = (huggingface.all_layers(e, batch) for e in (packed, grouped))
    torch.testing.assert_close(one, two, rtol=1e-5, atol=1e-5)


def test_groups_of_equal_length_only(tiny_model):
    encoder = load_encoder(tiny_model("t5"))
    with pytest.raises(UsageError, match="one length"):
        encoder.encode(Batch(np.arange(3), np.zeros(3, np.uint8), np.array([1, 2])), lambda i, hidden: None)


def test_unknown_types_cannot_be_packed(tiny_model):
    with pytest.raises(ModelError, match="not known to work in packed form"):
        load_encoder(tiny_model("t5"), packing="packed")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("threads", [pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize(
    ("inner", "outer"),
    [(32, 48), (37, 30), (384, 96), (1536, 64), pytest.param(768, 3072, marks=pytest.mark.slow), (2048, 512)],
)
def test_prepacked_rows_do_not_depend_on_their_number(dtype, inner, outer, threads):
    """Wide layers, and numbers of rows about 32, are where oneDNN itself fails in bfloat16 on processors with AMX."""
    if not onednn_available(dtype):
        pytest.skip("oneDNN is not available here")
    generator = torch.Generator().manual_seed(0)
    weight = (torch.randn(outer, inner, generator=generator) / inner**0.5).to(dtype)
    bias, x = (torch.randn(*shape, generator=generator).to(dtype) for shape in ((outer,), (300, inner)))
    layer = PrepackedLinear(weight, bias)
    with torch.inference_mode(), torch_threads(threads):
        full = layer(x)
        error = (full.double() - (x.double() @ weight.T.double() + bias.double())).abs().max()
        assert error < (1e-5 if dtype is torch.float32 else 5e-2)
        assert layer(x[:0]).shape == (0, outer)
        for rows in (*range(1, 20), 31, 33, 60, 64, 129, 255, 257):
            assert torch.equal(layer(x[None, :rows]), full[None, :rows])
            assert torch.equal(layer(x[-rows:]), full[-rows:])


def test_control_rows_that_depend_on_their_number_are_found(monkeypatch):
    """A product that adds otherwise for few rows is tried out and then taken in equal parts."""

    class Splitting:
        _reorder_linear_weight = staticmethod(lambda weight: weight)

        @staticmethod
        def _linear_pointwise(x, weight, bias, *_):
            half = weight.shape[1] // 2 if len(x) < 64 else 1
            product = x[:, :half] @ weight[:, :half].T + x[:, half:] @ weight[:, half:].T
            return product if bias is None else product + bias

    monkeypatch.setattr(torch.ops, "mkldnn", Splitting)
    onednn._depends_on_rows.cache_clear()
    layer, x = PrepackedLinear(torch.randn(8, 40), torch.randn(8)), torch.randn(300, 40)
    onednn._depends_on_rows.cache_clear()
    assert layer.equal_rows
    assert all(torch.equal(layer(x[:n]), layer(x)[:n]) for n in (1, 5, 63, 64, 257))


def test_options_are_keywords_or_one_value(tiny_bert):
    one, other = (load_encoder(tiny_bert, **how) for how in ({"max_length": 8}, {"options": LoadOptions(max_length=8)}))
    assert one.spec == other.spec
    assert one.max_length == 8
    with pytest.raises(UsageError, match="load_encoder has no parameter 'devise'; did you mean device"):
        load_encoder(tiny_bert, devise="cpu")
    with pytest.raises(UsageError, match="packing is 'loose'; it must be one of auto, packed, grouped"):
        LoadOptions(packing="loose")
