# SPDX-License-Identifier: Apache-2.0
"""Rotated and plain int8 checkpoints in ComfyUI's formats, their files, and the contents of a state_dict."""

import copy
import json
import os
import pickle
import struct
import tempfile
import unittest
import warnings

from support import TensorCase, hadamard, relative_error, require_torch, results_of

torch = require_torch()

from switchback import Unsupported  # noqa: E402
from switchback import nn as sb  # noqa: E402
from switchback.interop import checkpoints, files  # noqa: E402
from switchback.nn._options import ROTATIONS  # noqa: E402
from torch import nn  # noqa: E402

N, HIDDEN = 24, 40


def bytes_of(text):
    return torch.tensor(list(text.encode()), dtype=torch.uint8)


def comfy_quant(**said):
    return bytes_of(json.dumps(said))


class Model(nn.Module):
    def __init__(self, inputs=256):
        super().__init__()
        self.up = nn.Linear(inputs, HIDDEN)
        self.down = nn.Linear(HIDDEN, N, bias=False)

    def forward(self, x):
        return self.down(torch.relu(self.up(x)))


def quantized(weight, group=0, one_scale=False):
    """Quantizes like ComfyUI's kernels, in bf16: codes clamped at -128, and weight_scale [N,1] (or one)."""
    rows = weight.detach().double().numpy()
    if group:
        rows = (rows.reshape(len(rows), -1, group) @ hadamard(group)).reshape(rows.shape)
    rows = torch.from_numpy(rows).bfloat16()
    largest = rows.abs().amax() if one_scale else rows.abs().amax(1, keepdim=True)
    scale = largest.float() / 127
    codes = (rows / scale.bfloat16()).round().clamp(-128, 127).to(torch.int8)
    return codes, scale


def comfy_reads(state, key):
    """Dequantizes a layer in float64 as ComfyUI reads it."""
    said = json.loads(state[key + ".comfy_quant"].numpy().tobytes())
    assert said["format"] == "int8_tensorwise"
    codes, scale = state[key + ".weight"], state[key + ".weight_scale"]
    assert codes.dtype is torch.int8 and scale.dtype is torch.float32
    rows = (codes.double() * scale.double()).numpy()  # the scale is [N,1] or a scalar
    if said.get("convrot"):
        group = said.get("convrot_groupsize", 256)
        rows = (rows.reshape(len(rows), -1, group) @ hadamard(group)).reshape(rows.shape)
    return torch.from_numpy(rows)


def write(path, tensors, metadata=None):
    """Writes a safetensors file by the definition of the format, without this package's code."""
    names = {torch.int8: "I8", torch.uint8: "U8", torch.float32: "F32", torch.bfloat16: "BF16"}
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, tensor in tensors.items():
        raw = bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).tolist())
        header[name] = {
            "dtype": names[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [len(data), len(data) + len(raw)],
        }
        data += raw
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text + data)


class FileCase(TensorCase):
    def setUp(self):
        super().setUp()
        self.x = torch.randn(9, 256)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "model.safetensors")


