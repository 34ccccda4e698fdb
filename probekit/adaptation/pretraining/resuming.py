"""Checkpoints from which a pretraining resumes to the same bytes: weights, the optimiser's state and the log."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, load_model, save_file, save_model
from torch import Tensor, nn

from probekit.adaptation.runs.digests import seal, whole_checkpoints
from probekit.adaptation.runs.folder import RESUME
from probekit.files import remove
from probekit.models.folder import writing_tensors

__all__ = ["resume", "write_checkpoint"]


def write_checkpoint(
    model: nn.Module, optimizer: torch.optim.Optimizer, log: list[dict[str, Any]], out: Path, step: int
) -> None:
    """Write a checkpoint of the run ``out``; the previous one stays in case this one is damaged."""
    folder = out / RESUME / f"checkpoint-{step}"
    remove(folder)
    folder.mkdir(parents=True)
    with writing_tensors(folder / "model.safetensors"):
        save_model(model, str(folder / "model.safetensors"))
    state = {
        f"{name}.{what}": value.contiguous()
        for name, parameter in _parameters(optimizer)
        for what, value in optimizer.state.get(parameter, {}).items()
    }
    with writing_tensors(folder / "optimizer.safetensors"):
        save_file(state, str(folder / "optimizer.safetensors"))
    (folder / "trainer_state.json").write_text(json.dumps({"log_history": log}), encoding="utf-8")
    seal(folder)
    known = sorted((out / RESUME).glob("checkpoint-*"), key=lambda f: int(f.name[11:]))
    for old in known[:-2]:
        remove(old)


def resume(model: nn.Module, optimizer: torch.optim.Optimizer, out: Path) -> tuple[list[dict[str, Any]], int]:
    """Restore the newest complete checkpoint; returns its log and the next step."""
    for log, folder in whole_checkpoints(out / RESUME, lambda _: True):
        load_model(model, folder / "model.safetensors")
        stored = load_file(folder / "optimizer.safetensors")
        for name, parameter in _parameters(optimizer):
            state: dict[str, Tensor] = {
                key.rpartition(".")[2]: value.to(parameter.device)
                for key, value in stored.items()
                if key.rpartition(".")[0] == name
            }
            if state:
                optimizer.state[parameter] = state
        return list(log), int(folder.name[11:])
    return [], 0


def _parameters(optimizer: torch.optim.Optimizer) -> Iterator[tuple[str, nn.Parameter]]:
    """The trained parameters with names by group and place."""
    for i, group in enumerate(optimizer.param_groups):
        for j, parameter in enumerate(group["params"]):
            yield f"{i}.{j}", parameter
