"""BERT's optimiser: the numbers of google-research/bert, and its state."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn.utils import clip_grad_norm_

from probekit.adaptation.options import Hyperparameters, TrainOptions
from probekit.adaptation.training.schedules import BertAdamW, Schedule, build
from probekit.adaptation.training.trainer import _optimizer
from probekit.errors import UsageError

GOLDEN = Path(__file__).parents[2] / "../shared/goldens/task_models/bert_adamw.npz"


@pytest.mark.shared
@pytest.mark.skipif(not GOLDEN.exists(), reason=f"the recorded outputs are not at {GOLDEN}")
@pytest.mark.parametrize("case", ["warm2_of_20", "nowarm_20", "warm10pct_of_13"])
def test_numbers_of_google_research(case):
    recorded = np.load(GOLDEN)
    steps = len(recorded[f"{case}/loss"])
    w, b, gamma = (torch.nn.Parameter(torch.from_numpy(recorded[name])) for name in ("W0", "b0", "gamma0"))
    optimizer = BertAdamW([{"params": [w], "weight_decay": 0.01}, {"params": [b, gamma], "weight_decay": 0.0}], lr=0.05)
    warmup = {"warm2_of_20": 0.1, "nowarm_20": 0.0, "warm10pct_of_13": 0.1}[case]
    scheduler, _ = build(optimizer, [], Hyperparameters(schedule=Schedule.BERT, epochs=1, warmup=warmup), steps)
    for t in range(steps):
        x, y = (torch.from_numpy(recorded[name][t]) for name in "XY")
        optimizer.zero_grad()
        loss = (((x @ w + b) * gamma - y) ** 2).mean()
        loss.backward()
        norm = clip_grad_norm_([w, b, gamma], 1.0)
        rate = scheduler.get_last_lr()[0]
        optimizer.step()
        scheduler.step()
        # float32 rounds differently in TensorFlow: the weights differ by 3.6e-7 at most, loss and norm by two ulp
        for name, ours in {"loss": loss, "W": w, "b": b, "gamma": gamma}.items():
            np.testing.assert_allclose(ours.detach(), recorded[f"{case}/{name}"][t], atol=5e-7, rtol=5e-7, err_msg=name)
        assert norm.item() == pytest.approx(recorded[f"{case}/grad_norm"][t], rel=5e-7)
        assert rate == pytest.approx(recorded[f"{case}/lr"][t], abs=1e-8)


AMSGRAD = Path(__file__).parents[2] / "../shared/goldens/regularisation/regularisation.npz"


@pytest.mark.shared
@pytest.mark.skipif(not AMSGRAD.exists(), reason=f"the recorded outputs are not at {AMSGRAD}")
@pytest.mark.parametrize("case", [0, 1, 2])
def test_amsgrad_is_that_of_torch(case):
    """That of Reddi et al. (2018, algorithm 2) has no bias corrections: it differs visibly."""
    recorded = {name: array for name, array in np.load(AMSGRAD).items() if name.startswith(f"amsgrad/{case}/")}
    rate, *betas, eps, decay = recorded[f"amsgrad/{case}/settings"].tolist()
    p = torch.nn.Parameter(torch.zeros(recorded[f"amsgrad/{case}/grads"].shape[1:], dtype=torch.float64))
    options = TrainOptions(optimizer="amsgrad", learning_rate=rate, weight_decay=decay)
    optimizer = _optimizer([("head", [("w", p)])], options)
    for group in optimizer.param_groups:
        group |= {"betas": tuple(betas), "eps": eps, "weight_decay": decay}  # a vector would not be decayed
    path = []
    for grad in recorded[f"amsgrad/{case}/grads"]:
        p.grad = torch.from_numpy(grad)
        optimizer.step()
        path.append(p.detach().numpy().copy())
    np.testing.assert_allclose(path, recorded[f"amsgrad/{case}/torch_amsgrad1"], rtol=0, atol=1e-12)
    assert np.abs(np.array(path) - recorded[f"amsgrad/{case}/torch_amsgrad0"]).max() > 1e-6


def test_the_first_step_is_not_corrected():
    p = torch.nn.Parameter(torch.tensor([2.0]))
    optimizer = BertAdamW([p], lr=0.1, weight_decay=0.5)
    p.grad = torch.tensor([3.0])
    optimizer.step()
    # m = 0.1 g, v = 0.001 g², so the ratio is 0.1 / sqrt(0.001) whatever g
    assert p.item() == pytest.approx(2 - 0.1 * (0.1 / 0.001**0.5 + 0.5 * 2), rel=1e-5)


def test_state_goes_on_where_it_was(tmp_path):
    def run(stop: int | None) -> torch.Tensor:
        p = torch.nn.Parameter(torch.linspace(-1, 1, 5))
        optimizer = BertAdamW([p], lr=0.1)
        for t in range(6):
            if t == stop:
                torch.save(optimizer.state_dict(), tmp_path / "state.pt")
                optimizer = BertAdamW([p], lr=0.7)
                optimizer.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
            p.grad = torch.cos(p.detach() + t)
            optimizer.step()
        return p.detach()

    assert torch.equal(run(None), run(3))


def test_what_has_no_gradient_stays():
    still, moved = (torch.nn.Parameter(torch.ones(3)) for _ in range(2))
    optimizer = BertAdamW([still, moved], lr=0.1, weight_decay=0.1)
    moved.grad = torch.ones(3)
    optimizer.step()
    assert torch.equal(still, torch.ones(3))
    assert (moved < 1).all()


@pytest.mark.parametrize("wrong", [{"lr": -1.0}, {"betas": (0.9, 1.0)}, {"eps": 0.0}, {"weight_decay": -0.1}])
def test_settings_out_of_range(wrong):
    with pytest.raises(UsageError, match="lr ≥ 0, betas"):
        BertAdamW([torch.nn.Parameter(torch.ones(1))], **wrong)
