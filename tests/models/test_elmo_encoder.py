"""ELMo as an Encoder: vectors that depend on the sentence alone, or (stateful) on what was read before it, as told."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_elmo import tiny_elmo

from probekit.activations.certify import certify
from probekit.errors import UsageError
from probekit.models import load_encoder
from probekit.models.elmo.characters import BEGIN, END, PADDING, character_ids
from probekit.models.elmo.encoder import WordTable
from probekit.models.elmo.files import convert_elmo
from probekit.models.elmo.lstm import ProjectedLSTM, Steps
from probekit.models.encoder import Batch
from probekit.models.transformers.encoder import all_layers
from probekit.models.transformers.onednn import onednn_available
from probekit.models.transformers.stock import load_model
from probekit.runtime import torch_threads
from probekit.sites import Site

words = st.text(st.sampled_from("abcé日😀'\ud800"), max_size=5) | st.sampled_from(
    ["a", "<S>", "</S>", "é" * 40, "x" * 60]
)
sentences = st.lists(words, max_size=9).filter(lambda s: len(s) != 1 or s[0].count(" ") < 2)
batches = st.lists(sentences, min_size=1, max_size=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    here = tmp_path_factory.mktemp("elmo")
    return convert_elmo(*tiny_elmo(here), here / "elmo")


@pytest.fixture(scope="module")
def encoder(folder):
    return load_encoder(folder, device="cpu")


@pytest.fixture(scope="module")
def loaded(folder):
    made = {}

    def load(dtype):
        if not onednn_available(getattr(torch, dtype)):
            pytest.skip(f"oneDNN, whose products do not depend on the batch, has no {dtype} here")
        if dtype not in made:
            made[dtype] = load_encoder(folder, dtype=dtype, device="cpu")
        return made[dtype]

    return load


def batch_of(encoder, texts):
    tokens = encoder.tokenize([text if isinstance(text, str) else (tuple(text),) for text in texts])
    return Batch(tokens.token_ids, tokens.type_ids, tokens.length, tokens.characters)


@torch_threads(1)
def layers_of(encoder, texts):
    """(layers, words, d) of each text, run in one batch as they come."""
    batch, found = batch_of(encoder, texts), []
    encoder.encode(batch, lambda _, hidden: found.append(hidden.clone()))
    return torch.stack(found).split(batch.length.tolist(), 1)


def naive(encoder, sentence):
    """The slow twin: one sentence, word by word, gate by gate, in float64, from the weights' names."""
    w = {name: x.double() for name, x in load_model(encoder.folder).state_dict().items()}
    config = encoder.model.config
    vectors = []
    for characters in [BEGIN, *character_ids(sentence), END]:
        x = w["embeddings.characters.weight"][torch.from_numpy(characters).long()]
        parts = []
        for i, (width, _) in enumerate(config.filters):
            weight, bias = w[f"embeddings.filters.{i}.weight"], w[f"embeddings.filters.{i}.bias"]
            parts.append(torch.stack([weight @ x[k : k + width].ravel() + bias for k in range(51 - width)]).amax(0))
        x = torch.cat(parts).relu()
        for i in range(config.n_highway):
            new, gate = (
                w[f"embeddings.highways.{i}.linear.weight"] @ x + w[f"embeddings.highways.{i}.linear.bias"]
            ).chunk(2)
            x = gate.sigmoid() * new.relu() + (1 - gate.sigmoid()) * x
        vectors.append(w["embeddings.projection.weight"] @ x + w["embeddings.projection.bias"])
    below = {way: torch.stack(vectors) for way in ("forward", "backward")}
    layers = [torch.cat([*below.values()], 1)]
    for layer in range(config.num_hidden_layers):
        for way, seen in below.items():
            name = f"layers.{layer}.{way}_lstm"
            h, c = torch.zeros(config.projection_dim).double(), torch.zeros(config.cells).double()
            out = torch.empty_like(seen)
            for t in range(len(seen)) if way == "forward" else reversed(range(len(seen))):
                gates = (
                    w[f"{name}.input.weight"] @ seen[t] + w[f"{name}.input.bias"] + w[f"{name}.recurrent.weight"] @ h
                )
                i, f, g, o = gates.chunk(4)
                c = (i.sigmoid() * g.tanh() + f.sigmoid() * c).clamp(-config.cell_clip, config.cell_clip)
                h = (w[f"{name}.projection.weight"] @ (o.sigmoid() * c.tanh())).clamp(
                    -config.proj_clip, config.proj_clip
                )
                out[t] = h + seen[t] if layer else h
            below[way] = out
        layers.append(torch.cat([*below.values()], 1))
    return torch.stack(layers)[:, 1:-1]


