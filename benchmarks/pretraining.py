"""Training steps per second of the BiLSTM of Bowman et al. (2018), beside a plain PyTorch loop over the same modules.

    python benchmarks/pretraining.py           the paper's size, pairs of MNLI; some minutes
    python benchmarks/pretraining.py --quick   a small model and three steps: whether everything runs, not a measurement

"plain" pads each batch, sends each place of it through the character CNN (convolutions over all 50 characters), and
runs torch.nn.LSTM on packed sequences; "plain, padded" replaces the packed LSTM with torch.lstm on padded rows, turned
for the backward direction, which lets torch use oneDNN. "ours" is the encoder as `probekit train` runs it. All have the
same weights, batches, head (maximum over the states, [u; v; |u - v|; u v], one linear layer) and optimiser (Adam with
AMSGrad, fused, rate 1e-4), and no dropout, so that their losses can be compared; the CNN is frozen.

The sides take turns at each batch, in one process; a ratio is that of the sums over the same steps. Times are CPU
seconds of the process. The first steps are not counted. Ours has met the words of the batches before, as in training
after a while; how long that took is reported, once for each distinct word. "products" are the matrix
products of ours alone (LSTMs forward and backward, with prepacked weights), which nothing that trains these LSTMs on
this processor can undercut by much.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
import torch
from cache import SHARED, Goal, show_goals, table
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from probekit.adaptation.data.text import TextData
from probekit.adaptation.heads.bilstm import run_turned
from probekit.models.bilstm.config import BiLSTMConfig
from probekit.models.bilstm.model import BiLSTMModel
from probekit.models.bilstm.reader import CharactersWithEnds
from probekit.models.elmo.lstm import Steps
from probekit.models.elmo.model import CharacterEncoder
from probekit.models.transformers.onednn import PrepackedLinear, onednn_linear, train_with_onednn
from probekit.tasks import Task, load_task

Inputs = dict[str, Tensor]
PAPER: dict[str, Any] = {"cells": 1024}
SMALL: dict[str, Any] = {
    "cells": 64,
    "elmo": {"char_dim": 4, "filters": [[1, 8], [2, 16], [3, 32]], "n_highway": 1, "projection_dim": 32},
}


class Plain(nn.Module):
    """The encoder as one writes it in PyTorch; packed : whether the LSTM reads packed sequences."""

    def __init__(self, model: BiLSTMModel, *, packed: bool) -> None:
        super().__init__()
        config, cnn, self.packed = model.config, model.elmo.embeddings, packed
        self.cnn: CharacterEncoder = cnn
        self.convolutions = nn.ModuleList()
        for (width, count), linear in zip(config.elmo["filters"], cnn.filters.values(), strict=True):
            convolution = nn.Conv1d(config.elmo["char_dim"], count, width)
            convolution.weight.data = linear.weight.detach().view(count, width, -1).transpose(1, 2).contiguous()
            convolution.bias.data = linear.bias.detach().clone()
            self.convolutions.append(convolution)
        self.requires_grad_(requires_grad=False)
        width, cells, depth = config.embedding_size, config.cells, config.num_hidden_layers
        self.lstm = nn.LSTM(width, cells, depth, bidirectional=True, batch_first=True)
        for i, layer in enumerate(model.layers):
            for lstm, end in ((layer.forward_lstm, ""), (layer.backward_lstm, "_reverse")):
                for kind, linear in (("ih", lstm.input), ("hh", lstm.recurrent)):
                    getattr(self.lstm, f"weight_{kind}_l{i}{end}").data = linear.weight.detach().clone()
                    getattr(self.lstm, f"bias_{kind}_l{i}{end}").data = linear.bias.detach().clone()

    @torch.no_grad()
    def words(self, characters: Tensor) -> Tensor:
        """Vectors (b, t, d) of characters (b, t, 50)."""
        embedded = self.cnn.characters(characters.flatten(0, 1).long()).transpose(1, 2)
        found = torch.cat([convolution(embedded).amax(-1) for convolution in self.convolutions], -1)
        return self.cnn.projection(self.cnn.highways(self.cnn.activation(found))).unflatten(0, characters.shape[:2])

    def forward(self, inputs: Inputs) -> Tensor:
        """States (b, t, width) of a padded batch."""
        mask = inputs["attention_mask"].bool()
        x = self.words(inputs["characters"][inputs["input_ids"]])
        if self.packed:
            packed = pack_padded_sequence(x, mask.sum(1), batch_first=True, enforce_sorted=False)
            states = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)[0]
        else:
            states = run_turned(self.lstm, x, mask)
        return torch.cat([states, x], -1)


class Ours(nn.Module):
    """The encoder of probekit, as training prepares it."""

    def __init__(self, model: BiLSTMModel) -> None:
        super().__init__()
        self.encoder = model
        train_with_onednn(self)

    def forward(self, inputs: Inputs) -> Tensor:
        return self.encoder(**{k: v for k, v in inputs.items() if k != "special"}).last_hidden_state


class Side:
    """One way of training, with its head and optimiser."""

    def __init__(self, encoder: nn.Module, width: int) -> None:
        generator = torch.Generator().manual_seed(0)
        self.encoder = encoder.train()
        self.head = torch.randn(3, 4 * width, generator=generator).mul_(0.02).requires_grad_()
        trained = [p for p in encoder.parameters() if p.requires_grad]
        self.optimiser = torch.optim.Adam([*trained, self.head], lr=1e-4, amsgrad=True, fused=True)
        self.seconds: list[float] = []
        self.losses: list[float] = []

    def step(self, batch: Any) -> None:
        begin = process_time()
        self.optimiser.zero_grad()
        u, v = (self.pooled(batch[name]) for name in ("first", "second"))
        logits = functional.linear(torch.cat([u, v, (u - v).abs(), u * v], -1), self.head)
        loss = functional.cross_entropy(logits, batch["labels"])
        loss.backward()
        self.optimiser.step()
        self.losses.append(loss.item())
        self.seconds.append(process_time() - begin)

    def pooled(self, inputs: Inputs) -> Tensor:
        padding = inputs["attention_mask"].unsqueeze(-1) == 0
        return self.encoder(inputs).masked_fill(padding, -torch.inf).amax(1)


def products(batch: Any, config: BiLSTMConfig) -> float:
    """CPU seconds of the matrix products of one step of ours."""
    seconds, cells = 0.0, config.cells
    generator = torch.Generator().manual_seed(0)

    def drawn(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def timed(work: Callable[[], object]) -> float:
        begin = process_time()
        with torch.inference_mode():
            work()
        return process_time() - begin

    for name in ("first", "second"):
        length = batch[name]["attention_mask"].sum(1).numpy()
        sizes, t = Steps.of(length).sizes, int(length.sum())
        gates, states = drawn(t, 4 * cells), drawn(t, cells)
        there, back = PrepackedLinear(drawn(4 * cells, cells), None), PrepackedLinear(drawn(cells, 4 * cells), None)
        for layer in range(config.num_hidden_layers):
            width = 2 * cells if layer else config.embedding_size
            x, weight = drawn(t, width), drawn(4 * cells, width)
            turned = [y.T.contiguous() for y in (gates, x, states, weight)]
            seconds += 2 * timed(lambda x=x, w=weight: onednn_linear(x, w))
            seconds += 2 * timed(lambda f=there, h=states, n=sizes[1:]: [f(h[:k]) for k in n])
            seconds += 2 * timed(lambda f=back, g=gates, n=sizes[1:]: [f(g[:k]) for k in n])
            seconds += 2 * timed(lambda y=turned: [onednn_linear(y[0], y[1]), onednn_linear(y[0], y[2])])
            if layer:  # below is the frozen CNN
                seconds += 2 * timed(lambda g=gates, y=turned: onednn_linear(g, y[3]))
    return seconds


def batches(task: Task, size: int, steps: int, *, grouped: bool) -> list[Any]:
    """Batches of pairs: as they come, or (grouped) drawn from pairs of similar length."""
    data = TextData(task, task.split("train"), CharactersWithEnds(max_length=40), apart=True)
    rng = np.random.default_rng(0)
    order = rng.permutation(len(data))
    if grouped:
        order = order[np.argsort(data.length[order], kind="stable")]
    starts = rng.permutation(len(order) // size)[:steps] * size
    return [data.__getitems__(order[i : i + size].tolist()) for i in starts]


def measure(task: Task, settings: Any, size: int, steps: int, warm: int, *, grouped: bool) -> dict[str, Any]:
    torch.manual_seed(0)
    config = BiLSTMConfig(**settings, dropout=0.0)
    model = BiLSTMModel(config)
    plain = {"plain": Plain(model, packed=True), "plain, padded": Plain(model, packed=False)}
    sides = {name: Side(net, config.hidden_size) for name, net in {**plain, "ours": Ours(model)}.items()}
    drawn, floor = batches(task, size, warm + steps, grouped=grouped), []
    begin = process_time()
    words = {row.tobytes(): row for b in drawn for name in ("first", "second") for row in b[name]["characters"].numpy()}
    model.table(np.stack([*words.values()]))
    reading = process_time() - begin
    for i, batch in enumerate(drawn):
        for side in list(sides.values())[:: 1 if i % 2 else -1]:
            side.step(batch)
        floor.append(products(batch, config))
    seconds = {name: sum(side.seconds[warm:]) / steps for name, side in sides.items()}
    losses = {name: np.array(side.losses) for name, side in sides.items()}
    masks = [batch[name]["attention_mask"] for batch in drawn[warm:] for name in ("first", "second")]
    return {
        "batches": "of similar length" if grouped else "as they come",
        "seconds": seconds | {"products": sum(floor[warm:]) / steps},
        "reading": reading,
        "types": len(words),
        "padding": 1 - sum(int(m.sum()) for m in masks) / sum(m.numel() for m in masks),
        "words": sum(int(m.sum()) for m in masks) / steps,
        "difference": max(float(abs(losses[name] - losses["ours"]).max()) for name in plain),
        "learnt": float(losses["ours"][0] - losses["ours"][-1]),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small model, three steps")
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--warm", type=int, default=8, help="steps that are not counted")
    parser.add_argument("--cells", type=int, default=PAPER["cells"])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--json", type=Path, help="write the measurements to this file")
    options = parser.parse_args()
    if not SHARED.is_dir():
        sys.exit(f"skipped: the shared data sets are not at {SHARED}.")
    torch.set_num_threads(options.threads)
    task = load_task("mnli", data_dir=str(SHARED / "mnli"))
    settings, steps, warm = (
        (SMALL, 3, 1) if options.quick else (PAPER | {"cells": options.cells}, options.steps, options.warm)
    )
    found = [measure(task, settings, options.batch_size, steps, warm, grouped=grouped) for grouped in (False, True)]
    names = ("plain", "plain, padded", "ours", "products")
    rows = [
        ["batches", "padding", *(f"{name}, CPU s/step" for name in names), "plain ÷ ours", "padded ÷ ours", "losses"]
    ]
    for one in found:
        s = one["seconds"]
        rows.append([
            one["batches"], f"{one['padding']:.0%}", *(f"{s[name]:.3f}" for name in names),
            f"{s['plain'] / s['ours']:.2f}", f"{s['plain, padded'] / s['ours']:.2f}", f"{one['difference']:.1e}",
        ])  # fmt: skip
    print(table(rows))
    for one in found:
        print(f"{one['types']:,} distinct words went through the CNN once, in {one['reading']:.2f} CPU s.")
    ratios = [one["seconds"]["plain"] / one["seconds"]["ours"] for one in found]
    show_goals([
        *(Goal(f"plain ÷ ours, {one['batches']}", r, least=3.0) for one, r in zip(found, ratios, strict=True)),
        Goal("difference between losses", max(one["difference"] for one in found), most=1e-5),
    ])  # fmt: skip
    if options.json:
        options.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
