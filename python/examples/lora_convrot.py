#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains LoRA adapters on a rotated int8 ("ConvRot") base, which is a file in ComfyUI's layout.

    python3 lora_convrot.py --out folder

The model is a small diffusion transformer that draws digits of 8 x 8 pixels: DiTTransformer2DModel where
diffusers is installed, else the Transformer of this file. Without --checkpoint this script trains the
base in floating point and writes it as int8. Then, as with any other checkpoint:

1. load_int8_file loads the codes into rotated layers (--prefix: the common beginning of the keys);
2. adapters are added and trained, here to draw dark digits on white. The base stays int8: its forward
   and its input gradient are int8 products;
3. the adapters are saved as a safetensors file, and loaded again into a fresh base.

Exits with 1 if the adapters do not halve the loss, or if the loaded adapters give another loss.
"""

import argparse
import importlib.util
import pathlib
import sys
import tempfile
import time

import torch
from digits import DATA, load
from torch import nn
from torch.nn import functional

import switchback.nn as sbn
from switchback.interop import checkpoints, files

SIDE, WIDTH, HEADS, LAYERS = 8, 64, 4, 2
GROUPS = (256, 64, 16)  # group sizes of rotations; a layer gets the largest that divides its inputs


class Block(nn.Module):
    """A block of the small transformer: attention and an MLP. The condition scales and shifts the input of
    both."""

    def __init__(self):
        super().__init__()
        self.norm1 = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.norm2 = nn.LayerNorm(WIDTH, elementwise_affine=False)
        self.modulation = nn.Linear(WIDTH, 4 * WIDTH)
        self.to_q, self.to_k, self.to_v, self.to_out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x, condition):
        scale1, shift1, scale2, shift2 = self.modulation(condition)[:, None].chunk(4, -1)
        y = self.norm1(x) * (1 + scale1) + shift1
        batch, tokens, _ = y.shape
        q, k, v = (
            layer(y).view(batch, tokens, HEADS, -1).transpose(1, 2)
            for layer in (self.to_q, self.to_k, self.to_v)
        )
        weights = (q @ k.transpose(-1, -2) * (WIDTH // HEADS) ** -0.5).softmax(-1)
        x = x + self.to_out((weights @ v).transpose(1, 2).reshape(batch, tokens, WIDTH))
        y = self.norm2(x) * (1 + scale2) + shift2
        return x + self.down(functional.gelu(self.up(y)))


class SmallTransformer(nn.Module):
    """A transformer on patches of 2 x 2 pixels, with the arguments of diffusers' DiT."""

    def __init__(self):
        super().__init__()
        self.proj_in, self.proj_out = nn.Linear(4, WIDTH), nn.Linear(WIDTH, 4)
        self.places = nn.Parameter(0.1 * torch.randn(SIDE * SIDE // 4, WIDTH))
        self.labels = nn.Embedding(10, WIDTH)
        self.time = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.SiLU(), nn.Linear(WIDTH, WIDTH))
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))

    def forward(self, images, timestep, class_labels):
        patches = functional.pixel_unshuffle(images, 2).flatten(2).transpose(1, 2)
        rates = torch.exp(-torch.arange(WIDTH // 2, device=images.device) / 4)
        angles = timestep[:, None] / 10 * rates
        waves = torch.cat((angles.sin(), angles.cos()), -1).to(images.dtype)
        condition = self.time(waves) + self.labels(class_labels)
        x = self.proj_in(patches) + self.places
        for block in self.blocks:
            x = block(x, condition)
        patches = self.proj_out(x).transpose(1, 2).unflatten(2, (SIDE // 2, SIDE // 2))
        return functional.pixel_shuffle(patches, 2)


def make_model(family):
    """Creates the transformer of diffusers, or the one of this file."""
    if family == "small":
        return SmallTransformer()
    from diffusers import DiTTransformer2DModel

    return DiTTransformer2DModel(
        num_attention_heads=HEADS,
        attention_head_dim=WIDTH // HEADS,
        in_channels=1,
        num_layers=LAYERS,
        sample_size=SIDE,
        num_embeds_ada_norm=10,
    )


class LoRA(nn.Module):
    """A frozen layer plus a trainable product of two low-rank layers."""

    def __init__(self, base, rank):
        super().__init__()
        self.base = base.requires_grad_(False)
        options = {"bias": False, "device": base.W_int8.device, "dtype": base.bias.dtype}
        self.lora_A = nn.Linear(base.in_features, rank, **options)
        self.lora_B = nn.Linear(rank, base.out_features, **options)
        nn.init.zeros_(self.lora_B.weight)

    def forward(self, x):
        return self.base(x) + self.lora_B(self.lora_A(x))


def add_lora(model, rank):
    """Freezes the model and puts a LoRA adapter around each of its int8 layers, in place."""
    model.requires_grad_(False)
    for parent in list(model.modules()):
        for name, child in parent.named_children():
            if isinstance(child, sbn.SwitchBackLinear) and child.is_prepared:
                setattr(parent, name, LoRA(child, rank))
    return model


def adapters_of(model):
    """The adapters' tensors, under names that ComfyUI and other programs read."""
    state = model.state_dict()
    return {f"diffusion_model.{key}": t for key, t in state.items() if ".lora_" in key}


def load_adapters(model, path):
    """Loads a file of adapters into a model that already has adapters."""
    tensors, _ = files.read(path, prefix="diffusion_model.")
    state = {key[len("diffusion_model.") :]: tensor for key, tensor in tensors.items()}
    unexpected = model.load_state_dict(state, strict=False).unexpected_keys
    missing = sorted(set(adapters_of(model)) - set(tensors))
    if unexpected or missing:
        raise ValueError(f"{path}: unexpected keys {unexpected}, missing keys {missing}")


def write_convrot(model, path, prefix):
    """Writes a float model as int8, each layer with the largest rotation that divides its inputs."""
    for group in (*GROUPS, 0):
        fits = [
            name
            for name, layer in model.named_modules()
            if type(layer) is nn.Linear and (not group or layer.in_features % group == 0)
        ]
        chosen = [name for name in fits if "blocks" in name]  # only the inner layers are quantized, as usual
        sbn.replace_linear(model, include=chosen, mode="rowwise", rotation=group)
    sbn.prepare_for_eval(model)
    checkpoints.save_int8_file(model, path, prefix=prefix)


def loss_of(model, images, labels, generator):
    """The loss of flow matching: the model predicts the direction of the straight line from noise to images.
    """
    noise = torch.randn(images.shape, generator=generator).to(images)
    t = torch.rand(len(images), generator=generator).to(images)
    where = t[:, None, None, None]
    made = model((1 - where) * noise + where * images, timestep=1000 * t, class_labels=labels)
    made = getattr(made, "sample", made)
    return functional.mse_loss(made.float(), (images - noise).float())


def train(model, images, labels, steps, rate, batch=64):
    """Trains with AdamW the parameters that require gradients. Returns the median time of a step in seconds.
    """
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], rate)
    generator = torch.Generator().manual_seed(1)
    model.train()
    times = []
    for _ in range(steps):
        start = time.perf_counter()
        chosen = torch.randint(len(images), (batch,), generator=generator)
        optimizer.zero_grad()
        loss_of(model, images[chosen], labels[chosen], generator).backward()
        optimizer.step()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def judge(model, images, labels):
    """The loss on test images, always with the same noise."""
    model.eval()
    with torch.no_grad():
        return float(loss_of(model, images, labels, torch.Generator().manual_seed(2)))


def main():
    has_diffusers = importlib.util.find_spec("diffusers") is not None
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--family",
        choices=("diffusers", "small"),
        default="diffusers" if has_diffusers else "small",
    )
    parser.add_argument("--checkpoint", help="an int8 file of this model; default: it is made here")
    parser.add_argument("--prefix", default="model.diffusion_model.", help="of the file's keys")
    parser.add_argument("--steps", type=int, default=100, help="with adapters")
    parser.add_argument("--base-steps", type=int, default=200, help="of the base that is made here")
    parser.add_argument("--rank", type=int, default=8)
    parser.add_argument("--rate", type=float, default=5e-3)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--data", default=DATA, help="the digits: see digits.py")
    parser.add_argument("--out", help="a folder for base and adapters; default: they are not kept")
    options = parser.parse_args()

    torch.manual_seed(0)
    tensors = [t.to(options.device) for t in load(options.data)]
    images, labels, test_images, test_labels = tensors
    images, test_images = (2 * t.view(-1, 1, SIDE, SIDE) - 1 for t in (images, test_images))
    temporary = tempfile.TemporaryDirectory()
    out = pathlib.Path(options.out or temporary.name)
    out.mkdir(parents=True, exist_ok=True)
    base = options.checkpoint
    if base is None:
        model = make_model(options.family).to(options.device)
        train(model, images, labels, options.base_steps, 2e-3)
        print(f"base in float32: loss {judge(model, test_images, test_labels):.4f}")
        base = out / "base_int8_convrot.safetensors"
        write_convrot(model, base, options.prefix)

    def load_base():
        model = make_model(options.family).to(options.device)
        return checkpoints.load_int8_file(model, base, prefix=options.prefix)

    model = load_base()
    layers = [m for m in model.modules() if isinstance(m, sbn.SwitchBackLinear)]
    rotated = sum(layer.rotation > 0 for layer in layers)
    loss = judge(model, test_images, test_labels)
    print(f"base in int8: loss {loss:.4f}, {len(layers)} layers, {rotated} of them rotated")

    dark = -images, labels  # images on which the base was not trained
    dark_test = -test_images, test_labels
    add_lora(model, options.rank)
    before = judge(model, *dark_test)
    seconds = train(model, *dark, options.steps, options.rate)
    after = judge(model, *dark_test)
    count = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(
        f"dark digits: loss {before:.4f} before, {after:.4f} after {options.steps} steps of "
        f"{1e3 * seconds:.1f} ms"
    )

    path = out / "adapters.safetensors"
    files.write(path, adapters_of(model))
    again = add_lora(load_base(), options.rank)
    load_adapters(again, path)
    same = judge(again, *dark_test) == after
    print(
        f"adapters: {count} numbers in {path.stat().st_size} bytes; loaded again: "
        f"{'the same' if same else 'another'} loss"
    )
    return 0 if same and after < before / 2 else 1


if __name__ == "__main__":
    sys.exit(main())