def test_the_definition(encoder):
    for sentence in (["a", "déjà", "vu"], ["z" * 60], ["日本"] * 12):
        (found,) = layers_of(encoder, [sentence])
        torch.testing.assert_close(found.double(), naive(encoder, sentence), atol=1e-5, rtol=1e-5)  # found 2e-6


def test_layers(encoder):
    assert [*map(str, encoder.sites)] == ["0", "1", "2"]
    assert encoder.widths == (12, 12, 12)
    assert encoder.spec["width"] == 12
    assert encoder.spec["layers"] == ["0", "1", "2"]
    assert encoder.mixed_lengths
    (found,) = layers_of(encoder, [["one", "two", "one"]])
    assert found.shape == (3, 3, 12)
    torch.testing.assert_close(found[0][:, :6], found[0][:, 6:], atol=0, rtol=0)  # a word's vector, twice
    torch.testing.assert_close(found[0][0], found[0][2], atol=0, rtol=0)
    assert not torch.equal(found[1][0], found[1][2])
    ahead, other = (layers_of(encoder, [["a", "b", last]])[0] for last in "cd")
    torch.testing.assert_close(ahead[:, :2, :6], other[:, :2, :6], atol=0, rtol=0)  # forward: not of what comes
    assert not torch.equal(ahead[1:, :2, 6:], other[1:, :2, 6:])


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_an_edited_layer_changes_what_is_above_and_nothing_below(encoder, layer):
    batch = batch_of(encoder, [["one", "two", "one"], ["three", "a"]])
    before = all_layers(encoder, batch)
    assert torch.equal(all_layers(encoder, batch, lambda site, hidden: hidden.clone()), before)
    after = all_layers(encoder, batch, lambda site, x: torch.zeros_like(x) if site == Site.parse(layer) else x)
    assert torch.equal(after[:layer], before[:layer])
    assert not after[layer].any()
    assert all(not torch.equal(after[i], before[i]) for i in range(layer + 1, 3))


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(batch=batches, order=st.randoms(use_true_random=False), room=st.integers(0, 4))
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_the_batch_does_not_matter(loaded, dtype, batch, order, room):
    """The same bits alone, in any batch and order, and whether words were met before or not."""
    encoder = loaded(dtype)
    encoder.table = WordTable(encoder.model, capacity=room, chunk=3)
    together = dict(zip(map(tuple, batch), layers_of(encoder, batch), strict=True))
    order.shuffle(batch)
    for sentence, again in zip(batch, layers_of(encoder, batch), strict=True):
        (alone,) = layers_of(encoder, [sentence])
        assert torch.equal(alone, together[tuple(sentence)])
        assert torch.equal(alone, again)
        assert len(encoder.table.known) <= room


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(batch=batches)
def test_the_models_own_forward(encoder, batch):
    batch = [s for s in batch if s]
    if batch:
        own = encoder.own_hidden_states(batch_of(encoder, batch))
        torch.testing.assert_close(torch.cat(layers_of(encoder, batch), 1), own, atol=2e-5, rtol=1e-4)
        longer = encoder.own_hidden_states(batch_of(encoder, batch), longest=20)
        torch.testing.assert_close(longer, own, atol=2e-5, rtol=1e-4)


