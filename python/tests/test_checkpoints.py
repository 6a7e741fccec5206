# SPDX-License-Identifier: Apache-2.0
"""Rotated and plain int8 checkpoints in ComfyUI's formats, their files, and the contents of a state_dict."""

import copy
import importlib.util
import io
import json
import os
import pickle
import struct
import tempfile
import unittest
import warnings

from support import hadamard, relative_error, require_torch

torch = require_torch()

from switchback import Unsupported  # noqa: E402
from switchback import nn as sb  # noqa: E402
from switchback.interop import checkpoints  # noqa: E402
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


def quantized(weight, group=0, one_scale=False, clip=1.0):
    """Quantizes like ComfyUI's kernels, in bf16: codes clamped at -128, and weight_scale [N,1] (or one)."""
    rows = weight.detach().double().numpy()
    if group:
        rows = (rows.reshape(len(rows), -1, group) @ hadamard(group)).reshape(rows.shape)
    rows = torch.from_numpy(rows).bfloat16()
    largest = rows.abs().amax() if one_scale else rows.abs().amax(1, keepdim=True)
    scale = clip * largest.float() / 127
    codes = (rows / scale.bfloat16()).round().clamp(-128, 127).to(torch.int8)
    return codes, scale


def comfy_reads(state, key):
    """Dequantizes a layer in float64 as ComfyUI reads it."""
    said = json.loads(state[key + ".comfy_quant"].numpy().tobytes())
    assert said["format"] == "int8_tensorwise"
    codes, scale = state[key + ".weight"], state[key + ".weight_scale"]
    assert codes.dtype is torch.int8 and scale.dtype is torch.float32
    rows = (codes.double() * scale.double()).numpy()  # the scale is [N,1] or a scalar
    params = said.get("params", {})
    if said.get("convrot", params.get("convrot", False)):
        group = int(said.get("convrot_groupsize", params.get("convrot_groupsize", 256)))
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


