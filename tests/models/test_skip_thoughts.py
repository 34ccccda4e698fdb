"""Skip-thoughts: the originals' numbers, whatever the batch; words and their rows; training."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from thoughts import WORDS, publish, thoughts
from torch.nn.utils.rnn import pack_sequence

from probekit.activations.certify import certify
from probekit.adaptation.heads.pair import Rating
from probekit.adaptation.training.learners import FineTuning
from probekit.errors import ModelError, UsageError
from probekit.models import load_encoder
from probekit.models.encoder import Batch
from probekit.models.options import LoadOptions
from probekit.models.skip_thoughts.encoder import load_skip_thoughts
from probekit.models.skip_thoughts.files import convert_skip_thoughts
from probekit.models.skip_thoughts.model import SkipThoughtsConfig, SkipThoughtsModel
from probekit.models.transformers.encoder import all_layers
from probekit.models.transformers.onednn import onednn_available
from probekit.models.transformers.stock import load_model
from probekit.runtime import torch_threads

SHARED = Path(__file__).parents[2] / "../shared/goldens/task_models"
SENTENCES = ["dog", "the cat", "the zebra sat", "the cat sat on the mat ."]


def run(encoder, texts):
    """Layers (t, …) of texts, and where each begins."""
    tokens, layers = encoder.tokenize(texts), []
    encoder.encode(Batch(tokens.token_ids, tokens.type_ids, tokens.length), lambda i, x: layers.append(x.numpy()))
    return layers, np.cumsum(tokens.length) - tokens.length


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of a converted model with sentences' ends, and what was published."""
    folder = tmp_path_factory.mktemp("thoughts")
    arrays = publish(folder / "published")
    return convert_skip_thoughts(folder / "published", folder / "thoughts", use_eos=True), arrays


@pytest.fixture(scope="module")
def encoder(made):
    return load_skip_thoughts(made[0], LoadOptions(device="cpu"))


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason=f"the recorded outputs are not at {SHARED}")
@pytest.mark.parametrize("onednn", [True, False])
@pytest.mark.parametrize("use_eos", [False, True])
@pytest.mark.parametrize("normalise", [False, True])
def test_the_original(tmp_path, normalise, use_eos, onednn):
    """Recorded of skipthoughts.py; the largest difference measured is 1.8e-7."""
    told = json.loads((SHARED / "skipthoughts_tiny_meta.json").read_text())
    with np.load(SHARED / "skipthoughts_tiny.npz") as file:
        recorded = dict(file)
    for name in ("uni", "bi"):
        arrays = {key.removeprefix(f"{name}/"): x for key, x in recorded.items() if key.startswith(f"{name}/")}
        np.savez(tmp_path / f"{name}_skip.npz", **arrays)
    for name in ("utable", "btable"):
        np.save(tmp_path / f"{name}.npy", recorded[name])
    (tmp_path / "dictionary.txt").write_text("\n".join(told["dictionary"]))
    folder = convert_skip_thoughts(
        tmp_path, tmp_path / "model", splitting="blanks", use_eos=use_eos, normalise=normalise
    )
    encoder = load_skip_thoughts(folder, LoadOptions(device="cpu", onednn=onednn))
    (uni, bi, combined), start = run(encoder, sorted(told["sentences"], key=lambda s: len(s.split())))
    order = np.argsort([len(s.split()) for s in told["sentences"]], kind="stable")
    wanted = recorded[f"out_{'norm' if normalise else 'raw'}{'_eos' if use_eos else ''}"][order]
    last = np.append(start[1:], len(uni)) - 1
    np.testing.assert_allclose(combined[last], wanted, rtol=0, atol=5e-7)
    np.testing.assert_array_equal(np.concatenate([uni, bi], 1), combined)


def test_every_word_by_the_definition(made, encoder):
    """Measured: 2e-7."""
    (uni, bi, combined), start = run(encoder, SENTENCES)
    assert ([str(site) for site in encoder.sites], encoder.widths) == (["uni", "bi", "combined"], (5, 8, 13))
    assert combined.shape == (len(uni), 13)
    for text, a in zip(SENTENCES, start, strict=True):
        ids = [*(WORDS.index(w) if w in WORDS else 1 for w in text.split()), 0]
        for found, wanted in zip((uni, bi), thoughts(made[1], ids), strict=True):
            np.testing.assert_allclose(found[a : a + len(ids)], wanted, rtol=0, atol=1e-6)


def test_what_is_combined_is_above_what_is_edited(encoder):
    tokens = encoder.tokenize(SENTENCES)
    length = np.sort(tokens.length[tokens.length > 0])
    batch = Batch(tokens.token_ids, tokens.type_ids, length)
    before = all_layers(encoder, batch)
    after = all_layers(encoder, batch, lambda site, x: torch.zeros_like(x) if site.name == "uni" else x)
    assert not after[0].any()
    assert torch.equal(after[1], before[1])
    assert torch.equal(after[2][:, 5:], before[2][:, 5:])
    assert not after[2][:, :5].any()