class Comfy(FileCase):
    def state(self, model, group, said, prefix=""):
        """The tensors of a file: `up` in int8 with this comfy_quant (None: without), all others in f32."""
        codes, scale = quantized(model.up.weight, group)
        state = {prefix + key: tensor for key, tensor in model.state_dict().items()}
        state[prefix + "up.weight"] = codes
        state[prefix + "up.weight_scale"] = scale
        if said is not None:
            state[prefix + "up.comfy_quant"] = said
        return state

    def expect(self, loaded, model, group):
        self.assertIsInstance(loaded.up, sb.SwitchBackLinear)
        self.assertEqual((loaded.up.rotation, loaded.up.is_prepared), (group, True))
        self.assertIs(type(loaded.down), nn.Linear)
        x = torch.randn(9, model.up.in_features)
        y, dx, _ = results_of(loaded.up, x, torch.ones(9, HIDDEN))
        self.assertLess(relative_error(y, model.up(x)), 0.02)
        self.assertLess(relative_error(dx, model.up.weight.sum(0).expand_as(x)), 0.05)

    def test_every_group_and_shape_of_scales(self):
        for group in (0, *ROTATIONS):
            model = Model(max(2 * group, 64))
            said = {"format": "int8_tensorwise"}
            if group:
                said.update(convrot=True, convrot_groupsize=group)
            for mode, forms in (
                ("rowwise", (torch.clone, torch.flatten, torch.Tensor.bfloat16)),
                ("global", (torch.clone, lambda s: s.reshape(1), lambda s: s.reshape(1, 1))),
            ):
                codes, scale = quantized(model.up.weight, group, one_scale=mode == "global")
                for form in forms:
                    state = self.state(model, group, comfy_quant(**said))
                    state.update({"up.weight": codes, "up.weight_scale": form(scale)})
                    loaded = checkpoints.load_int8(Model(model.up.in_features), state)
                    self.assertEqual(loaded.up.mode, mode)
                    self.expect(loaded, model, group)
                    self.equal(loaded.up.W_int8, codes)

    def test_where_it_may_be_said(self):
        model = Model()
        about = {"convrot": True, "convrot_groupsize": 64}
        for group, said in (
            (64, {**about}),
            (64, {"params": about}),
            # If both dictionaries have the entries, those of the outer one are used.
            (16, {"convrot": 1, "convrot_groupsize": "16", "params": about}),
            (0, {"convrot": False, "params": about}),
            (0, {"params": None}),
            (0, {"per_row": True, "orig_shape": [HIDDEN, 256]}),
            (256, {"convrot": True}),  # the default
        ):
            said = {"format": "int8_tensorwise", **said}
            for prefix in ("", "model.diffusion_model."):
                with self.subTest(said=said, prefix=prefix):
                    state = self.state(model, group, comfy_quant(**said), prefix)
                    # Ignored, because ComfyUI does not read it in this format.
                    state[prefix + "up.input_scale"] = torch.ones(())
                    if prefix:
                        state["first_stage_model.up.weight"] = torch.ones(3)
                    self.expect(checkpoints.load_int8(Model(), state, prefix=prefix), model, group)
                    del state[prefix + "up.comfy_quant"]
                    for name in {prefix + "up", "up"}:
                        layers = json.dumps({"format_version": "1.0", "layers": {name: said}})
                        write(self.path, state, {"_quantization_metadata": layers, "format": "pt"})
                        loaded = checkpoints.load_int8_file(Model(), self.path, prefix=prefix)
                        self.expect(loaded, model, group)

    def test_layers_that_are_to_be_multiplied_in_floating_point(self):
        model = Model()
        for group in (0, 256):
            said = {"format": "int8_tensorwise", "full_precision_matrix_mult": True}
            state = self.state(model, group, comfy_quant(**said, convrot=bool(group)))
            want = comfy_reads(state, "up")
            loaded = checkpoints.load_int8(Model(), state)
            self.assertIs(type(loaded.up), nn.Linear)
            self.assertLess(relative_error(loaded.up.weight, want), 2.0**-21)

    def test_codes_of_which_nothing_is_said(self):
        """Codes without a description, as in files of LLM Compressor, or for ComfyUI without a header."""
        model = Model()
        state = self.state(model, 0, None)
        with self.assertWarnsRegex(UserWarning, "whether the codes of up.weight are rotated") as seen:
            self.expect(checkpoints.load_int8(Model(), state), model, 0)
        self.assertEqual(seen.filename, __file__)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            self.expect(checkpoints.load_int8(Model(), state, format="compressed-tensors"), model, 0)
            checkpoints.load_int8(Model(), self.state(model, 0, comfy_quant(format="int8_tensorwise")))
        with self.assertRaisesRegex(Unsupported, "the codes of up.weight have no description"):
            checkpoints.load_int8(Model(), state, format="comfy")
        with self.assertRaisesRegex(ValueError, "format = 'gguf'; it must be one of"):
            checkpoints.load_int8(Model(), state, format="gguf")

    def test_what_cannot_be_read_right_is_refused_by_name(self):
        model = Model()
        state = self.state(model, 0, comfy_quant(format="int8_tensorwise"))
        refused = [
            (f"up.comfy_quant says .*{name}", {"up.comfy_quant": comfy_quant(format=name)})
            for name in ("convrot_w4a4", "float8_e4m3fn", "int8_blockwise")
        ]
        for words, said in (
            ("up.weight says group_size = 64", {"convrot": True, "group_size": 64}),
            ("says convrot_group = 64", {"params": {"convrot": True, "convrot_group": 64}}),
            ("convrot of up.weight is 64", {"convrot": 64}),
            ("says ConvRot = True", {"ConvRot": True}),
            ("convrot of up.weight is 'yes'", {"params": {"convrot": "yes"}}),
            ("group.*up.weight is 32", {"convrot": True, "convrot_groupsize": 32}),
            ("group.*up.weight is None", {"convrot": True, "convrot_groupsize": None}),
            ("up.weight is 1024.*256 columns", {"convrot": True, "convrot_groupsize": 1024}),
        ):
            refused.append((words, {"up.comfy_quant": comfy_quant(format="int8_tensorwise", **said)}))
        codes, scale = quantized(model.down.weight)
        three_dimensions = torch.ones(2, 3, 4, dtype=torch.int8)
        refused += [
            ("up.comfy_quant says .*per_row", {"up.comfy_quant": comfy_quant(per_row=True)}),
            ("up.comfy_quant is .*JSON object", {"up.comfy_quant": bytes_of("[1]")}),
            ("up.comfy_quant is not JSON", {"up.comfy_quant": bytes_of("{")}),
            ("codes of down.weight", {"down.weight": codes, "down.weight_scale": scale}),
            ("up.weight_scale has shape", {"up.weight_scale": torch.ones(1, HIDDEN)}),
            ("up.weight_scale has shape", {"up.weight_scale": torch.ones(HIDDEN, 2)}),
            ("no scales", {"up.weight_scale": None}),
            ("up.comfy_quant says", {"up.weight": torch.ones(HIDDEN, 256)}),
            (r"must be \[N,K\]", {"up.weight": three_dimensions}),
        ]
        for words, changed in refused:
            made = {key: t for key, t in {**state, **changed}.items() if t is not None}
            for strict in (True, False):
                fresh = Model()
                before = copy.deepcopy(fresh.state_dict())
                with self.subTest(words=words), self.assertRaisesRegex(RuntimeError, words):
                    checkpoints.load_int8(fresh, made, strict=strict)
                for key, tensor in fresh.state_dict().items():  # the failed load changed nothing
                    self.equal(tensor, before[key])
        with self.assertRaisesRegex(ValueError, "prefix = 'net.'; no key begins with it"):
            checkpoints.load_int8(Model(), state, prefix="net.")
        prefixed = {"net." + key: tensor for key, tensor in state.items()}
        with self.assertRaisesRegex(ValueError, "it does not exist in the model.*prefix"):
            checkpoints.load_int8(Model(), prefixed)

    def test_headers_that_say_nothing_useful(self):
        state = self.state(Model(), 256, None)
        for words, metadata in (
            ("codes of up.weight", {"layers": {}}),
            ("codes of up.weight", {"layers": {"net.up": {"format": "int8_tensorwise"}}}),
            ('no "layers"', {}),
            ("not JSON", "{"),
            ("JSON object", []),
            ("of 'up' is .*JSON", {"layers": {"up": "int8_tensorwise"}}),
            ("up.comfy_quant says", {"layers": {"up": {"format": "int8_rows"}}}),
            ("down.comfy_quant says", {"layers": {"down": {"format": "mxfp8"}}}),
        ):
            text = metadata if isinstance(metadata, str) else json.dumps(metadata)
            write(self.path, state, {"_quantization_metadata": text})
            with self.subTest(words=words), self.assertRaisesRegex(RuntimeError, words):
                checkpoints.load_int8_file(Model(), self.path)

    def test_layers_that_are_there_already(self):
        model = Model()
        state = self.state(
            model, 64, comfy_quant(format="int8_tensorwise", convrot=True, convrot_groupsize=64)
        )
        for mode in ("rowwise", "rowwise_shared"):
            ready = sb.replace_linear(Model(), mode=mode, rotation=64, include="up")
            self.expect(checkpoints.load_int8(ready, state), model, 64)
            self.assertEqual(ready.up.mode, mode)
        for rotation in (0, 256):
            other = sb.replace_linear(Model(), mode="rowwise", rotation=rotation, include="up")
            with self.assertRaisesRegex(ValueError, f"'up'.*rotation = {rotation}.*rotation = 64"):
                checkpoints.load_int8(other, state)
        # A model that consists of one linear layer: load_int8 returns the new layer.
        alone = {key[len("up.") :]: t for key, t in state.items() if key.startswith("up.")}
        loaded = checkpoints.load_int8(nn.Linear(256, HIDDEN), alone)
        self.assertEqual(loaded.rotation, 64)


