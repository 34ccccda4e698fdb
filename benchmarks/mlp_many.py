"""Many perceptrons in one batched model beside the plain torch loop that trains the same ones one at a time.

    python benchmarks/mlp_many.py [--n 8000] [--d 768] [--controls 10]

Both sides have one thread, the same data, batches and stopping rule; the loop is torch.nn and torch.optim.AdamW (fused).
Seconds are the processor's, so that a neighbour does not count, and the second ratio is of one round of one model, so
that it does not rest on who stops when.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
import torch

from probekit.probes.mlp import WEIGHT_DECAYS, Options, path


def looped(x: np.ndarray, y: np.ndarray, classes: int, decay: float, options: Options, held: int) -> tuple[float, int]:
    """Train one model on all rows but the first ``held``; its best held-out loss and its rounds."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(x.shape[1], options.hidden), torch.nn.ReLU(), torch.nn.Dropout(options.dropout),
        torch.nn.Linear(options.hidden, classes),
    )  # fmt: skip
    adam = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, weight_decay=decay, fused=True)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    best, stale, rounds = np.inf, 0, 0
    while stale < options.patience and rounds < options.rounds:
        model.train()
        for rows in (torch.randperm(len(x) - held) + held).split(options.batch):
            adam.zero_grad()
            torch.nn.functional.cross_entropy(model(inputs[rows]), labels[rows]).backward()
            adam.step()
        model.eval()
        with torch.no_grad():
            loss = float(torch.nn.functional.cross_entropy(model(inputs[:held]), labels[:held]))
        best, stale, rounds = min(best, loss), 0 if loss < best else stale + 1, rounds + 1
    return best, rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"n": 8000, "d": 768, "classes": 2, "controls": 10, "hidden": 50, "batch": 128}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    torch.set_num_threads(1)
    options = Options(hidden=args.hidden, batch=args.batch)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(args.n, args.d)).astype(np.float32)
    hidden = np.maximum(x @ rng.normal(size=(args.d, 8)), 0) @ rng.normal(size=(8, args.classes))
    y = (hidden - hidden.mean(0) + 8 * rng.normal(size=hidden.shape)).argmax(1)
    codes = np.stack([y, *(rng.permutation(y) for _ in range(args.controls))])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    many = path(x, codes, args.classes, WEIGHT_DECAYS, options=options)
    batched = time.process_time() - start
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    start = time.process_time()
    one = [looped(x, c, args.classes, s, options, args.n // 10) for c in codes for s in WEIGHT_DECAYS]
    loop = time.process_time() - start
    rounds, loop_rounds = int(many.rounds.sum()), sum(r for _, r in one)
    print(f"n={args.n} d={args.d} hidden={args.hidden} batch={args.batch}: {many.rounds.size} models")
    print(f"batched {batched:8.1f} s  {rounds:6d} model rounds  {1e3 * batched / rounds:7.1f} ms each")
    print(f"loop    {loop:8.1f} s  {loop_rounds:6d} model rounds  {1e3 * loop / loop_rounds:7.1f} ms each")
    print(f"ratio   {loop / batched:8.1f}    a model round {loop / loop_rounds / (batched / rounds):.1f}")
    print(f"peak memory beyond the data {memory:.0f} MB (x is {x.nbytes / 2**20:.0f} MB)")
    print(f"best held-out loss, gold: batched {many.loss[0].min():.4f}, loop {min(b for b, _ in one[:4]):.4f} nats")


if __name__ == "__main__":
    main()
