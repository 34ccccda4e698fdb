"""Many perceptrons in one batched model beside the plain torch loop that trains the same ones one at a time.

    python benchmarks/mlp_many.py [--n 8000] [--d 768] [--controls 10]

Both sides have one thread, the same data, batch size and stopping rule; the loop is torch.nn and AdamW (fused). Seconds
are the processor's, so that a neighbour does not count; the second ratio does not rest on who stops when.
"""

import argparse
import resource
import time

import numpy as np
import torch
from torch.nn.functional import cross_entropy

from probekit.probes.solvers.mlp import WEIGHT_DECAYS, MLPOptions, path


def looped(
    x: np.ndarray, y: np.ndarray, classes: int, decay: float, options: MLPOptions, fresh: tuple[np.ndarray, np.ndarray]
) -> tuple[float, int]:
    """Train one model, a tenth held out to stop it; its loss on fresh data when it was at its best, and its rounds."""
    held = len(x) // 10
    torch.manual_seed(0)
    first, second = torch.nn.Linear(x.shape[1], options.hidden), torch.nn.Linear(options.hidden, classes)
    model = torch.nn.Sequential(first, torch.nn.ReLU(), torch.nn.Dropout(options.dropout), second)
    adam = torch.optim.AdamW(model.parameters(), lr=options.learning_rate, weight_decay=decay, fused=True)
    inputs, labels = torch.from_numpy(x), torch.from_numpy(y)
    test, answers = map(torch.from_numpy, fresh)
    best, at_best, stale, rounds = np.inf, np.inf, 0, 0
    while stale < options.patience and rounds < options.rounds:
        model.train()
        for rows in (torch.randperm(len(x) - held) + held).split(options.batch):
            adam.zero_grad()
            cross_entropy(model(inputs[rows]), labels[rows]).backward()
            adam.step()
        with torch.no_grad():
            model.eval()
            loss = float(cross_entropy(model(inputs[:held]), labels[:held]))
            if loss < best:
                best, at_best, stale = loss, float(cross_entropy(model(test), answers)), -1
        stale, rounds = stale + 1, rounds + 1
    return at_best, rounds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"n": 8000, "d": 768, "classes": 2, "controls": 10, "hidden": 50, "batch": 128}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    torch.set_num_threads(1)
    options = MLPOptions(hidden=args.hidden, batch=args.batch, steps=1)  # a round is one pass
    rng = np.random.default_rng(0)
    x = rng.standard_normal((args.n + 2000, args.d), dtype=np.float32)
    hidden = np.maximum(x @ rng.standard_normal((args.d, 8), dtype=np.float32), 0) @ rng.normal(size=(8, args.classes))
    y = (hidden - hidden.mean(0) + 8 * rng.normal(size=hidden.shape)).argmax(1)
    (x, fresh), (y, answers) = np.split(x, [args.n]), np.split(y, [args.n])
    codes = np.stack([y, *(rng.permutation(y) for _ in range(args.controls))])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    many = path(x, codes, args.classes, WEIGHT_DECAYS, options=options)
    batched = time.process_time() - start
    memory = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
    start = time.process_time()
    one = [looped(x, c, args.classes, s, options, (fresh, answers)) for c in codes for s in WEIGHT_DECAYS]
    loop = time.process_time() - start
    sides = {"batched": (batched, int(many.rounds.sum())), "loop": (loop, sum(r for _, r in one))}
    print(f"{args}: {many.rounds.size} models")
    for name, (seconds, rounds) in sides.items():
        print(f"{name:8}{seconds:8.1f} s {rounds:6d} model rounds {1e3 * seconds / rounds:7.1f} ms each")
    even = loop / batched * sides["batched"][1] / sides["loop"][1]
    print(f"ratio {loop / batched:.1f}, a model round {even:.1f}; ", end="")
    print(f"peak memory beyond the data {memory:.0f} MB (x is {x.nbytes / 2**20:.0f} MB)")
    ours = -many.log_proba(fresh)[0][:, np.arange(len(fresh)), answers].mean(-1)
    print("nats on fresh data, gold:", *(f"{a:.3f} ({b:.3f})" for a, (b, _) in zip(ours, one[:4], strict=True)))


if __name__ == "__main__":
    main()