class Written(FileCase):
    def prepared(self, rotation=256, mode="rowwise"):
        model = sb.replace_linear(Model(), include="up", mode=mode, rotation=rotation)
        sb.replace_linear(model, mode=mode)
        return sb.prepare_for_eval(model)

    def test_what_comfy_loads(self):
        for mode in ("rowwise", "global"):
            for rotation in (0, 16, 256):
                model = self.prepared(rotation, mode)
                state = checkpoints.to_int8(model.state_dict(), "comfy", prefix="net.")
                one = mode == "global" and not rotation
                self.assertEqual(
                    tuple(state["net.up.weight_scale"].shape), () if one else (HIDDEN, 1)
                )
                self.assertIs(state["net.up.comfy_quant"].dtype, torch.uint8)
                keys = {"net.up.bias"}
                for name in ("net.up", "net.down"):
                    keys |= {name + end for end in (".weight", ".weight_scale", ".comfy_quant")}
                self.assertEqual(set(state), keys)
                weight = comfy_reads(state, "net.up")
                with torch.no_grad():
                    want = self.x.double() @ weight.T + model.up.bias.double()
                    self.assertLess(relative_error(model.up(self.x), want), 0.01)

    def test_there_and_back_through_files(self):
        for mode in ("rowwise", "global"):
            model = self.prepared(64, mode)
            with torch.no_grad():
                model.up.W_int8[0] = -128
                want = model(self.x)
            state = {**model.state_dict(), "step": torch.tensor(7)}
            checkpoints.save_int8_file(state, self.path, prefix="net.")
            loaded = checkpoints.load_int8_file(Model(), self.path, prefix="net.", strict=False)
            self.assertEqual(loaded.load_result.unexpected_keys, ["step"])
            self.assertEqual((loaded.up.rotation, loaded.down.rotation), (64, 0))
            self.equal(loaded.up.W_int8, model.up.W_int8)
            # The scale 127 * (absmax / 127) is rounded twice.
            self.assertLess(relative_error(loaded(self.x), want), 2.0**-20)

    def test_what_is_not_int8_is_not_written(self):
        with self.assertRaisesRegex(ValueError, "no W_int8.*prepare_for_eval"):
            checkpoints.save_int8_file(Model(), self.path)
        self.assertFalse(os.path.exists(self.path))

    def test_other_formats_refuse_what_they_cannot_hold(self):
        state = self.prepared().state_dict()
        for name in ("bitsandbytes", "compressed-tensors"):
            words = f"'up' are rotated, with rotation = 256.*{name}"
            with self.assertRaisesRegex(Unsupported, words):
                checkpoints.to_int8(state, name)
            checkpoints.to_int8(self.prepared(0).state_dict(), name)
        for key, words in (("up.W_int8", "no up.W_int8"), ("up.state_W", "no up.state_W")):
            torn = {k: t for k, t in state.items() if k != key}
            with self.assertRaisesRegex(ValueError, words):
                checkpoints.to_int8(torn, "comfy")

    def test_files_in_parts(self):
        model = self.prepared(64)
        state = checkpoints.to_int8(model.state_dict(), "comfy")
        paths = []
        for name in ("up", "down"):
            said = json.loads(bytes(state.pop(f"{name}.comfy_quant").tolist()))
            part = {key: tensor for key, tensor in state.items() if key.startswith(name)}
            paths.append(f"{self.path}.{name}")
            layers = json.dumps({"layers": {name: said}})
            write(paths[-1], part, {"_quantization_metadata": layers})
        loaded = checkpoints.load_int8_file(Model(), paths)
        self.equal(loaded.up.W_int8, model.up.W_int8)
        self.assertEqual((loaded.up.rotation, loaded.down.rotation), (64, 0))
        with self.assertRaisesRegex(ValueError, "up.*which an earlier file contains too"):
            checkpoints.load_int8_file(Model(), [paths[0], paths[0]])

    def test_files_that_are_none(self):
        def with_header(text, data=b""):
            return struct.pack("<Q", len(text)) + text + data

        about = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        refused = [
            ("not a safetensors file", b""),
            ("not a safetensors file", b"\x05"),
            ("not a safetensors file", struct.pack("<Q", 2**60) + b"{}"),
            ("its header", with_header(b"{]")),
            ("not a JSON object", with_header(b"[]")),
        ]
        for words, entry, data in (
            ("up: the header describes it as", about, b"1234567"),
            ("up: the header describes it as", {**about, "shape": [3]}, b"0" * 12),
            ("up: the header describes it as", {**about, "shape": [-2]}, b"0" * 8),
            ("up: the header describes it as", {**about, "data_offsets": [-8, 0]}, b"0" * 8),
            ("up: the header describes it as", 3, b"0" * 8),
            ("up: its dtype 'F4'", {**about, "dtype": "F4"}, b"0" * 8),
        ):
            refused.append((words, with_header(json.dumps({"up": entry}).encode(), data)))
        for words, content in refused:
            with open(self.path, "wb") as file:
                file.write(content)
            with self.subTest(words=words), self.assertRaisesRegex(RuntimeError, words):
                checkpoints.load_int8_file(Model(), self.path)
        with self.assertRaises(FileNotFoundError):
            checkpoints.load_int8_file(Model(), self.path + ".none")

    def test_a_file_that_cannot_be_written_leaves_the_one_before(self):
        model = self.prepared()
        checkpoints.save_int8_file(model, self.path)
        before = os.path.getsize(self.path)
        wrong = {**model.state_dict(), "other": torch.zeros(3, dtype=torch.complex64)}
        with self.assertRaisesRegex(Unsupported, "other is torch.complex64"):
            checkpoints.save_int8_file(wrong, self.path)
        self.assertEqual(os.path.getsize(self.path), before)
        self.assertEqual(os.listdir(os.path.dirname(self.path)), ["model.safetensors"])