@pytest.mark.slow
def test_threads_share_the_words(encoder):
    rng = np.random.default_rng(0)
    texts = [["".join(rng.choice(list("abc"), 3)) for _ in range(rng.integers(1, 20))] for _ in range(60)]
    alone = [layers_of(encoder, [text])[0] for text in texts]
    encoder.table = WordTable(encoder.model, capacity=8, chunk=2)
    wrong, failed = [], []

    def work(mine):
        try:
            for i in mine:
                found = []
                encoder.encode(
                    batch_of(encoder, [texts[i]]), lambda _, hidden, found=found: found.append(hidden.clone())
                )
                wrong.extend([i] if not torch.equal(torch.stack(found), alone[i]) else [])
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=work, args=(rng.permutation(60),)) for _ in range(4)]
    with torch_threads(1):
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == failed == []
    encoder.table = WordTable(encoder.model)


def test_words_are_read_once(encoder, monkeypatch):
    seen, inner = [], encoder.model.embeddings.forward
    monkeypatch.setattr(encoder.model.embeddings, "forward", lambda x: seen.append(len(x)) or inner(x))
    encoder.table = WordTable(encoder.model)
    layers_of(encoder, [["new", "words", "new"], ["words"]])
    layers_of(encoder, [["words", "new"], []])
    layers_of(encoder, [["newer", "words"]])
    assert seen == [4, 1]  # two, and what begins and ends a sentence


def test_characters():
    word = "é" * 30  # 60 bytes
    row = character_ids([word])[0]
    assert row.tolist() == [259, *[x + 1 for x in word.encode()[:48]], 260]
    cut_within = character_ids(["a" + word])[0]  # the 48th byte is half a letter
    assert cut_within[48] == "é".encode()[0] + 1
    assert character_ids([""])[0].tolist() == [259, 260, *[PADDING] * 48]
    assert character_ids(["😀"])[0][:6].tolist() == [259, *[x + 1 for x in "😀".encode()], 260]
    np.testing.assert_array_equal(character_ids(["a\ud800b"]), character_ids(["ab"]))
    np.testing.assert_array_equal(character_ids(["<S>", "</S>"]), [BEGIN, END])
    assert character_ids([]).shape == (0, 50)
    assert character_ids(["a"]).dtype == np.int16


def test_only_the_first_48_bytes_are_read(encoder):
    (one,), (two,) = (layers_of(encoder, [["x" * 48 + end]]) for end in ("", "yz"))
    assert torch.equal(one, two)
    assert not torch.equal(one, layers_of(encoder, [["x" * 47]])[0])


def test_tokens(encoder):
    text = 'Don\'t say "déjà vu".'
    tokens = encoder.tokenize([text, "", (("say", "n't"),)])
    assert tokens.length.tolist() == [8, 0, 2]
    spans = list(zip(tokens.char_start, tokens.char_end, strict=True))
    assert [text[a:b] for a, b in spans[:8]] == ["Do", "n't", "say", '"', "déjà", "vu", '"', "."]
    assert spans[8:] == [(0, 3), (0, 3)]
    assert tokens.word_index.tolist() == [*range(8), 0, 1]
    assert tokens.token_ids.tolist() == [0, 1, 2, 3, 4, 5, 3, 6, 2, 1]
    np.testing.assert_array_equal(tokens.characters, character_ids(["Do", "n't", "say", '"', "déjà", "vu", "."]))
    assert not tokens.special.any()
    assert not tokens.type_ids.any()
    kinds = {n: getattr(tokens, n).dtype for n in tokens.__slots__}
    assert kinds == {
        "token_ids": np.int32, "length": np.int64, "special": np.bool_, "type_ids": np.uint8, "word_index": np.int32,
        "char_start": np.int32, "char_end": np.int32, "truncated": np.bool_, "characters": np.int16,
    }  # fmt: skip


def test_a_shorter_length(folder, encoder):
    short = load_encoder(folder, max_length=3, device="cpu")
    tokens = short.tokenize(["a b c", "a b c d", "", "a"])
    assert tokens.length.tolist() == [3, 3, 0, 1]
    assert tokens.truncated.tolist() == [False, True, False, False]
    assert short.max_length == short.spec["max_length"] == short.spec["cut_at"] == 3
    assert not encoder.tokenize(["a " * 3000]).truncated.any()
    assert torch.equal(layers_of(short, ["a b c d"])[0], layers_of(encoder, ["a b c"])[0])
    for bad in (0, -1):
        with pytest.raises(UsageError, match=f"max_length is {bad}; it must be 1 or more"):
            load_encoder(folder, max_length=bad)


