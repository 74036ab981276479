"""Compares libraries within one PyTorch job: alternating rounds, medians, spreads."""

import statistics

import torch


def model_of(mebibytes, width=512):
    """Layers of a transformer, with small and large tensors, of about this many MiB."""
    layer_bytes = 4 * (12 * width * width + 13 * width)
    layers = max(1, (mebibytes << 20) // layer_bytes)
    make = torch.nn.TransformerEncoderLayer
    return torch.nn.ModuleList(make(width, 8, 4 * width) for _ in range(layers))


def alternating(arms, rounds, measure):
    """Results of measure(name, arm, turn) for each round, by name. A round with turn -1 comes
    first; it connects and does not count."""
    measured = {name: [] for name in arms}
    for turn in range(-1, rounds):
        for name, arm in arms.items():
            took = measure(name, arm, turn)
            if turn >= 0:
                measured[name].append(took)
    return measured


def spread(seconds, unit="ms", digits=0):
    """Median of the times and, in parentheses, their minimum and maximum."""
    scale = {"ms": 1e3, "us": 1e6}[unit]
    least, middle, most = (
        f"{scale * pick(seconds):.{digits}f}" for pick in (min, statistics.median, max)
    )
    return f"{middle} {unit} ({least}..{most})"


def ratio(ours, theirs):
    """Median, minimum and maximum of the ratios within each round."""
    ratios = [own / other for own, other in zip(ours, theirs, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f}..{max(ratios):.2f})"