class Remembered(FileCase):
    """A state_dict says what its codes mean: a layer with another rotation refuses it."""

    def layer(self, rotation, mode="rowwise"):
        return sb.SwitchBackLinear(256, N, mode=mode, rotation=rotation)

    def forms(self, state):
        """A state_dict as it is, and as two kinds of files return it; safetensors files have no metadata."""
        torch.save(state, f"{self.path}.pt")
        yield state
        yield torch.load(f"{self.path}.pt")
        files.write(self.path, state)
        yield files.read(self.path)[0]

    def test_a_layer_that_disagrees_refuses(self):
        for mode in ("rowwise", "rowwise_shared", "global"):
            layer = self.layer(64, mode).prepare_for_eval()
            for state in self.forms(layer.state_dict()):
                for rotation in (0, 16, 256):
                    for strict in (True, False):
                        other = self.layer(rotation, mode)
                        words = f"rotation = 64, and the layer has rotation = {rotation}"
                        with self.assertRaisesRegex(RuntimeError, words):
                            other.load_state_dict(state, strict=strict)
                        self.assertFalse(other.is_prepared)
                same = self.layer(64, mode)
                same.load_state_dict(state)
                self.equal(same(self.x), layer(self.x))
                self.assertEqual(set(same.state_dict()), set(state))
        plain = self.layer(0).prepare_for_eval().state_dict()
        self.assertEqual(set(plain), {"weight", "bias", "W_int8", "state_W"})

    def test_what_was_prepared_by_older_versions_loads(self):
        layer = self.layer(64).prepare_for_eval()
        state = layer.state_dict()
        del state["rotation_W"]
        other = self.layer(64)
        other.load_state_dict(state)
        self.equal(other(self.x), layer(self.x))
        self.assertEqual(int(other.rotation_W), 64)

    def test_float_models_take_it_over(self):
        model = sb.replace_linear(Model(), include="up", mode="rowwise", rotation=256)
        sb.prepare_for_eval(model)
        for state in self.forms(model.state_dict()):
            loaded = checkpoints.load_int8(Model(), state)
            self.assertEqual(loaded.up.rotation, 256)
            self.equal(loaded(self.x), model(self.x))

    def test_copies_casts_and_the_way_back(self):
        layer = self.layer(64).prepare_for_eval()
        want = layer(self.x)
        for other in (
            copy.deepcopy(layer),
            pickle.loads(pickle.dumps(layer)),
            layer.double().float(),
        ):
            self.equal(other(self.x), want)
            self.assertEqual(int(other.state_dict()["rotation_W"]), 64)
        floating = self.layer(64)
        layer.load_state_dict(floating.state_dict())
        self.assertFalse(layer.is_prepared)
        self.assertEqual(set(layer.state_dict()), {"weight", "bias"})
        self.equal(layer(self.x), floating(self.x))