def test_empty_texts(encoder):
    found = layers_of(encoder, [["a"], [], ["b", "c"], []])
    assert [x.shape[1] for x in found] == [1, 0, 2, 0]
    assert torch.equal(found[0], layers_of(encoder, [["a"]])[0])
    assert layers_of(encoder, [[]])[0].shape == (3, 0, 12)


def test_states_are_carried(folder, encoder):
    stateful = load_encoder(folder, stateful=2, device="cpu")
    assert stateful.spec["stateful"] == 2
    first, second = ["a b", "c"], ["d e f", "g"]
    plain = [torch.cat(layers_of(encoder, texts), 1) for texts in (first, second)]
    one, two = (torch.cat(layers_of(stateful, texts), 1) for texts in (first, second))
    assert torch.equal(one, plain[0])  # the self-check of loading has left no state
    assert torch.equal(two[0], plain[1][0])  # words know of no state
    assert not torch.isclose(two[1:], plain[1][1:], atol=1e-3).all()
    stateful.state = None
    assert torch.equal(torch.cat(layers_of(stateful, first), 1), one)
    assert "stateful" not in encoder.spec


@pytest.mark.parametrize("clip", [None, 0.3, 50.0])
def test_the_librarys_lstm(clip):
    """What a GPU runs: torch.nn.LSTM as long as no limit is reached, and never what a limit would have changed."""
    torch.manual_seed(0)
    lstm = ProjectedLSTM(5, 3, 7, cell_clip=clip, proj_clip=clip).requires_grad_(False)
    steps = Steps.of(np.array([4, 1, 6, 4]))
    x, h, c = torch.randn(15, 5)[steps.forward], 0.2 * torch.randn(4, 3), 0.2 * torch.randn(4, 7)
    plain = lstm(x, steps.sizes, h, c)
    lstm.fused = True
    fused = lstm(x, steps.sizes, h, c)
    assert (lstm._by_library(x, steps.sizes, h, c) is None) == (clip == 0.3)
    for found, right in zip(fused, plain, strict=True):
        torch.testing.assert_close(
            found, right, **({"atol": 0, "rtol": 0} if clip == 0.3 else {"atol": 1e-6, "rtol": 0})
        )
    assert set(lstm.state_dict()) == {"input.weight", "input.bias", "recurrent.weight", "projection.weight"}


@pytest.mark.parametrize("which", ["cell_clip", "proj_clip"])
def test_a_limit_that_is_reached_once(which):
    """Just above the largest value the library's LSTM is kept, just below it is not."""
    torch.manual_seed(1)
    steps, x = Steps.of(np.array([9, 2])), torch.randn(11, 5)
    free = ProjectedLSTM(5, 3, 7).requires_grad_(False)
    zero = torch.zeros(2, 3), torch.zeros(2, 7)
    out, *_ = free(x, steps.sizes, *zero)
    if which == "proj_clip":
        largest = float(out.abs().max())
    else:  # of every step, not only of the last
        prefixes = [free(x[: sum(steps.sizes[:k])], steps.sizes[:k], *zero)[2] for k in range(1, 10)]
        largest = max(float(c.abs().max()) for c in prefixes)
    for limit, kept in ((1.001 * largest, True), (0.999 * largest, False)):
        lstm = ProjectedLSTM(5, 3, 7, **{which: limit}).requires_grad_(False)
        lstm.load_state_dict(free.state_dict())
        plain = lstm(x, steps.sizes, *zero)
        lstm.fused = True
        torch.testing.assert_close(lstm(x, steps.sizes, *zero), plain, atol=1e-6, rtol=0)
        assert (lstm._by_library(x, steps.sizes, *zero) is not None) is kept
        assert torch.equal(plain[0], out) is kept


