#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Blocks of known models with random weights: switchback compared with PyTorch's other int8 layers.

The blocks are transformers' own (BERT, ViT, GPT-2, Llama), at the width of the published models and
few layers deep. Vocabularies are smaller in proportion, because a training step reads and writes all
of them. All variants of a model ("rivals") have the same weights and inputs; their calls alternate.

It prints the median time of --base (float32 nn.Linear). For each rival it prints the median ratio of the
base's time to the rival's in neighbouring calls (above 1: faster) with half the distance between its
quartiles, and the relative error of its output, ||y - y_f32|| / ||y_f32||. For a rival that cannot run it
prints the reason. Phases are inference, training and, for GPT-2 and Llama, generate: a greedy loop of
transformers over a prompt of `length` tokens, with times per token.
"""

import argparse
import contextlib
import copy
import statistics
import time
import warnings

import switchback
import switchback.nn as sb
import torch


def bert(layers):
    from transformers import BertConfig, BertModel

    config = BertConfig(
        num_hidden_layers=layers, vocab_size=2560 * layers, attn_implementation="sdpa"
    )
    return BertModel(config, add_pooling_layer=False), lambda b, t: {
        "input_ids": torch.randint(0, config.vocab_size, (b, t))
    }


def vit(layers):
    from transformers import ViTConfig, ViTModel

    config = ViTConfig(num_hidden_layers=layers, attn_implementation="sdpa")
    size = config.image_size
    return ViTModel(config, add_pooling_layer=False), lambda b, t: {
        "pixel_values": torch.randn(b, 3, size, size)
    }


def gpt2(layers, head=False):
    from transformers import GPT2Config, GPT2LMHeadModel, GPT2Model

    config = GPT2Config(
        n_layer=layers, vocab_size=8192, attn_implementation="sdpa", use_cache=head
    )
    return (GPT2LMHeadModel if head else GPT2Model)(config), lambda b, t: {
        "input_ids": torch.randint(0, config.vocab_size, (b, t))
    }


def llama(layers, head=False):
    from transformers import LlamaConfig, LlamaForCausalLM, LlamaModel

    config = LlamaConfig(
        hidden_size=2048, intermediate_size=5632, num_hidden_layers=layers, num_attention_heads=32,
        num_key_value_heads=4, vocab_size=8192, attn_implementation="sdpa", use_cache=head,
    )  # fmt: skip
    return (LlamaForCausalLM if head else LlamaModel)(config), lambda b, t: {
        "input_ids": torch.randint(0, config.vocab_size, (b, t))
    }


TOKENS = 16  # number of tokens that are generated
MODELS = {"bert": bert, "vit": vit, "gpt2": gpt2, "llama": llama}


class Rival:
    """How to make one variant of a model from the float32 one, and the context manager that it runs in."""

    def __init__(self, make, around=contextlib.nullcontext, trains=True, infers=True):
        self.make, self.around, self.trains, self.infers = make, around, trains, infers


def replaced(mode, **options):
    return lambda model: sb.replace_linear(model, mode=mode, **options)


def replaced_with_gelu(mode, **options):
    return lambda model: sb.replace_gelu(sb.replace_linear(model, mode=mode, **options))


def fused(mode, **options):
    return lambda model: sb.fuse_qkv(replaced_with_gelu(mode, **options)(model))


def prepared(model):
    return sb.prepare_for_eval(sb.replace_linear(model, mode="rowwise"))


def quantize_dynamic(model):
    torch.backends.quantized.engine = "onednn"
    return torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, dtype=torch.qint8)


def torchao(model):
    from torchao.quantization import Int8DynamicActivationInt8WeightConfig, quantize_

    quantize_(model, Int8DynamicActivationInt8WeightConfig())
    return model


def torchao_compiled(model):
    return torch.compile(torchao(model))


def compiled(mode):
    return lambda model: torch.compile(sb.replace_linear(model, mode=mode))


def prepared_compiled(model):
    return torch.compile(prepared(model))


def autocast():
    return torch.autocast("cpu", torch.bfloat16)


RIVALS = {
    "f32": Rival(lambda model: model),
    "bf16 autocast": Rival(lambda model: model, autocast),
    "f32 compiled": Rival(torch.compile),
    "quantize_dynamic": Rival(quantize_dynamic, trains=False),
    "torchao": Rival(torchao, trains=False),
    "torchao compiled": Rival(torchao_compiled, trains=False),
    "standard": Rival(replaced("standard")),
    "rowwise": Rival(replaced("rowwise")),
    "global": Rival(replaced("global")),
    "rowwise dw": Rival(replaced("rowwise", dw="int8_block")),
    "rowwise autocast": Rival(replaced("rowwise"), autocast),
    "shared autocast": Rival(replaced("rowwise_shared"), autocast),
    "global autocast": Rival(replaced("global"), autocast),
    "rowwise dw autocast": Rival(replaced("rowwise", dw="int8_block"), autocast, infers=False),
    "shared dw autocast": Rival(replaced("rowwise_shared", dw="int8_block"), autocast, infers=False),
    "shared gelu autocast": Rival(replaced_with_gelu("rowwise_shared"), autocast),
    "shared dw gelu autocast": Rival(
        replaced_with_gelu("rowwise_shared", dw="int8_block"), autocast, infers=False
    ),
    "shared fused autocast": Rival(fused("rowwise_shared"), autocast),
    "rowwise dw fused autocast": Rival(
        fused("rowwise", dw="int8_block"), autocast, infers=False
    ),
    "shared dw fused autocast": Rival(
        fused("rowwise_shared", dw="int8_block"), autocast, infers=False
    ),
    "global dw autocast": Rival(replaced("global", dw="int8_block"), autocast, infers=False),
    "rowwise compiled": Rival(compiled("rowwise")),
    "prepared": Rival(prepared, sb.reuse_weight_codes, trains=False),
    "prepared compiled": Rival(prepared_compiled, sb.reuse_weight_codes, trains=False),
}


def seconds(function, clock):
    start = clock()
    function()
    return clock() - start


def inference(model, around, inputs):
    def run():
        with torch.no_grad(), around():
            return model(**inputs)[0]

    return run


def training(model, around, inputs):
    optimizer = torch.optim.SGD(model.parameters(), 1e-5)

    def run():
        with around():
            loss = model(**inputs)[0].float().square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return run


def generate(model, around, inputs):
    ids = inputs["input_ids"]
    options = {"max_new_tokens": TOKENS, "min_new_tokens": TOKENS, "do_sample": False}
    options.update(attention_mask=torch.ones_like(ids), pad_token_id=0)

    def run():
        with torch.no_grad(), around():
            return model.generate(ids, **options)

    return run


PHASES = {"inference": inference, "training": training, "generate": generate}


def prepare(name, phase, rivals, layers, batch, length):
    """Returns functions that run each variant of a model once, and the errors of their outputs."""
    torch.manual_seed(0)
    head = {"head": True} if phase == "generate" else {}
    model, make_inputs = MODELS[name](layers, **head)
    inputs = make_inputs(batch, length)
    runs, errors = {}, {}
    want = None
    for rival in rivals:
        known = RIVALS[rival]
        if not (known.trains if phase == "training" else known.infers):
            continue
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                mine = known.make(copy.deepcopy(model).train(phase == "training").eval())
                if phase == "training":
                    mine.train()
                    for part in mine.modules():  # without dropout, so that every run does the same work
                        if isinstance(part, torch.nn.Dropout):
                            part.p = 0.0
                y = inference(mine, known.around, inputs)().float()
                want = y if want is None else want
                run = PHASES[phase](mine, known.around, inputs)
                for _ in range(2):
                    run()
                runs[rival] = run
                errors[rival] = float((y - want).norm() / want.norm())
        except Exception as error:
            print(
                f"{name:6} {phase:9} {rival:23} cannot run: {type(error).__name__}: {error}"[:150]
            )
    return runs, errors


def measure(runs, min_time, clock):
    """Runs all variants alternately for `min_time`; returns the seconds of each, by `clock`."""
    times = {rival: [] for rival in runs}
    order, end = list(runs), time.perf_counter() + min_time
    while time.perf_counter() < end or len(times[order[0]]) < 5:
        for rival in order:
            times[rival].append(seconds(runs[rival], clock))
        order.reverse()
    return times


def compare(name, phase, rivals, base_name, layers, batch, length, min_time, clock):
    """Compares the variants of one model in one phase, and prints a line for each."""
    runs, errors = prepare(name, phase, rivals, layers, batch, length)
    if base_name not in runs:
        return
    times = measure(runs, min_time, clock)
    base = times[base_name]
    milliseconds = statistics.median(base) * 1e3 / (TOKENS if phase == "generate" else 1)
    print(f"{name:6} {phase:9} {base_name:23} {milliseconds:8.2f} ms", flush=True)
    for rival in runs:
        if rival == base_name:
            continue
        low, middle, high = statistics.quantiles([b / t for b, t in zip(base, times[rival])], n=4)
        print(
            f"{name:6} {phase:9} {rival:23} {middle:7.2f}x +-{(high - low) / 2:.2f}   error "
            f"{errors[rival]:.4f}",
            flush=True,
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=MODELS)
    phases = {"nargs": "+", "choices": PHASES}
    parser.add_argument("--phases", default=["inference", "training"], **phases)
    parser.add_argument("--rivals", nargs="+", default=list(RIVALS), choices=RIVALS)
    parser.add_argument("--base", default="f32", choices=RIVALS, help="with which others compare")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--length", type=int, default=128, help="tokens of a sequence")
    parser.add_argument("--threads", type=int, default=0, help="of all; 0: torch's number")
    parser.add_argument("--min-time", type=float, default=20.0, help="seconds a model and phase")
    parser.add_argument(
        "--keep-memory", action="store_true", help="of all: switchback.keep_freed_memory()"
    )
    parser.add_argument(
        "--cpu-time", action="store_true", help="of this process, for a busy machine; with one thread"
    )
    given = parser.parse_args()
    if given.keep_memory and not switchback.keep_freed_memory():
        parser.error("--keep-memory: this C library cannot")
    if given.threads:
        torch.set_num_threads(given.threads)
    if given.cpu_time and torch.get_num_threads() > 1:
        parser.error("--cpu-time needs --threads 1: with more it adds what they wait for each other")
    clock = time.process_time if given.cpu_time else time.perf_counter
    # The float32 model comes first, because errors are relative to its output.
    rivals = list(dict.fromkeys(["f32", given.base, *given.rivals]))
    print(
        f"torch {torch.__version__}, switchback {switchback.library_version()}, "
        f"{sb.dispatch_path()} dispatch, {torch.get_num_threads()} threads, {given.layers} layers, "
        f"batch {given.batch}, length {given.length}; how many times as fast as {given.base}"
    )
    for name in given.models:
        for phase in given.phases:
            if phase == "generate" and name not in ("gpt2", "llama"):
                continue
            sizes = given.layers, given.batch, given.length
            compare(name, phase, rivals, given.base, *sizes, given.min_time, clock)


if __name__ == "__main__":
    main()