class Options(TensorCase):
    """Every layer class accepts the options that it can support; an error names one that it cannot."""

    OPTIONS = {"rotation": 64, "rounding": "stochastic", "seed": 3}
    BLOCKS = {"dw": "int8_block", "dw_block_rows": 128}

    def test_layers(self):
        every = {**self.OPTIONS, **self.BLOCKS}
        for kind, options, others in (
            (sb.SwitchBackLinearGlobal, every, {"mode": "global"}),
            (sb.SwitchBackLinearVectorwise, every, {"mode": "rowwise"}),
            (sb.SwitchBackLinearBnb, every, {"mode": "rowwise"}),
            (
                sb.SwitchBackLinearGlobalMemEfficient,
                self.OPTIONS,
                {"mode": "global", "mem_efficient": True},
            ),
        ):
            layer = sb.replace_linear(Model(64), kind, include="up", **options).up
            same = sb.SwitchBackLinear(64, HIDDEN, **options, **others)
            self.assertIs(type(layer), kind)
            self.assertEqual(layer.mem_efficient, same.mem_efficient)
            for one in (layer, kind(64, HIDDEN, **options)):
                self.assertEqual(one._options(), same._options())

    def test_what_makes_no_sense_says_so(self):
        config, rotated = sb.SwitchBackConfig, {"rotation": 64}
        for words, make, arguments, options in (
            ("rotation = 64 in mode 'standard'", sb.StandardLinear, (64, N), rotated),
            ("rotation = 64 in mode 'auto'", config, ("auto",), rotated),
            ("dw = 'int8_block' with weights = 'int8'", config, (), {"weights": "int8", **self.BLOCKS}),
            ("seed = 3 with rounding", config, (), {"seed": 3}),
            ("multiple of rotation, 64", sb.SwitchBackMLP, (64, 100), rotated),
        ):
            with self.subTest(words=words), self.assertRaisesRegex(ValueError, words):
                make(*arguments, **options)
        with self.assertRaisesRegex(ValueError, "'down' has 40 inputs.*rotation = 64"):
            sb.replace_linear(Model(64), mode="rowwise", rotation=64)
        with self.assertRaises(TypeError):
            sb.SwitchBackLinearVectorwise(64, N, mode="global")

    def test_configurations(self):
        before = torch.random.get_rng_state()
        config = sb.SwitchBackConfig(rounding="stochastic", rotation=64, **self.BLOCKS)
        self.equal(torch.random.get_rng_state(), before)
        model = nn.Sequential(nn.Linear(64, 128), nn.Linear(128, N))
        sb.quantize_(model, config)
        for layer in model:
            found = layer.rotation, layer.dw, layer.dw_block_rows, layer.rounding
            self.assertEqual(found, (64, "int8_block", 128, "stochastic"))
        self.assertNotEqual(model[0].seed, model[1].seed)
        model = nn.Sequential(nn.Linear(64, 128))
        sb.quantize_(model, sb.SwitchBackConfig(weights="int8", rotation=64))
        self.assertEqual((model[0].is_prepared, model[0].rotation), (True, 64))

    def test_perceptrons(self):
        options = {**self.OPTIONS, **self.BLOCKS}
        mlp = sb.SwitchBackMLP(64, 128, N, **options)
        of = sb.SwitchBackMLP.of(nn.Linear(64, 128), nn.Linear(128, N), **options)
        up = sb.SwitchBackLinear(64, 128, mode="rowwise", **options)
        down = sb.SwitchBackLinear(128, N, mode="rowwise", **options)
        for other, one in ((of, mlp), (up, mlp.up), (down, mlp.down)):
            other.load_state_dict(one.state_dict())
        x, g = torch.randn(300, 64), torch.randn(300, N)
        want = results_of(nn.Sequential(up, sb.GELU("gelu_tanh"), down), x, g)
        for module in (mlp, of):
            self.equal(results_of(module, x, g), want)
            self.assertEqual(module.rounding_step, 1)
        mlp.rounding_step = 7
        self.assertEqual((mlp.up.rounding_step, mlp.down.rounding_step), (7, 7))


if __name__ == "__main__":
    unittest.main()
