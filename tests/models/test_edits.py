"""Hidden states that are changed on their way: what is above follows, what is below does not."""

import pytest
import torch
from test_layers import TEXTS, batches, joined

from probekit.errors import UsageError
from probekit.models import load_encoder
from probekit.models.transformers.encoder import all_layers
from probekit.sites import FINAL_NORM, Site

FAMILIES = ["bert", "gpt2", "albert", "t5"]


def encoder_and_batch(folder):
    encoder = load_encoder(folder)
    parts = sorted(batches(encoder.tokenize(TEXTS)), key=lambda batch: batch.length[0])
    return encoder, joined(parts) if encoder.mixed_lengths else parts[0]


def zeroing(site):
    return lambda here, hidden: torch.zeros_like(hidden) if here == site else hidden


@pytest.mark.parametrize(
    "edit", [pytest.param(lambda site, hidden: hidden, marks=pytest.mark.slow), lambda site, hidden: hidden.clone()]
)
@pytest.mark.parametrize("family", FAMILIES)
def test_an_edit_that_changes_nothing_gives_the_same_bits(family, edit, tiny_model):
    encoder, batch = encoder_and_batch(tiny_model(family))
    assert torch.equal(all_layers(encoder, batch, edit), all_layers(encoder, batch))


@pytest.mark.parametrize("layer", [0, pytest.param(1, marks=pytest.mark.slow), 2])
@pytest.mark.parametrize("family", FAMILIES)
def test_zeroing_a_layer_changes_what_is_above_and_nothing_below(family, layer, tiny_model):
    encoder, batch = encoder_and_batch(tiny_model(family))
    before, after = all_layers(encoder, batch), all_layers(encoder, batch, zeroing(Site.parse(layer)))
    at = encoder.sites.index(Site.parse(layer))
    assert torch.equal(after[:at], before[:at])
    assert not after[at].any()
    assert all(not torch.equal(a, b) for a, b in zip(after[at + 1 :], before[at + 1 :], strict=True))
    assert len(before) > at + 1
    assert torch.equal(all_layers(encoder, batch), before)  # nothing of it is left behind


def test_the_last_layers(tiny_gpt2):
    """What leaves the last block goes through the final norm, behind which there is nothing."""
    encoder, batch = encoder_and_batch(tiny_gpt2)
    before, last = all_layers(encoder, batch), encoder.sites[-2]
    after = all_layers(encoder, batch, zeroing(last))
    assert torch.equal(after[:-2], before[:-2])
    assert torch.equal(after[-1], encoder.model.ln_f.bias.expand_as(after[-1]))
    normed = all_layers(encoder, batch, zeroing(FINAL_NORM))
    assert torch.equal(normed[:-1], before[:-1])
    assert not normed[-1].any()


def test_an_edit_sees_the_sites_in_order_and_the_rows_that_are_kept(tiny_bert):
    encoder, batch = encoder_and_batch(tiny_bert)
    seen = []
    all_layers(encoder, batch, lambda site, hidden: seen.append((site, tuple(hidden.shape))) or hidden)
    assert seen == [(site, (len(batch.token_ids), d)) for site, d in zip(encoder.sites, encoder.widths, strict=True)]


@pytest.mark.parametrize("wrong", [lambda hidden: hidden[:1], lambda hidden: hidden.double()])
def test_an_edit_that_does_not_fit_is_refused(tiny_bert, wrong):
    encoder, batch = encoder_and_batch(tiny_bert)
    with pytest.raises(UsageError, match="the edit of 0 returned"):
        all_layers(encoder, batch, lambda site, hidden: wrong(hidden))