def test_random_weights(folder, encoder):
    one, same, other = (load_encoder(folder, random_weights=seed, device="cpu") for seed in (0, 0, 1))
    text = ["a b c d"]
    assert torch.equal(layers_of(one, text)[0], layers_of(same, text)[0])
    assert not torch.isclose(layers_of(one, text)[0], layers_of(other, text)[0]).any()
    assert not torch.isclose(layers_of(one, text)[0], layers_of(encoder, text)[0]).any()


def test_random_weights_are_those_of_training(tmp_path):
    """The spreads that bilm-tf begins with; of the fewest numbers, 1152, a deviation is within 10 %."""
    cnn = {"filters": [[1, 32], [3, 32]], "embedding": {"dim": 12}}
    folder = convert_elmo(*tiny_elmo(tmp_path, lstm={"projection_dim": 32, "dim": 64}, **cnn), tmp_path / "elmo")
    net = load_model(folder, random_weights=0)
    right = {
        "embeddings.characters": 3**-0.5,  # uniform to 1
        "embeddings.filters.1": 0.05 * 3**-0.5,
        "embeddings.highways.1.linear": 64**-0.5,
        "embeddings.projection": 64**-0.5,
        "layers.1.backward_lstm.input": (2 / (64 + 256)) ** 0.5,  # Glorot's
        "layers.0.forward_lstm.recurrent": (2 / (64 + 256)) ** 0.5,
        "layers.1.forward_lstm.projection": (2 / (64 + 32)) ** 0.5,
    }
    for name, deviation in right.items():
        weight = net.get_submodule(name).weight
        assert float(weight.std()) == pytest.approx(deviation, rel=0.1)
        assert abs(float(weight.mean())) < 0.1 * deviation
    biases = {name: x for name, x in net.named_parameters() if name.endswith("bias")}
    for name, bias in biases.items():
        if name.endswith("input.bias"):
            assert bias.view(4, -1).unique(dim=1).tolist() == [[0], [1], [0], [0]]  # the forget gates begin open
        elif "highways" in name:
            assert bias.view(2, -1).unique(dim=1).tolist() == [[0], [-2]]  # and highways let words pass
        else:
            assert not bias.any()


@pytest.mark.parametrize(("dtype", "near"), [("bfloat16", 0.1), ("float16", 0.02)])
def test_half_precision(folder, encoder, dtype, near):
    half = load_encoder(folder, dtype=dtype, device="cpu")
    found, right = (layers_of(e, ["the cat sleeps"])[0].float() for e in (half, encoder))
    assert half.model.dtype is getattr(torch, dtype)
    assert float((found - right).norm() / right.norm()) < near
    assert not torch.equal(found, right)


@pytest.mark.parametrize("stateful", [pytest.param(0, marks=pytest.mark.slow), 2])
def test_certificate(folder, stateful):
    certificate = certify(load_encoder(folder, stateful=stateful, device="cpu"))
    lines = {line.check: line for line in certificate.lines}
    assert certificate.passed
    assert set(lines) == {"batch", "layers", "stock", "padding right", "state"}
    assert lines["batch"].verdict == lines["layers"].verdict == "bit-identical" or not onednn_available(torch.float32)
    assert lines["state"].passed is None
    assert lines["state"].relative > 0.01
    assert "depends on what was read before" in lines["state"].verdict
    assert certificate.texts == 11  # a pair is two


def test_options_for_other_models(folder, tiny_bert):
    with pytest.raises(UsageError, match="stateful is for ELMo, .* is of type 'bert'"):
        load_encoder(tiny_bert, stateful=2)
    with pytest.raises(UsageError, match="stateful is -1; it must be 0 or more"):
        load_encoder(folder, stateful=-1)
    for asked in ({"packing": "grouped"}, {"compile": True}):
        with pytest.raises(UsageError, match="is for transformers; .* is of type 'elmo'"):
            load_encoder(folder, **asked)
    with pytest.raises(UsageError, match="dtype is 'float8'; did you mean float32"):
        load_encoder(folder, dtype="float8")
    with pytest.raises(UsageError, match="packing is 'loose'; it must be one of auto, packed, grouped"):
        load_encoder(folder, packing="loose")
    with pytest.raises(UsageError, match="one sentence at a time"):
        load_encoder(folder).tokenize([("a b", "c d")])