class Comfy(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "model.safetensors")

    def state(self, model, group, said, prefix="", scale=None):
        """The tensors of a file: `up` in int8 with this comfy_quant (None: without), all others in f32."""
        codes, made = quantized(model.up.weight, group)
        state = {prefix + key: tensor for key, tensor in model.state_dict().items()}
        state[prefix + "up.weight"] = codes
        state[prefix + "up.weight_scale"] = made if scale is None else scale(made)
        if said is not None:
            state[prefix + "up.comfy_quant"] = said
        return state

    def expect(self, loaded, model, group, x=None):
        self.assertIsInstance(loaded.up, sb.SwitchBackLinear)
        self.assertEqual((loaded.up.rotation, loaded.up.is_prepared), (group, True))
        self.assertIs(type(loaded.down), nn.Linear)
        x = torch.randn(9, model.up.in_features) if x is None else x
        with torch.no_grad():
            self.assertLess(relative_error(loaded.up(x), model.up(x)), 0.02)
        x.requires_grad_()
        loaded.up(x).sum().backward()
        self.assertLess(relative_error(x.grad, model.up.weight.sum(0).expand_as(x)), 0.05)

    def test_every_group_and_shape_of_scales(self):
        for group in (0, *ROTATIONS):
            model = Model(max(2 * group, 64))
            said = {"format": "int8_tensorwise"}
            if group:
                said.update(convrot=True, convrot_groupsize=group)
            for scale in (None, lambda s: s.reshape(-1), lambda s: s.bfloat16()):
                state = self.state(model, group, comfy_quant(**said), scale=scale)
                loaded = checkpoints.load_int8(Model(model.up.in_features), state)
                self.expect(loaded, model, group)
                self.assertTrue(torch.equal(loaded.up.W_int8, state["up.weight"]))
            codes, scale = quantized(model.up.weight, group, one_scale=True)
            for shape in ((), (1,), (1, 1)):
                state = self.state(model, group, comfy_quant(**said), scale=lambda _: None)
                state.update({"up.weight": codes, "up.weight_scale": scale.reshape(shape)})
                loaded = checkpoints.load_int8(Model(model.up.in_features), state)
                self.assertEqual(loaded.up.mode, "global")
                self.expect(loaded, model, group)

    def test_a_rotation_is_what_helps_against_outliers(self):
        """This test fails if a rotated layer is read as a plain one, or the other way around."""
        model = Model()
        x = torch.randn(64, 256)
        x[:, 7] *= 60
        errors = {}
        for group in (0, 256):
            said = comfy_quant(format="int8_tensorwise", convrot=bool(group))  # the default group is 256
            loaded = checkpoints.load_int8(Model(), self.state(model, group, said))
            with torch.no_grad():
                errors[group] = relative_error(loaded.up(x), model.up(x))
        self.assertLess(4 * errors[256], errors[0])

    def test_where_it_may_be_said(self):
        model, prefix = Model(), "model.diffusion_model."
        about = {"convrot": True, "convrot_groupsize": 64}
        for group, said in (
            (64, {**about}),
            (64, {"params": about}),
            # If both dictionaries have the entries, those of the outer one are used.
            (16, {"convrot": 1, "convrot_groupsize": "16", "params": about}),
            (0, {"convrot": False, "params": about}),
            (0, {"params": None}),
            (0, {"per_row": True, "orig_shape": [HIDDEN, 256]}),
        ):
            said = {"format": "int8_tensorwise", **said}
            for prefixed in ("", prefix):
                with self.subTest(said=said, prefix=prefixed):
                    state = self.state(model, group, comfy_quant(**said), prefixed)
                    # Ignored, because ComfyUI does not read it in this format.
                    state["up.input_scale"] = torch.ones(())
                    if prefixed:
                        state["first_stage_model.up.weight"] = torch.ones(3)
                    else:
                        del state["up.input_scale"]
                    self.expect(
                        checkpoints.load_int8(Model(), state, prefix=prefixed), model, group
                    )
                    for name in (prefixed + "up", "up"):
                        state.pop(prefixed + "up.comfy_quant", None)
                        layers = json.dumps({"format_version": "1.0", "layers": {name: said}})
                        write(self.path, state, {"_quantization_metadata": layers, "format": "pt"})
                        loaded = checkpoints.load_int8_file(Model(), self.path, prefix=prefixed)
                        self.expect(loaded, model, group)
        state = self.state(model, 64, comfy_quant(format="int8_tensorwise", **about))
        state["up.input_scale"] = torch.ones(())
        self.expect(checkpoints.load_int8(Model(), state), model, 64)

    def test_codes_of_minus_128(self):
        model = Model(3072)
        for group in (0, 256):
            said = {"convrot": True} if group else {}
            state = self.state(model, group, comfy_quant(format="int8_tensorwise", **said))
            # The scale clips the largest element of each row, as in programs that search for the best scale.
            codes, scale = quantized(model.up.weight, group, clip=0.995)
            state.update({"up.weight": codes, "up.weight_scale": scale})
            self.assertGreater(int((codes == -128).sum()), 5)
            loaded = checkpoints.load_int8(Model(3072), state)
            self.expect(loaded, model, group)
            self.assertTrue(torch.equal(loaded.up.W_int8, state["up.weight"]))

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
        good = {"format": "int8_tensorwise"}
        state = self.state(model, 0, None)
        second, scale = quantized(model.down.weight)
        floating = torch.ones(HIDDEN, 256)
        more = {"down.weight": second, "down.weight_scale": scale}
        for words, beside in (
            *(
                (f"up.comfy_quant says .*{name}", {"up.comfy_quant": comfy_quant(format=name)})
                for name in ("convrot_w4a4", "float8_e4m3fn", "int8_blockwise")
            ),
            ("up.comfy_quant says .*per_row", {"up.comfy_quant": comfy_quant(per_row=True)}),
            *(
                (words, {"up.comfy_quant": comfy_quant(**good, **said)})
                for words, said in (
                    ("up.weight says group_size = 64", {"convrot": True, "group_size": 64}),
                    ("says convrot_group = 64", {"params": {"convrot": True, "convrot_group": 64}}),
                    ("convrot of up.weight is 64", {"convrot": 64}),
                    ("says ConvRot = True", {"ConvRot": True}),
                    ("convrot of up.weight is 'yes'", {"params": {"convrot": "yes"}}),
                )
            ),
            ("up.comfy_quant is .*JSON object", {"up.comfy_quant": bytes_of("[1]")}),
            ("up.comfy_quant is not JSON", {"up.comfy_quant": bytes_of("{")}),
            *(
                (words, {"up.comfy_quant": comfy_quant(**good, convrot=True, convrot_groupsize=size)})
                for words, size in (
                    ("group.*up.weight is 32", 32),
                    ("group.*up.weight is 4096", 4096),
                    ("group.*up.weight is None", None),
                )
            ),
            (
                "up.weight is 1024.*256 columns",
                {"up.comfy_quant": comfy_quant(**good, convrot=True, convrot_groupsize=1024)},
            ),
            ("codes of down.weight", {"up.comfy_quant": comfy_quant(**good), **more}),
            *(
                ("up.weight_scale has shape", {"up.comfy_quant": comfy_quant(**good), "up.weight_scale": odd})
                for odd in (torch.ones(1, HIDDEN), torch.ones(HIDDEN, 2))
            ),
            ("no scales", {"up.comfy_quant": comfy_quant(**good), "up.weight_scale": None}),
            (
                "up.comfy_quant says .*nvfp4",
                {
                    "up.comfy_quant": comfy_quant(format="nvfp4"),
                    "up.weight": floating.to(torch.uint8),
                },
            ),
            ("up.comfy_quant says", {"up.comfy_quant": comfy_quant(**good), "up.weight": floating}),
            (
                r"must be \[N,K\]",
                {
                    "up.comfy_quant": comfy_quant(**good),
                    "up.weight": torch.ones(2, 3, 4, dtype=torch.int8),
                },
            ),
        ):
            made = {key: t for key, t in {**state, **beside}.items() if t is not None}
            for strict in (True, False):
                fresh = Model()
                before = copy.deepcopy(fresh.state_dict())
                with self.subTest(words=words), self.assertRaisesRegex(RuntimeError, words):
                    checkpoints.load_int8(fresh, made, strict=strict)
                for key, tensor in fresh.state_dict().items():  # the failed load changed nothing
                    self.assertTrue(torch.equal(tensor, before[key]))
        with self.assertRaisesRegex(ValueError, "prefix = 'net.'; no key begins with it"):
            checkpoints.load_int8(Model(), state, prefix="net.")
        prefixed = self.state(model, 0, None, "net.")
        with self.assertRaisesRegex(ValueError, "it does not exist in the model.*prefix"):
            checkpoints.load_int8(Model(), prefixed)

    def test_headers_that_say_nothing_useful(self):
        model = Model()
        state = self.state(model, 256, None)
        for words, metadata in (
            ("codes of up.weight", json.dumps({"layers": {}})),
            (
                "codes of up.weight",
                json.dumps({"layers": {"net.up": {"format": "int8_tensorwise"}}}),
            ),
            ('no "layers"', "{}"),
            ("not JSON", "{"),
            ("JSON object", "[]"),
            ("of 'up' is .*JSON", json.dumps({"layers": {"up": "int8_tensorwise"}})),
            ("up.comfy_quant says", json.dumps({"layers": {"up": {"format": "int8_rows"}}})),
            ("down.comfy_quant says", json.dumps({"layers": {"down": {"format": "mxfp8"}}})),
        ):
            write(self.path, state, {"_quantization_metadata": metadata})
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