def test_it_is_torchs_gru(made):
    net = load_model(made[0])
    theirs = torch.nn.GRU(6, 5)
    ours = net.blocks[0].uni
    with torch.no_grad():
        theirs.weight_ih_l0.copy_(ours.input.weight)
        theirs.weight_hh_l0.copy_(ours.recurrent.weight)
        theirs.bias_ih_l0.copy_(ours.input.bias)
        theirs.bias_hh_l0.zero_()
        sentences = [torch.randn(n, 6, generator=torch.Generator().manual_seed(n)) for n in (5, 3, 3, 1)]
        packed = pack_sequence(sentences)
        torch.testing.assert_close(ours(packed.data, packed.batch_sizes.tolist()), theirs(packed)[0].data)


@pytest.mark.parametrize("threads", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_no_number_depends_on_the_batch(tmp_path, threads):
    """Nor on the threads; 300 sentences are enough for torch to split its work."""
    if not onednn_available(torch.float32):
        pytest.skip("only oneDNN's products keep to that")
    publish(tmp_path / "published", uni=77, bi=45, width=31)
    encoder = load_skip_thoughts(
        convert_skip_thoughts(tmp_path / "published", tmp_path / "model"), LoadOptions(device="cpu")
    )
    assert encoder.spec["path"] == "packed+onednn"
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS[2:8], size=n)) for n in sorted(rng.integers(1, 20, size=300))]
    with torch_threads(threads):
        together, start = run(encoder, texts)
        halves = [run(encoder, half)[0] for half in (texts[:7], texts[7:])]
    for text, a in zip(texts[::10], start[::10], strict=True):
        for alone, all_ in zip(run(encoder, [text])[0], together, strict=True):
            np.testing.assert_array_equal(alone, all_[a : a + len(alone)])
    for found, parts in zip(together, zip(*halves, strict=True), strict=True):
        np.testing.assert_array_equal(found, np.concatenate(parts))


class TestModel:
    def test_padded(self, made, encoder):
        """What fine-tuning runs: rows of words as the encoder gives them, 0 at padding."""
        net = load_model(made[0])
        tokens = encoder.tokenize(SENTENCES)
        mask = torch.arange(9) < torch.from_numpy(tokens.length)[:, None]
        ids = torch.full(mask.shape, 7)
        ids[mask] = torch.from_numpy(tokens.token_ids).long()
        out = net(ids, attention_mask=mask.long()).last_hidden_state
        np.testing.assert_allclose(out[mask], run(encoder, SENTENCES)[0][2], rtol=0, atol=1e-6)
        assert not out[~mask].any()
        assert net.config.hidden_size == out.shape[-1]
        torch.testing.assert_close(net(ids[3:, :8]).last_hidden_state[0], out[3, :8])

    def test_it_is_trained_but_not_its_words(self, made, encoder):
        net = load_model(made[0]).requires_grad_(requires_grad=True)
        words = net.uni_words.clone()
        torch.manual_seed(0)
        learner = FineTuning(net, Rating(13, 1, pooling="last"))
        groups = learner.groups()
        assert [name for name, _ in groups] == ["block 1", "head"]
        assert len(groups[0][1]) == 9
        ids = torch.tensor([[3, 4, 0], [8, 4, 0]])
        inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids), "special": ids == 0}
        second = inputs | {"input_ids": ids.flip(0)[:, [1, 0, 2]]}
        labels = torch.tensor([1.0, 4.5])
        optimiser, losses = torch.optim.Adam(learner.parameters(), 0.02), []
        for _ in range(60):
            losses.append(learner(labels, inputs, second)["loss"])
            optimiser.zero_grad()
            losses[-1].backward()
            assert all(p.grad is not None and p.grad.any() for p in net.parameters())
            optimiser.step()
        assert losses[-1] < 0.2 * losses[0]
        assert torch.equal(net.uni_words, words)

    def test_saved_and_loaded(self, made, tmp_path):
        net = load_model(made[0])
        net.save_pretrained(tmp_path)
        again = load_model(tmp_path)
        assert net.state_dict().keys() == again.state_dict().keys()
        assert all(torch.equal(x, again.state_dict()[name]) for name, x in net.state_dict().items())
        assert (again.config.use_eos, again.config.normalise) == (True, True)

    def test_random_weights(self, made):
        one, same, other = (load_model(made[0], random_weights=seed).state_dict() for seed in (0, 0, 1))
        for name, x in one.items():
            assert torch.equal(x, same[name])
            if name.endswith("bias"):
                assert not x.any()
            else:
                assert not torch.equal(x, other[name])
            if name.endswith("recurrent.weight"):
                for gate in x.chunk(3):
                    torch.testing.assert_close(gate @ gate.T, torch.eye(len(gate)), rtol=0, atol=1e-6)
            else:
                assert 0.09 < x.abs().max() <= 0.1 or name.endswith("bias")

    def test_the_published_sizes_are_the_defaults(self):
        config = SkipThoughtsConfig()
        assert (config.hidden_size, config.num_hidden_layers, config.vocab_size) == (4800, 1, 930911)
        with torch.device("meta"):
            net = SkipThoughtsModel(config)
        shapes = {name: tuple(x.shape) for name, x in net.state_dict().items()}
        assert shapes["blocks.0.uni.recurrent.weight"] == (7200, 2400)
        assert shapes["blocks.0.back.input.weight"] == (3600, 620)

    def test_a_word_of_zeros_has_no_direction(self):
        net = SkipThoughtsModel(SkipThoughtsConfig(3, 4, 4, 3, 2))
        net.uni_words.zero_()
        assert not net(torch.tensor([[1, 2]])).last_hidden_state[..., :3].any()


