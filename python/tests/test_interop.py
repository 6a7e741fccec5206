# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of other programs, and the interfaces of transformers and torchao. Loading must set every
weight, so that none keeps its initial value."""

import copy
import io
import itertools
import json
import tempfile
import unittest

from support import relative_error, require_torch

torch = require_torch()

from switchback import nn as sb  # noqa: E402
from switchback.interop import checkpoints  # noqa: E402
from torch import nn  # noqa: E402


def importable(name):
    """Returns whether a suitable version of a package is installed, and if not the reason."""
    try:
        __import__(name)
    except (ImportError, AttributeError) as error:
        return f"{name}: {error}"
    return None


NO_TRANSFORMERS = importable("switchback.interop.transformers")
NO_TORCHAO = importable("switchback.interop.torchao")
NO_DIFFUSERS = importable("switchback.interop.diffusers")
NO_ONNX = importable("switchback.interop.onnx")
NO_PEFT = NO_TRANSFORMERS or importable("peft")


def comfy_quant(**said):
    return torch.tensor(list(json.dumps(said).encode()), dtype=torch.uint8)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 16)
        self.up = nn.Linear(16, 32)
        self.down = nn.Linear(32, 16, bias=False)

    def forward(self, tokens):
        return self.down(torch.relu(self.up(self.embed(tokens))))


class Formats(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(0)
        self.tokens = torch.randint(0, 11, (3, 5))

    def prepared(self, layer=sb.SwitchBackLinearVectorwise):
        return sb.prepare_for_eval(sb.replace_linear(Model(), layer))

    def test_each_format_there_and_back(self):
        for layer in (sb.SwitchBackLinearVectorwise, sb.SwitchBackLinearGlobal):
            model = self.prepared(layer)
            want = model(self.tokens)
            for name in checkpoints.FORMATS:
                state = checkpoints.to_int8(model.state_dict(), name)
                self.assertIs(state["up.weight"].dtype, torch.int8)
                self.assertNotIn("up.W_int8", state)
                buffer = io.BytesIO()
                torch.save(state, buffer)
                buffer.seek(0)
                other = checkpoints.load_int8(Model(), torch.load(buffer))
                self.assertTrue(torch.equal(other.up.W_int8, model.up.W_int8))
                # The scale 127 * (absmax / 127) is rounded twice: an error of 2^-23, a few times.
                self.assertLess(relative_error(other(self.tokens), want), 2.0**-20)
                if name == "bitsandbytes":
                    self.assertTrue(torch.equal(other(self.tokens), want))
            loaded = checkpoints.load_int8(Model(), model.state_dict())
            self.assertTrue(torch.equal(loaded(self.tokens), want))

    def test_what_others_wrote(self):
        """Checkpoints written by the definitions of the formats, with a code of -128, which
        compressed-tensors has."""
        codes = torch.randint(-128, 128, (32, 16), dtype=torch.int8)
        codes[0, 0] = -128
        plain = Model()
        exact = copy.deepcopy(plain)
        of_rows = torch.rand(32) / 99
        for scale in (of_rows.view(32, 1), of_rows.bfloat16(), torch.tensor(0.004)):
            with torch.no_grad():
                exact.up.weight.copy_(codes * scale.float().reshape(-1, 1))
            for beside in (
                {},
                {"up.weight_zero_point": torch.zeros(32, 1, dtype=torch.int8)},
                {"up.weight_shape": torch.tensor([32, 16])},
                {"up.comfy_quant": comfy_quant(format="int8_tensorwise")},
            ):
                state = plain.state_dict()
                state.update({"up.weight": codes, "up.weight_scale": scale, **beside})
                model = checkpoints.load_int8(Model(), state)
                self.assertTrue(torch.equal(model.up.W_int8, codes))
                x = model.embed(self.tokens)
                # Only x is rounded to codes in this comparison: for normal data an error of less than 0.3 /
                # 127 * 4 of the norm.
                self.assertLess(relative_error(model.up(x), exact.up(x)), 0.012)

    def test_what_would_compute_something_else(self):
        good = checkpoints.to_int8(self.prepared().state_dict(), "compressed-tensors")
        codes = torch.ones(11, 16, dtype=torch.int8)
        for words, beside in (
            ("input_scale", {"up.input_scale": torch.ones(1)}),
            ("weight_zero_point", {"up.weight_zero_point": torch.ones(32, 1)}),
            ("convrot", {"up.comfy_quant": comfy_quant(convrot=True)}),
            ("not JSON", {"up.comfy_quant": torch.tensor([1, 2])}),
            ("weight_scale", {"up.weight_scale": torch.ones(32, 2)}),
            ("SCB", {"up.SCB": torch.ones(32)}),
            ("weight_format", {"up.weight_format": torch.tensor(1)}),
            ("embed", {"embed.weight": codes, "embed.weight_scale": torch.ones(11)}),
            ("Unexpected", {"other.weight": torch.ones(3)}),
        ):
            model = Model()
            with self.subTest(words=words), self.assertRaisesRegex(RuntimeError, words):
                checkpoints.load_int8(model, {**good, **beside})
        for key in ("up.weight_scale", "up.bias", "embed.weight"):
            state = {k: v for k, v in good.items() if k != key}
            with self.assertRaisesRegex(RuntimeError, "scale|Missing"):
                checkpoints.load_int8(Model(), state)
        with self.assertRaisesRegex(ValueError, "'other'"):
            checkpoints.to_int8(good, "other")

    def test_a_plain_model_refuses_codes(self):
        """A model without switchback layers must refuse int8 codes, also with strict=False, where torch
        ignores missing keys."""
        state = self.prepared().state_dict()
        for strict in (True, False):
            with self.assertRaisesRegex(RuntimeError, "size mismatch for up.weight"):
                Model().load_state_dict(state, strict=strict)


class Quantize(unittest.TestCase):
    def test_by_configuration(self):
        for weights, mode in (("float", "rowwise"), ("int8", "global")):
            model = Model()
            config = sb.SwitchBackConfig(mode, weights=weights)
            sb.quantize_(model, config, lambda module, name: name != "down" and is_plain(module))
            self.assertEqual((model.up.mode, model.up.is_prepared), (mode, weights == "int8"))
            self.assertIs(type(model.down), nn.Linear)
        model = nn.Sequential(Model())
        sb.quantize_(model)
        self.assertEqual(model[0].up.mode, "rowwise")

    def test_bad_arguments(self):
        for words, call in (
            ("'other'", lambda: sb.SwitchBackConfig("other")),
            ("'int4'", lambda: sb.SwitchBackConfig(weights="int4")),
            ("auto", lambda: sb.SwitchBackConfig("auto", weights="int8")),
            ("replace_linear", lambda: sb.quantize_(nn.Linear(3, 3))),
        ):
            with self.assertRaisesRegex(ValueError, words):
                call()

    @unittest.skipIf(NO_TORCHAO, NO_TORCHAO)
    def test_torchao(self):
        from torchao.quantization import quantize_

        torch.manual_seed(0)
        model, tokens = Model(), torch.randint(0, 11, (3, 5))
        want = sb.replace_linear(copy.deepcopy(model), sb.SwitchBackLinearVectorwise)(tokens)
        for weights in ("float", "int8"):
            other = copy.deepcopy(model)
            quantize_(other, sb.SwitchBackConfig(weights=weights))
            self.assertEqual(other.up.is_prepared, weights == "int8")
            self.assertTrue(torch.equal(other(tokens), want))


@unittest.skipIf(NO_ONNX, NO_ONNX)
class Onnx(unittest.TestCase):
    def export(self, model, x, table):
        return torch.onnx.export(
            model, (x,), dynamo=True, verbose=False, custom_translation_table=table
        ).model_proto

    def test_bits(self):
        from onnx.reference import ReferenceEvaluator
        from switchback.interop.onnx import translations

        torch.manual_seed(0)
        x = torch.randn(2, 3, 16)
        x[0, 1] = 0
        for mode in ("rowwise", "global"):
            for prepared in (False, True):
                model = nn.Sequential(
                    sb.SwitchBackLinear(16, 8, mode=mode),
                    nn.ReLU(),
                    sb.SwitchBackLinear(8, 5, mode=mode, bias=False),
                ).eval()
                if prepared:
                    sb.prepare_for_eval(model)
                made = self.export(model, x, translations())
                (y,) = ReferenceEvaluator(made).run(None, {made.graph.input[0].name: x.numpy()})
                with torch.no_grad():
                    self.assertTrue(torch.equal(torch.from_numpy(y), model(x)))

    def test_what_is_refused_is_named(self):
        from switchback.interop.onnx import translations

        x = torch.randn(2, 16)
        for model, table, words in (
            (sb.SwitchBackLinear(16, 8), None, "switchback.linear"),
            (sb.StandardLinear(16, 8), translations(), "mode=standard"),
            (sb.SwitchBackLinear(16, 8, rotation=16), translations(), "rotation=16"),
            (sb.SwitchBackLinear(16, 8, rotation=16).prepare_for_eval(), translations(), "rotation=16"),
        ):
            with self.assertRaises(Exception) as caught:
                self.export(model.eval(), x, table)
            said, error = "", caught.exception
            while error is not None:
                said, error = said + str(error), error.__cause__
            self.assertIn(words, said)


def is_plain(module):
    return type(module) is nn.Linear


def tiny_llama(**more):
    import transformers

    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, **heads, **more}
    config = transformers.LlamaConfig(vocab_size=50, max_position_embeddings=64, **sizes)
    torch.manual_seed(0)
    return transformers.LlamaForCausalLM(config).eval()


def tiny_diffusion():
    from diffusers import DiTTransformer2DModel

    torch.manual_seed(0)
    return DiTTransformer2DModel(
        num_attention_heads=2,
        attention_head_dim=16,
        in_channels=4,
        num_layers=2,
        sample_size=8,
        num_embeds_ada_norm=10,
    ).eval()


class Pretrained:
    """Tests of a quantizer: from_pretrained, save_pretrained, and the arguments of its configuration.

    Subclasses say which model and configuration, the names of a layer and of one that stays, and the name of
    from_pretrained's argument for the dtype.
    """

    def test_from_pretrained_and_back(self):
        plain = self.plain()
        kind = type(plain)
        forms = ("rowwise", 16), ("global", 0)
        dtypes = torch.float32, torch.bfloat16
        for (mode, rotation), weights, dtype in itertools.product(forms, ("int8", "float"), dtypes):
            with (
                self.subTest(mode=mode, weights=weights, dtype=dtype),
                tempfile.TemporaryDirectory() as one,
                tempfile.TemporaryDirectory() as two,
            ):
                of_dtype = {self.dtype_argument: dtype}
                plain.save_pretrained(one)
                want = kind.from_pretrained(one, **of_dtype)
                sb.replace_linear(want, mode=mode, rotation=rotation, exclude=self.stays)
                want = self.computed(want)
                config = self.config(mode, weights, rotation=rotation)
                model = kind.from_pretrained(one, quantization_config=config, **of_dtype)
                self.assertTrue(is_plain(model.get_submodule(self.stays)))
                layer = model.get_submodule(self.layer)
                self.assertEqual((layer.mode, layer.is_prepared), (mode, weights == "int8"))
                self.assertTrue(torch.equal(self.computed(model), want))
                model.save_pretrained(two)
                again = kind.from_pretrained(two, **of_dtype)
                self.assertTrue(torch.equal(self.computed(again), want))
                layer = again.get_submodule(self.layer)
                self.assertEqual((layer.rotation, layer.is_prepared), (rotation, weights == "int8"))
                if weights == "int8":
                    self.assertIs(layer.state_W.dtype, torch.float32)
                else:
                    layer(torch.randn(3, 32, dtype=dtype)).sum().backward()
                    self.assertIsNotNone(layer.weight.grad)

    def test_a_plain_class_never_gets_random_weights(self):
        model = self.plain()
        sb.prepare_for_eval(sb.replace_linear(model))
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            with self.assertRaisesRegex(Exception, "mismatch|size|shape"):
                type(model).from_pretrained(folder)

    def test_bad_configurations(self):
        for arguments, words in (
            ({"mode": "rows"}, "mode = 'rows'"),
            ({"weights": "int4"}, "weights = 'int4'"),
            ({"bits": 8}, "bits"),
            ({"rotation": 32}, "rotation = 32"),
            ({"dw": "int8_block"}, "dw = 'int8_block' with weights = 'int8'"),
        ):
            with self.assertRaisesRegex(ValueError, words):
                self.config(**arguments)


@unittest.skipIf(NO_DIFFUSERS, NO_DIFFUSERS)
class Diffusers(Pretrained, unittest.TestCase):
    stays, layer = "proj_out_2", "transformer_blocks.0.attn1.to_q"
    dtype_argument = "torch_dtype"

    def plain(self):
        return tiny_diffusion()

    def config(self, *arguments, **options):
        from switchback.interop.diffusers import SwitchBackQuantConfig

        return SwitchBackQuantConfig(*arguments, modules_to_not_convert=[self.stays], **options)

    def computed(self, model):
        x = torch.randn(2, 4, 8, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float32)
        of = {"timestep": torch.tensor([3, 500]), "class_labels": torch.tensor([1, 7])}
        with torch.no_grad():
            return model.eval()(x.to(model.dtype), **of).sample


@unittest.skipIf(NO_TRANSFORMERS, NO_TRANSFORMERS)
class Transformers(Pretrained, unittest.TestCase):
    stays, layer = "lm_head", "model.layers.0.self_attn.q_proj"  # transformers itself leaves lm_head alone
    dtype_argument = "dtype"

    def setUp(self):
        self.tokens = torch.randint(0, 50, (2, 7), generator=torch.Generator().manual_seed(1))

    def plain(self):
        return tiny_llama()

    def config(self, *arguments, **options):
        from switchback.interop.transformers import SwitchBackQuantConfig

        return SwitchBackQuantConfig(*arguments, **options)

    def computed(self, model):
        with torch.no_grad():
            return model.eval()(self.tokens).logits

    def test_codes_of_another_rotation_are_refused(self):
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            plain = tiny_llama(hidden_size=64)
            plain.save_pretrained(one)
            kind, config = type(plain), self.config(rotation=16)
            kind.from_pretrained(one, quantization_config=config).save_pretrained(two)
            with open(f"{two}/config.json", encoding="utf-8") as file:
                saved = json.load(file)
            saved["quantization_config"]["rotation"] = 64
            with open(f"{two}/config.json", "w", encoding="utf-8") as file:
                json.dump(saved, file)
            with self.assertRaisesRegex(ValueError, "rotation = 16, and the layer has rotation = 64"):
                kind.from_pretrained(two)

    def test_a_saved_model_is_a_file_of_codes(self):
        model = sb.prepare_for_eval(sb.replace_linear(self.plain(), mode="rowwise"))
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            other = checkpoints.load_int8_file(self.plain(), f"{folder}/model.safetensors")
        self.assertTrue(torch.equal(self.computed(other), self.computed(model)))

    def test_conv1d(self):
        import transformers

        torch.manual_seed(0)
        sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "vocab_size": 50, "n_positions": 64}
        config, kind = transformers.GPT2Config(**sizes), transformers.GPT2LMHeadModel
        plain = kind(config).eval()
        with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
            plain.save_pretrained(one)
            model = kind.from_pretrained(one, quantization_config=self.config())
            self.assertTrue(model.transformer.h[0].mlp.c_fc.is_prepared)
            want = self.computed(model)
            self.assertLess(relative_error(want, self.computed(plain)), 0.05)
            model.save_pretrained(two)
            self.assertTrue(torch.equal(self.computed(kind.from_pretrained(two)), want))

    @unittest.skipIf(NO_PEFT, NO_PEFT)
    def test_adapters_on_a_frozen_base(self):
        import peft

        for weights in ("float", "int8"):
            torch.manual_seed(0)
            model, of = tiny_llama(), sb.SwitchBackConfig(weights=weights)
            sb.quantize_(model, of, lambda _module, name: "proj" in name)
            config = peft.LoraConfig(r=4, target_modules=["q_proj", "down_proj"], lora_dropout=0.0)
            model = peft.get_peft_model(model, config)
            trained = [p for p in model.parameters() if p.requires_grad]
            optimizer = torch.optim.AdamW(trained, 1e-2)
            losses = []
            for _ in range(8):
                loss = model(self.tokens, labels=self.tokens).loss
                loss.backward()
                optimizer.step()
                optimizer.zero_grad()
                losses.append(float(loss))
            self.assertLess(losses[-1], losses[0] - 0.01)

    @unittest.skipIf(NO_PEFT, NO_PEFT)
    def test_adapters_merge_into_codes(self):
        import peft
        from look_alikes import Conv1D
        from switchback.interop.peft import mergeable

        x = torch.randn(9, 16, generator=torch.Generator().manual_seed(2))
        torch.manual_seed(0)
        for layer, options in (
            (nn.Linear(16, 32), {"mode": "rowwise"}),
            (nn.Linear(16, 32), {"mode": "global"}),
            (nn.Linear(16, 32), {"mode": "rowwise", "rotation": 16}),
            (Conv1D(32, 16), {"mode": "rowwise"}),
        ):
            model = sb.prepare_for_eval(sb.replace_linear(nn.Sequential(layer), **options))
            codes = model[0].W_int8
            config = mergeable(peft.LoraConfig(r=4, target_modules=["0"], init_lora_weights=False))
            model = peft.get_peft_model(model, config).eval()
            with torch.no_grad(), self.subTest(layer=model.base_model.model[0].base_layer):
                apart = model(x)
                with model.disable_adapter():
                    bare = model(x)
                self.assertGreater(relative_error(bare, apart), 0.05)
                model.merge_adapter(safe_merge=True)
                # Merging rounds to codes once more: 1 / 127 of a row's largest element, several times that
                # in mode global.
                self.assertLess(relative_error(model(x), apart), 0.03)
                model.unmerge_adapter()
                self.assertIs(model.base_model.model[0].base_layer.W_int8, codes)
                self.assertTrue(torch.equal(model(x), apart))
                merged = model.merge_and_unload()
                self.assertTrue(merged[0].is_prepared)
                self.assertLess(relative_error(merged(x), apart), 0.03)

    @unittest.skipIf(NO_PEFT, NO_PEFT)
    def test_what_cannot_be_merged_into_codes_is_named(self):
        import peft
        from switchback.interop.peft import mergeable

        def adapted(model, **options):
            config = peft.LoraConfig(r=4, target_modules=["up"], **options)
            return peft.get_peft_model(sb.prepare_for_eval(model), mergeable(config))

        model = adapted(sb.replace_linear(Model()), lora_bias=True)
        with self.assertRaisesRegex(NotImplementedError, "SwitchBackLinear.*lora_bias.*prepare_for_eval"):
            model.merge_adapter()
        shared = sb.replace_linear(Model(), include="up")
        shared.other = nn.Linear(16, 32)
        shared.other.weight = shared.up.weight
        with self.assertRaisesRegex(RuntimeError, "SwitchBackLinear.*shared.*merge before"):
            adapted(shared).merge_adapter()
        plain = peft.LoraConfig(r=4, target_modules=["up"], init_lora_weights=False)
        model = peft.get_peft_model(sb.replace_linear(Model()), mergeable(plain)).eval()
        tokens = torch.arange(5)
        want = model(tokens)
        self.assertLess(relative_error(model.merge_and_unload()(tokens), want), 0.05)


if __name__ == "__main__":
    unittest.main()