class Written(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(9, 256)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = os.path.join(folder.name, "model.safetensors")

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
            checkpoints.save_int8_file(model, self.path, prefix="net.")
            loaded = checkpoints.load_int8_file(Model(), self.path, prefix="net.")
            self.assertEqual((loaded.up.rotation, loaded.down.rotation), (64, 0))
            self.assertTrue(torch.equal(loaded.up.W_int8, model.up.W_int8))
            with torch.no_grad():
                # The scale 127 * (absmax / 127) is rounded twice.
                self.assertLess(relative_error(loaded(self.x), want), 2.0**-20)

    def test_what_is_not_int8_is_not_written(self):
        with self.assertRaisesRegex(ValueError, "no W_int8.*prepare_for_eval"):
            checkpoints.save_int8_file(Model(), self.path)
        self.assertFalse(os.path.exists(self.path))

    def test_other_formats_refuse_what_they_cannot_hold(self):
        state = self.prepared().state_dict()
        for name in ("bitsandbytes", "compressed-tensors"):
            with self.assertRaisesRegex(
                Unsupported, f"'up' are rotated, with rotation = 256.*{name}"
            ):
                checkpoints.to_int8(state, name)
            checkpoints.to_int8(self.prepared(0).state_dict(), name)
        for key, words in (("up.W_int8", "no up.W_int8"), ("up.state_W", "no up.state_W")):
            torn = {k: t for k, t in state.items() if k != key}
            with self.assertRaisesRegex(ValueError, words):
                checkpoints.to_int8(torn, "comfy")

    def test_files_in_parts(self):
        model = self.prepared(64)
        state = checkpoints.to_int8(model.state_dict(), "comfy")
        said = {
            k[: -len(".comfy_quant")]: json.loads(bytes(t.tolist()))
            for k, t in state.items()
            if "comfy_quant" in k
        }
        paths = []
        for name in ("up", "down"):
            paths.append(f"{self.path}.{name}")
            part = {k: t for k, t in state.items() if k.startswith(name) and "comfy_quant" not in k}
            layers = json.dumps({"layers": {name: said[name]}})
            write(paths[-1], part, {"_quantization_metadata": layers})
        loaded = checkpoints.load_int8_file(Model(), paths)
        self.assertTrue(torch.equal(loaded.up.W_int8, model.up.W_int8))
        self.assertEqual((loaded.up.rotation, loaded.down.rotation), (64, 0))
        with self.assertRaisesRegex(ValueError, "up.*which an earlier file contains too"):
            checkpoints.load_int8_file(Model(), [paths[0], paths[0]])

    @unittest.skipUnless(importlib.util.find_spec("safetensors"), "safetensors is not installed")
    def test_files_of_the_package(self):
        from safetensors.torch import load_file, save_file

        model = self.prepared()
        state = checkpoints.to_int8(model.state_dict(), "comfy")
        state["step"] = torch.tensor(7)
        save_file(state, self.path)
        loaded = checkpoints.load_int8_file(Model(), self.path, strict=False)
        self.assertEqual(loaded.load_result.unexpected_keys, ["step"])
        checkpoints.save_int8_file({**model.state_dict(), "step": torch.tensor(7)}, self.path)
        read = load_file(self.path)
        self.assertEqual(set(read), set(state))
        for key, tensor in read.items():
            self.assertTrue(torch.equal(tensor, state[key]))
            self.assertEqual(tensor.dtype, state[key].dtype)
        # A state_dict of this package can also be a file: its empty weights and rotation are tensors.
        save_file(model.state_dict(), self.path)
        loaded = checkpoints.load_int8_file(Model(), self.path)
        with torch.no_grad():
            self.assertTrue(torch.equal(loaded(self.x), model(self.x)))

    def test_files_that_are_none(self):
        def header(text, data=b""):
            return struct.pack("<Q", len(text)) + text + data

        about = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
        for words, content in (
            ("not a safetensors file", b""),
            ("not a safetensors file", b"\x05"),
            ("not a safetensors file", struct.pack("<Q", 2**60) + b"{}"),
            ("its header", header(b"{]")),
            ("not a JSON object", header(b"[]")),
            ("up: the header describes it as", header(json.dumps({"up": about}).encode(), b"1234567")),
            (
                "up: the header describes it as",
                header(json.dumps({"up": {**about, "shape": [3]}}).encode(), b"0" * 12),
            ),
            (
                "up: the header describes it as",
                header(json.dumps({"up": {**about, "shape": [-2]}}).encode(), b"0" * 8),
            ),
            (
                "up: the header describes it as",
                header(json.dumps({"up": {**about, "data_offsets": [-8, 0]}}).encode(), b"0" * 8),
            ),
            ("up: the header describes it as", header(json.dumps({"up": 3}).encode(), b"0" * 8)),
            (
                "up: its dtype 'F4'",
                header(json.dumps({"up": {**about, "dtype": "F4"}}).encode(), b"0" * 8),
            ),
        ):
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
        with self.assertRaisesRegex(Unsupported, "other is torch.complex64"):
            checkpoints.save_int8_file(
                {**model.state_dict(), "other": torch.zeros(3, dtype=torch.complex64)}, self.path
            )
        self.assertEqual(os.path.getsize(self.path), before)
        self.assertEqual(os.listdir(os.path.dirname(self.path)), ["model.safetensors"])


class Remembered(unittest.TestCase):
    """A state_dict says what its codes mean: a layer with another rotation refuses it."""

    def setUp(self):
        torch.manual_seed(0)
        self.x = torch.randn(9, 256)

    def layer(self, rotation, mode="rowwise"):
        return sb.SwitchBackLinear(256, N, mode=mode, rotation=rotation)

    def forms(self, state):
        buffer = io.BytesIO()
        torch.save(state, buffer)
        buffer.seek(0)
        yield state
        yield torch.load(buffer)
        # Without metadata, like other file formats.
        yield {key: tensor.clone() for key, tensor in state.items()}

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
                self.assertTrue(torch.equal(same(self.x), layer(self.x)))
                self.assertEqual(set(same.state_dict()), set(state))
        plain = self.layer(0).prepare_for_eval().state_dict()
        self.assertEqual(set(plain), {"weight", "bias", "W_int8", "state_W"})

    def test_what_was_prepared_by_older_versions_loads(self):
        layer = self.layer(64).prepare_for_eval()
        state = layer.state_dict()
        del state["rotation_W"]
        other = self.layer(64)
        other.load_state_dict(state)
        self.assertTrue(torch.equal(other(self.x), layer(self.x)))
        self.assertEqual(int(other.rotation_W), 64)

    def test_float_models_take_it_over(self):
        model = sb.replace_linear(Model(), include="up", mode="rowwise", rotation=256)
        sb.prepare_for_eval(model)
        for state in self.forms(model.state_dict()):
            loaded = checkpoints.load_int8(Model(), state)
            self.assertEqual(loaded.up.rotation, 256)
            self.assertTrue(torch.equal(loaded(self.x), model(self.x)))

    def test_copies_casts_and_the_way_back(self):
        layer = self.layer(64).prepare_for_eval()
        want = layer(self.x)
        for other in (
            copy.deepcopy(layer),
            pickle.loads(pickle.dumps(layer)),
            layer.double().float(),
        ):
            self.assertTrue(torch.equal(other(self.x), want))
            self.assertEqual(int(other.state_dict()["rotation_W"]), 64)
        floating = self.layer(64)
        layer.load_state_dict(floating.state_dict())
        self.assertFalse(layer.is_prepared)
        self.assertEqual(set(layer.state_dict()), {"weight", "bias"})
        self.assertTrue(torch.equal(layer(self.x), floating(self.x)))
        prepared = self.layer(16)
        with torch.inference_mode():
            prepared.prepare_for_eval()
        prepared.load_state_dict(self.layer(16).prepare_for_eval().state_dict())

    def test_weights_shared_with_other_modules_stay_float(self):
        model = nn.Module()
        model.embed, model.head = nn.Embedding(N, 256), self.layer(64)
        model.head.weight = model.embed.weight
        before = set(model.state_dict())
        sb.prepare_for_eval(model)
        self.assertTrue(model.head.is_prepared)
        self.assertEqual(set(model.state_dict()), before)


class Options(unittest.TestCase):
    """Every layer class accepts the options that it can support; an error names one that it cannot."""

    OPTIONS = {"rotation": 64, "rounding": "stochastic", "seed": 3}
    BLOCKS = {"dw": "int8_block", "dw_block_rows": 128}

    def same(self, layer, other):
        torch.manual_seed(1)
        other.load_state_dict(layer.state_dict())
        found = []
        for module in (layer, other):
            x = torch.randn(300, 64, generator=torch.Generator().manual_seed(2), requires_grad=True)
            module(x).square().sum().backward()
            found.append((x.grad, module.weight.grad))
        for a, b in zip(*found):
            self.assertTrue(torch.equal(a, b))

    def test_layers(self):
        for kind, mode in (
            (sb.SwitchBackLinearGlobal, "global"),
            (sb.SwitchBackLinearVectorwise, "rowwise"),
            (sb.SwitchBackLinearBnb, "rowwise"),
        ):
            options = {**self.OPTIONS, **self.BLOCKS}
            layer = kind(64, N, **options)
            self.assertEqual(
                (layer.rotation, layer.dw, layer.rounding), (64, "int8_block", "stochastic")
            )
            self.same(layer, sb.SwitchBackLinear(64, N, mode=mode, **options))
            model = sb.replace_linear(Model(64), kind, include="up", **options)
            self.assertEqual((type(model.up), model.up.rotation), (kind, 64))
        kind = sb.SwitchBackLinearGlobalMemEfficient
        other = sb.SwitchBackLinear(64, N, mode="global", mem_efficient=True, **self.OPTIONS)
        self.same(kind(64, N, **self.OPTIONS), other)

    def test_what_makes_no_sense_says_so(self):
        for words, call in (
            (
                "dw = 'int8_block' with mem_efficient",
                lambda: sb.SwitchBackLinearGlobalMemEfficient(64, N, **self.BLOCKS),
            ),
            ("rotation = 64 in mode 'standard'", lambda: sb.StandardLinear(64, N, rotation=64)),
            (
                "dw = 'int8_block' in mode 'standard'",
                lambda: sb.StandardLinear(64, N, dw="int8_block"),
            ),
            (
                "'stochastic' in mode 'standard'",
                lambda: sb.StandardLinear(64, N, rounding="stochastic"),
            ),
            ("rotation = 32", lambda: sb.SwitchBackConfig(rotation=32)),
            ("rotation = 64 in mode 'auto'", lambda: sb.SwitchBackConfig("auto", rotation=64)),
            (
                "dw = 'int8_block' with weights = 'int8'",
                lambda: sb.SwitchBackConfig(weights="int8", dw="int8_block"),
            ),
            (
                "dw = 'int8_block' with mem_efficient",
                lambda: sb.SwitchBackConfig(mem_efficient=True, dw="int8_block"),
            ),
            ("rounding = 'up'", lambda: sb.SwitchBackConfig(rounding="up")),
            ("seed = 3 with rounding", lambda: sb.SwitchBackConfig(seed=3)),
            ("multiple of rotation, 64", lambda: sb.SwitchBackMLP(64, 100, rotation=64)),
            (
                "'down' has 40 inputs, which is not a multiple of rotation = 64",
                lambda: sb.replace_linear(Model(64), mode="rowwise", rotation=64),
            ),
        ):
            with self.subTest(words=words), self.assertRaisesRegex(ValueError, words):
                call()
        with self.assertRaises(TypeError):
            sb.SwitchBackLinearVectorwise(64, N, mode="global")

    def test_configurations(self):
        before = torch.random.get_rng_state()
        config = sb.SwitchBackConfig(rounding="stochastic", rotation=64, **self.BLOCKS)
        self.assertTrue(torch.equal(torch.random.get_rng_state(), before))
        model = nn.Sequential(nn.Linear(64, 128), nn.Linear(128, N))
        sb.quantize_(model, config)
        for layer in model:
            self.assertEqual(
                (layer.rotation, layer.dw, layer.dw_block_rows), (64, "int8_block", 128)
            )
            self.assertEqual(layer.rounding, "stochastic")
        self.assertNotEqual(model[0].seed, model[1].seed)
        model = nn.Sequential(nn.Linear(64, 128))
        sb.quantize_(model, sb.SwitchBackConfig(weights="int8", rotation=64))
        self.assertEqual((model[0].is_prepared, model[0].rotation), (True, 64))

    def test_perceptrons(self):
        for options in (
            {"rotation": 16},
            self.OPTIONS,
            self.BLOCKS,
            {**self.OPTIONS, **self.BLOCKS},
        ):
            mlp = sb.SwitchBackMLP(64, 128, N, **options)
            of = sb.SwitchBackMLP.of(nn.Linear(64, 128), nn.Linear(128, N), **options)
            of.load_state_dict(mlp.state_dict())
            apart = nn.Sequential(
                sb.SwitchBackLinear(64, 128, mode="rowwise", **options),
                sb.GELU("gelu_tanh"),
                sb.SwitchBackLinear(128, N, mode="rowwise", **options),
            )
            apart[0].load_state_dict(mlp.up.state_dict())
            apart[2].load_state_dict(mlp.down.state_dict())
            found = []
            for module in (mlp, of, apart):
                x = torch.randn(
                    300, 64, generator=torch.Generator().manual_seed(2), requires_grad=True
                )
                y = module(x)
                y.square().sum().backward()
                found.append([y, x.grad, *(p.grad for p in module.parameters())])
            for other in found[1:]:
                for a, b in zip(found[0], other):
                    self.assertTrue(torch.equal(a, b))
            if "seed" in options:
                self.assertEqual(mlp.rounding_step, 1)
                mlp.rounding_step = 7
                self.assertEqual((mlp.up.rounding_step, mlp.down.rounding_step), (7, 7))


if __name__ == "__main__":
    unittest.main()