class TestWords:
    def test_rows(self, encoder):
        tokens = encoder.tokenize(["The cat sat.", (("the", "mat"),), ""])
        assert [WORDS[i] for i in tokens.token_ids] == ["UNK", "cat", "sat", ".", "<eos>", "the", "mat", *["<eos>"] * 2]
        assert tokens.length.tolist() == [5, 3, 1]
        assert tokens.special.nonzero()[0].tolist() == [4, 7, 8]
        assert tokens.word_index.tolist() == [0, 1, 2, 3, -1, 0, 1, -1, -1]
        assert tokens.char_start.tolist() == [0, 4, 8, 11, 0, 0, 0, 0, 0]
        assert tokens.char_end.tolist() == [3, 7, 11, 12, 0, 3, 3, 0, 0]
        assert not tokens.truncated.any()

    def test_quotation_marks_have_the_rows_that_the_tokenizer_gives_them(self, encoder):
        tokens = encoder.tokenize(['the "cat" sat', "the cat"])
        assert [WORDS[i] for i in tokens.token_ids[:6]] == ["the", "``", "cat", "''", "sat", "<eos>"]
        assert tokens.char_start[:5].tolist() == [0, 4, 5, 8, 10]
        given = encoder.tokenize([(("the", '"', "cat"),)])
        assert [WORDS[i] for i in given.token_ids] == ["the", "UNK", "cat", "<eos>"]

    def test_cut(self, made):
        short = load_skip_thoughts(made[0], LoadOptions(device="cpu", max_length=3))
        tokens = short.tokenize(['the "cat" sat', "the cat", "dog"])
        assert [WORDS[i] for i in tokens.token_ids] == ["the", "``", "<eos>", "the", "cat", "<eos>", "dog", "<eos>"]
        assert tokens.truncated.tolist() == [True, False, False]
        assert (short.max_length, short.spec["cut_at"]) == (3, 3)
        with pytest.raises(UsageError, match="reads 2 or more pieces, but max_length is 1"):
            load_skip_thoughts(made[0], LoadOptions(device="cpu", max_length=1))

    def test_without_ends_nothing_is_read_of_nothing(self, tmp_path):
        publish(tmp_path / "published")
        encoder = load_skip_thoughts(
            convert_skip_thoughts(tmp_path / "published", tmp_path / "model"), LoadOptions(device="cpu")
        )
        tokens = encoder.tokenize(["", "the cat", " "])
        assert (tokens.length.tolist(), tokens.special.any()) == ([0, 2, 0], False)

    def test_another_vocabulary(self, tmp_path):
        publish(tmp_path / "published")
        folder = convert_skip_thoughts(tmp_path / "published", tmp_path / "model")
        (folder / "vocab.txt").write_text("UNK\nthe\n")
        with pytest.raises(ModelError, match=r"vocab.txt has 2 words; expected 11"):
            load_skip_thoughts(folder, LoadOptions(device="cpu"))
        (folder / "vocab.txt").write_bytes(b"\xff")
        with pytest.raises(ModelError, match="cannot be read"):
            load_skip_thoughts(folder, LoadOptions(device="cpu"))


def test_certificate(made):
    certificate = certify(made[0])
    assert certificate.passed
    assert [line.check for line in certificate.lines] == ["batch", "layers", "stock", "padding right"]


def test_what_is_told_of_it(made, encoder):
    spec = encoder.spec
    assert (spec["model_type"], spec["class"], spec["dtype"]) == ("skip-thoughts", "SkipThoughtsModel", "float32")
    assert (spec["layers"], spec["width"], spec["device"]) == (["uni", "bi", "combined"], 13, "cpu")
    assert len(spec["weights_digest"]) == len(spec["tokenizer_digest"]) == 32
    assert set(encoder.versions) == {"torch", "transformers", "nltk", "self_check"}
    assert json.loads(json.dumps(spec)) == spec
    with pytest.raises(UsageError, match="dtype is 'float8'; did you mean float32"):
        load_encoder(made[0], dtype="float8")
