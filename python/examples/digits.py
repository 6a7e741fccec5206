#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a small MLP on handwritten digits with nn.Linear and with SwitchBack layers.

Prints the accuracies on the test images, averaged over seeds. Exits with 1 if the accuracy of an int8
layer differs from that of nn.Linear by more than --tolerance. One of the 360 test images is 0.28 points.
"""

import argparse
import pathlib
import sys
import time

import numpy
import torch

import switchback.nn

DATA = pathlib.Path(__file__).resolve().parents[2] / "data" / "digits" / "digits.csv"
HIDDEN = 256
LAYERS = {
    "nn.Linear": None,
    "SwitchBackLinear": switchback.nn.SwitchBackLinear,
    "SwitchBackLinearVectorwise": switchback.nn.SwitchBackLinearVectorwise,
    "SwitchBackLinearGlobalMemEfficient": switchback.nn.SwitchBackLinearGlobalMemEfficient,
}


def load(path):
    """Reads images [n,64], from 0 to 1, and labels [n], for training and for testing (every fifth image)."""
    rows = torch.from_numpy(numpy.loadtxt(path, delimiter=",", dtype=numpy.float32))
    test = torch.arange(len(rows)) % 5 == 4
    images, labels = rows[:, :64] / 16, rows[:, 64].long()
    return images[~test], labels[~test], images[test], labels[test]


def mlp(layer=None):
    """An MLP 64-256-256-10. Its parameters depend on torch's seed and not on the layer."""
    model = torch.nn.Sequential(
        torch.nn.Linear(64, HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, HIDDEN),
        torch.nn.ReLU(),
        torch.nn.Linear(HIDDEN, 10),
    )
    return model if layer is None else switchback.nn.replace_linear(model, layer)


def train(model, images, labels, epochs, batch=64, rate=0.05):
    """Trains in place, with batches that depend on torch's seed. Returns the last epoch's mean loss."""
    optimizer = torch.optim.SGD(model.parameters(), rate, momentum=0.9)
    model.train()
    total = 0.0
    for _ in range(epochs):
        losses = []
        for chosen in torch.randperm(len(images)).split(batch):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(model(images[chosen]), labels[chosen])
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        total = float(torch.stack(losses).mean())
    return total


def accuracy(model, images, labels):
    """The percentage of the images that the model classifies correctly."""
    model.eval()
    with torch.no_grad():
        return float((model(images).argmax(1) == labels).double().mean() * 100)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--data", default=DATA, help="the images: 64 pixels from 0 to 16 and a label per line"
    )
    parser.add_argument("--epochs", type=int, default=15)
    parser.add_argument("--seeds", type=int, default=5, help="how many runs to average over")
    parser.add_argument(
        "--layers", nargs="+", choices=[n for n in LAYERS if LAYERS[n]], default=None
    )
    parser.add_argument("--tolerance", type=float, default=0.5, help="in points of accuracy")
    options = parser.parse_args()
    names = ["nn.Linear", *(options.layers or [name for name in LAYERS if LAYERS[name]])]

    images, labels, test_images, test_labels = load(options.data)
    means = {}
    for name in names:
        start, found, losses = time.perf_counter(), [], []
        for seed in range(options.seeds):
            torch.manual_seed(seed)
            model = mlp(LAYERS[name])
            losses.append(train(model, images, labels, options.epochs))
            found.append(accuracy(model, test_images, test_labels))
        means[name] = sum(found) / len(found)
        each = " ".join(f"{value:.2f}" for value in found)
        print(
            f"{name:36} accuracy {means[name]:6.2f} %  ({each})  loss {sum(losses) / len(losses):.4f}  "
            f"{time.perf_counter() - start:.1f} s"
        )

    worst = 0.0
    for name in names[1:]:
        difference = means[name] - means["nn.Linear"]
        worst = max(worst, abs(difference))
        print(f"{name} - nn.Linear: {difference:+.2f} points")
    if worst > options.tolerance:
        print(f"further than {options.tolerance} points from nn.Linear", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
