// SPDX-License-Identifier: Apache-2.0
// Python module switchback._torch_dispatch: the fast path from a layer's calls to libswitchback.
//
// It handles calls on plain tensors of the CPU or a CUDA device, of a layer that already holds the
// weight. For all other calls it returns None. python/switchback/nn then uses the path in Python,
// which checks everything and reports errors. So nothing here reports a bad argument.
#include <cstring>

#include "layers.hpp"

namespace dispatch {
namespace {

// The version of the interface between this module and nn/_dispatch.py.
constexpr long version = 8;

PyObject* apply = nullptr;           // Python function that records a forward for autograd
PyObject* apply_prepared = nullptr;  // the same for a forward from codes

// ---- What a forward that autograd records keeps of x for dw

// Codes of x and their scales, which the library's forward writes.
struct KeptCodes {
  Tensor codes, absmax;
  switchback_kept_input input = {sizeof(input), {}, nullptr, 0};

  // Allocates codes[rows,K] and absmax[rows]; returns false if there is not enough memory.
  bool make(const Layer& layer, int64_t rows) {
    const int64_t of_codes[2] = {rows, layer.in_features};
    return make(layer, of_codes, 1, of_codes);
  }
  // Allocates codes[K,padded] of blocks of rows, and absmax[blocks,K]; returns false without
  // memory.
  bool make_blocks(const Layer& layer, int64_t rows) {
    const int64_t blocks = (rows - 1) / layer.block_rows + 1;
    const int64_t of_codes[2] = {layer.in_features, blocks * layer.block_rows};
    const int64_t of_absmax[2] = {blocks, layer.in_features};
    input.in_blocks = 1;
    return make(layer, of_codes, 2, of_absmax);
  }

 private:
  bool make(const Layer& layer, const int64_t* of_codes, int64_t dim, const int64_t* of_absmax) {
    codes = empty(2, of_codes, aoti_torch_dtype_int8(), layer.device);
    absmax = empty(dim, of_absmax, aoti_torch_dtype_float32(), layer.device);
    input.x = {codes.data(), SWITCHBACK_S8, of_codes[0], of_codes[1], of_codes[1]};
    input.absmax = static_cast<float*>(absmax.data());
    return codes.get() != nullptr && absmax.get() != nullptr;
  }
};

// What was kept of the input, for a backward: x, or codes of x with their scales.
struct KeptInput {
  switchback_kept_input input = {sizeof(input), {}, nullptr, 0};

  // Both functions return false if the tensors cannot be read in place.
  bool read(const Layer& layer, int64_t rows, PyObject* x) {
    if (!x_.read(layer, x, layer.in_features) || x_.count != rows) return false;
    input.x = x_.matrix;
    return true;
  }
  bool read(const Layer& layer, int64_t rows, PyObject* codes, PyObject* absmax) {
    View& view = x_.view;
    if (!look_at(codes, view) || !suits(view, layer, aoti_torch_dtype_int8()) ||
        !look_at(absmax, scales_) || !suits(scales_, layer, aoti_torch_dtype_float32()))
      return false;
    const int64_t k = layer.in_features, count = scales_.sizes[0];
    input.in_blocks = scales_.dim == 2 ? 1 : 0;
    const bool fits =
        input.in_blocks != 0
            ? is_dense(scales_, count, k) && is_dense(view, k, count * layer.block_rows)
            : is_dense(scales_) && scales_.dim == 1 && count == rows && is_dense(view, rows, k);
    if (!fits) return false;
    input.x = {view.data, SWITCHBACK_S8, view.sizes[0], view.sizes[1], view.sizes[1]};
    input.absmax = static_cast<float*>(scales_.data);
    return true;
  }

 private:
  Rows x_;
  View scales_;
};

// ---- Forward and backward

// Python function forward(layers, x, weight, bias, keeps_codes): returns y, recorded if autograd is
// on, or None. With one more argument, which says whether a backward will follow, nothing is
// recorded.
PyObject* forward(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if ((count != 5 && count != 6) || !PyObject_TypeCheck(args[0], layer_set_type)) return none();
  PyObject *x = args[1], *weight = args[2], *bias = args[3];
  Layer* layer = current_layer(args[0]);
  const Ref keep(Py_XNewRef(reinterpret_cast<PyObject*>(layer)));
  Rows given;
  long long version = 0, bias_version = 0;
  if (layer == nullptr || layer->weight == nullptr || !undisturbed() ||
      !given.read(*layer, x, layer->in_features) || !version_of(weight, version) ||
      !version_of(bias, bias_version))
    return none();
  bool recorded = false, wants_dw = false;
  if (count == 5 && aoti_torch_grad_mode_is_enabled()) {
    wants_dw = requires_grad(weight);
    recorded = wants_dw || requires_grad(x) || requires_grad(bias);
  }
  const bool trains = recorded || (count == 6 && args[5] == Py_True);

  const int64_t rows = given.count;
  Tensor y = empty_like(given.view, layer->out_features);
  KeptCodes kept;
  if (wants_dw && layer->block_rows > 0) {
    if (!kept.make_blocks(*layer, rows)) return none();
  } else if (wants_dw && args[4] == Py_True && !kept.make(*layer, rows)) {
    return none();
  }
  if (y.get() == nullptr) return none();
  const switchback_matrix out = matrix_of(y, *layer, rows, layer->out_features);
  const auto hold = [&](bool& current) {
    current = holds_weight(*layer, weight) && holds_bias(*layer->weight, bias);
    if (!current) return switchback_status(SWITCHBACK_OK);
    return use_weight(*layer, *as_layers(args[0]), version, bias_version, trains);
  };
  const Outcome outcome = call(*layer, hold, [&] {
    const int32_t save = trains ? SWITCHBACK_SAVE_CALLER : SWITCHBACK_SAVE_NOTHING;
    const auto* const codes = kept.codes.get() == nullptr ? nullptr : &kept.input;
    return library.linear_forward(layer->linear, &given.matrix, &out, save, codes);
  });
  if (outcome != Outcome::done) return unfinished(outcome);
  Ref result = to_python(std::move(y));
  if (!recorded || !result) return result.release();
  Ref of_codes = to_python(std::move(kept.codes)), of_absmax = to_python(std::move(kept.absmax));
  if (!of_codes || !of_absmax) return nullptr;
  Ref made(PyTuple_Pack(3, result.get(), of_codes.get(), of_absmax.get()));
  if (!made) return nullptr;
  return PyObject_CallFunctionObjArgs(apply, x, weight, bias, args[0], args[4], made.get(),
                                      nullptr);
}

// Python function forward_prepared(layers, x, codes, absmax, bias): returns y from int8 codes of
// the weight, recorded if autograd is on, or None. With one more argument nothing is recorded.
PyObject* forward_prepared(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if ((count != 5 && count != 6) || !PyObject_TypeCheck(args[0], layer_set_type)) return none();
  PyObject *x = args[1], *codes = args[2], *absmax = args[3], *bias = args[4];
  Layer* layer = current_layer(args[0]);
  const Ref keep(Py_XNewRef(reinterpret_cast<PyObject*>(layer)));
  Rows given;
  long long bias_version = 0;
  if (layer == nullptr || layer->codes == nullptr || !undisturbed() ||
      !given.read(*layer, x, layer->in_features) || reads_codes_themselves(*layer, given.count) ||
      !version_of(bias, bias_version))
    return none();
  const bool recorded =
      count == 5 && aoti_torch_grad_mode_is_enabled() && (requires_grad(x) || requires_grad(bias));
  Tensor y = empty_like(given.view, layer->out_features);
  if (y.get() == nullptr) return none();
  const switchback_matrix out = matrix_of(y, *layer, given.count, layer->out_features);
  const auto hold = [&](bool& current) {
    current = holds_codes(*layer, codes, absmax) && holds_bias(*layer->codes, bias) &&
              bias_version == layer->bias_version && as_layers(args[0])->updates == layer->updates;
    return current ? prove_codes(*layer, true, current) : switchback_status(SWITCHBACK_OK);
  };
  const Outcome outcome = call(*layer, hold, [&] {
    return library.linear_forward(layer->linear, &given.matrix, &out, SWITCHBACK_SAVE_NOTHING,
                                  nullptr);
  });
  if (outcome != Outcome::done) return unfinished(outcome);
  Ref result = to_python(std::move(y));
  if (!recorded || !result) return result.release();
  Ref made(PyTuple_Pack(1, result.get()));
  if (!made) return nullptr;
  return PyObject_CallFunctionObjArgs(apply_prepared, x, codes, absmax, bias, args[0], made.get(),
                                      nullptr);
}

// Python function backward(layers, g, x, weight, codes, absmax, wants_db): returns the gradients as
// the autograd function of the forward returns them, or None. The caller passes weight = None if dx
// is not wanted, and x = codes = None if dw is not wanted.
PyObject* backward(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 7 || !PyObject_TypeCheck(args[0], layer_set_type)) return none();
  PyObject *g = args[1], *x = args[2], *weight = args[3], *codes = args[4], *absmax = args[5];
  const bool wants_dx = weight != Py_None, wants_db = args[6] == Py_True;
  const bool wants_dw = codes != Py_None || x != Py_None;
  Layer* layer = current_layer(args[0]);
  const Ref keep(Py_XNewRef(reinterpret_cast<PyObject*>(layer)));
  Rows given;
  KeptInput kept;
  long long version = 0;
  if (layer == nullptr || layer->weight == nullptr || !undisturbed() ||
      !given.read(*layer, g, layer->out_features) || (wants_dx && !version_of(weight, version)))
    return none();
  const int64_t rows = given.count, k = layer->in_features, n = layer->out_features;
  if (wants_dw &&
      !(codes != Py_None ? kept.read(*layer, rows, codes, absmax) : kept.read(*layer, rows, x)))
    return none();
  const int64_t* const sizes = layer->weight->weight.sizes;
  const int64_t shape[2] = {sizes[0], sizes[1]};
  Tensor dx, dw, db;
  if (wants_dx) dx = empty_like(given.view, k);
  if (wants_dw) dw = empty(2, shape, layer->torch_dtype, layer->device);
  if (wants_db) db = empty(1, &n, layer->torch_dtype, layer->device);
  if ((wants_dx && dx.get() == nullptr) || (wants_dw && dw.get() == nullptr) ||
      (wants_db && db.get() == nullptr))
    return none();
  switchback_linear_grads grads = {};
  grads.struct_size = sizeof(grads);
  grads.g = given.matrix;
  grads.dx = matrix_of(dx, *layer, rows, k);
  grads.dw = matrix_of(dw, *layer, shape[0], shape[1]);
  grads.db = matrix_of(db, *layer, 1, n);
  const auto hold = [&](bool& current) {
    current = layer->weight != nullptr;
    if (!current || !wants_dx) return switchback_status(SWITCHBACK_OK);
    return use_weight_of_forward(*layer, version, weight, current);
  };
  const Outcome outcome = call(
      *layer, hold, [&] { return library.linear_backward(layer->linear, &grads, &kept.input); });
  if (outcome != Outcome::done) return unfinished(outcome);
  if (wants_dw || wants_db) ++as_layers(args[0])->weight_gradients;
  Ref of_x = to_python(std::move(dx)), of_weight = to_python(std::move(dw)),
      of_bias = to_python(std::move(db));
  if (!of_x || !of_weight || !of_bias) return nullptr;
  return PyTuple_Pack(6, of_x.get(), of_weight.get(), of_bias.get(), Py_None, Py_None, Py_None);
}

// Python function backward_prepared(layers, g, codes, absmax): returns dx of a forward from codes,
// or None.
PyObject* backward_prepared(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 4 || !PyObject_TypeCheck(args[0], layer_set_type)) return none();
  PyObject *g = args[1], *codes = args[2], *absmax = args[3];
  Layer* layer = current_layer(args[0]);
  const Ref keep(Py_XNewRef(reinterpret_cast<PyObject*>(layer)));
  Rows given;
  if (layer == nullptr || layer->codes == nullptr || !undisturbed() ||
      !given.read(*layer, g, layer->out_features))
    return none();
  Tensor dx = empty_like(given.view, layer->in_features);
  if (dx.get() == nullptr) return none();
  switchback_linear_grads grads = {};
  grads.struct_size = sizeof(grads);
  grads.g = given.matrix;
  grads.dx = matrix_of(dx, *layer, given.count, layer->in_features);
  const KeptInput nothing;
  const auto hold = [&](bool& current) {
    current = holds_codes(*layer, codes, absmax);
    return current ? prove_codes(*layer, false, current) : switchback_status(SWITCHBACK_OK);
  };
  const Outcome outcome = call(
      *layer, hold, [&] { return library.linear_backward(layer->linear, &grads, &nothing.input); });
  if (outcome != Outcome::done) return unfinished(outcome);
  return to_python(std::move(dx)).release();
}

// ---- A product with codes that no layer holds

// The number of elements of a tensor on this device, if they follow one another in memory; else -1.
int64_t length_of(const View& view, int32_t device) {
  if (view.device != device || !is_dense(view)) return -1;
  int64_t elements = 1;
  for (int64_t d = 0; d < view.dim; ++d)
    elements *= view.sizes[d];
  return elements;
}

// Python function linear_of_codes(context, pointer, acquire, release, x, codes, absmax, bias,
// dtype, rotation, activation): returns y[..., N] from x[..., K] and int8 codes[N,K] with absmax[N]
// or [1], or None. `dtype`, `rotation` and `activation` are numbers of the library. Nothing is
// recorded, and nothing is kept for later calls.
PyObject* linear_of_codes(PyObject*, PyObject* const* args, Py_ssize_t count) {
  if (count != 11) return none();
  PyObject* const bias = args[7];
  View x, codes, scales, of_bias;
  if (!undisturbed() || !look_at(args[4], x) || !look_at(args[5], codes) ||
      !look_at(args[6], scales) || is_negated(args[4]))
    return none();
  auto* const pointer = static_cast<switchback_context*>(PyLong_AsVoidPtr(args[1]));
  const long dtype = PyLong_AsLong(args[8]);
  const long rotation = PyLong_AsLong(args[9]), activation = PyLong_AsLong(args[10]);
  if (PyErr_Occurred()) return nullptr;
  int64_t rows = 0, stride = 0;
  const int64_t n = codes.sizes[0], k = codes.last();
  const int64_t scale_count = length_of(scales, x.device);
  const int32_t type = library_type_of(x.dtype);
  const bool fits = type >= 0 && type != SWITCHBACK_S8 && codes.dtype == aoti_torch_dtype_int8() &&
                    is_dense(codes, n, k) && n > 0 && k > 0 && codes.device == x.device &&
                    rows_of(x, k, rows, stride) && scales.dtype == aoti_torch_dtype_float32() &&
                    (scale_count == n || scale_count == 1);
  if (!fits) return none();
  switchback_gemm_args product = {};
  product.struct_size = sizeof(product);
  if (bias != Py_None) {
    if (!look_at(bias, of_bias) || length_of(of_bias, x.device) != n || is_negated(bias))
      return none();
    product.bias = of_bias.data;
    product.bias_dtype = library_type_of(of_bias.dtype);
  }
  const int64_t of_codes[2] = {rows, k};
  const Tensor q = empty(2, of_codes, aoti_torch_dtype_int8(), x.device);
  const Tensor absmax = empty(1, &rows, aoti_torch_dtype_float32(), x.device);
  Tensor y = empty_like(x, n, torch_type_of(static_cast<int32_t>(dtype)));
  if (q.get() == nullptr || absmax.get() == nullptr || y.get() == nullptr) return none();

  switchback_quantize_args quantize = {};
  quantize.struct_size = sizeof(quantize);
  quantize.x = {x.data, type, rows, k, stride};
  quantize.rotation = static_cast<int32_t>(rotation);
  quantize.activation = static_cast<int32_t>(activation);
  quantize.q = product.a = {q.data(), SWITCHBACK_S8, rows, k, k};
  quantize.absmax = static_cast<float*>(absmax.data());
  quantize.q_scale = SWITCHBACK_SCALE_PER_ROW;
  product.b = {codes.data, SWITCHBACK_S8, n, k, k};
  product.d = {y.data(), static_cast<int32_t>(dtype), rows, n, n};
  product.absmax_a = quantize.absmax;
  product.absmax_b = static_cast<const float*>(scales.data);
  product.absmax_b_count = scale_count;

  const auto hold = [](bool&) { return switchback_status(SWITCHBACK_OK); };  // there is no layer
  const Outcome outcome = call(Entry{args[0], args[2], args[3], x.device}, hold, [&] {
    const switchback_status status = library.quantize(pointer, &quantize);
    return status == SWITCHBACK_OK ? library.gemm(pointer, &product) : status;
  });
  return outcome == Outcome::done ? to_python(std::move(y)).release() : unfinished(outcome);
}

// Python function connect(plain_types, disturbances, forward_ad, to_capsule, from_capsule,
// deletes_handle, reuse, check, apply, apply_prepared, few_rows, many_codes, plans): stores the
// Python objects that this module uses.
PyObject* connect(PyObject*, PyObject* args) {
  PyObject** const places[] = {&torch_objects.plain_types,
                               &torch_objects.disturbances,
                               &torch_objects.forward_mode,
                               &torch_objects.to_capsule,
                               &torch_objects.from_capsule,
                               &torch_objects.deletes_handle,
                               &reuse,
                               &check,
                               &apply,
                               &apply_prepared};
  constexpr int count = sizeof(places) / sizeof(places[0]);
  PyObject* given[count];
  const char* plans;
  Py_ssize_t plan_count;
  Rules found;
  if (!PyArg_ParseTuple(args, "O!O!OOOOOOOOLLy#", &PyTuple_Type, &given[0], &PyTuple_Type,
                        &given[1], &given[2], &given[3], &given[4], &given[5], &given[6], &given[7],
                        &given[8], &given[9], &found.few_rows, &found.many_codes, &plans,
                        &plan_count))
    return nullptr;
  if (plan_count != sizeof(found.plans)) {
    PyErr_Format(PyExc_ValueError, "connect: got %zd plans; there must be %zu", plan_count,
                 sizeof(found.plans));
    return nullptr;
  }
  std::memcpy(found.plans, plans, sizeof(found.plans));
  rules = found;
  for (int i = 0; i < count; ++i)
    Py_XDECREF(std::exchange(*places[i], Py_NewRef(given[i])));
  return none();
}

// Python function use(addresses): sets the functions of the library, a tuple in the order of
// FUNCTIONS.
PyObject* use(PyObject*, PyObject* addresses) {
  if (!PyTuple_Check(addresses) || PyTuple_Size(addresses) != function_count) {
    PyErr_Format(PyExc_ValueError, "use: the argument must be a tuple of %d addresses",
                 function_count);
    return nullptr;
  }
  Functions found;
  Py_ssize_t i = 0;
#define DISPATCH_SET(name) \
  found.name =             \
      reinterpret_cast<decltype(found.name)>(PyLong_AsVoidPtr(PyTuple_GetItem(addresses, i++)));
  DISPATCH_LIBRARY_FUNCTIONS(DISPATCH_SET)
#undef DISPATCH_SET
  if (PyErr_Occurred()) return nullptr;
  library = found;
  return none();
}

// ---- The Python module

template <class F>
PyCFunction fast(F* function) {
  return reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(function));
}

PyMethodDef methods[] = {{"connect", connect, METH_VARARGS, nullptr},
                         {"use", use, METH_O, nullptr},
                         {"forward", fast(forward), METH_FASTCALL, nullptr},
                         {"forward_prepared", fast(forward_prepared), METH_FASTCALL, nullptr},
                         {"backward", fast(backward), METH_FASTCALL, nullptr},
                         {"backward_prepared", fast(backward_prepared), METH_FASTCALL, nullptr},
                         {"linear_of_codes", fast(linear_of_codes), METH_FASTCALL, nullptr},
                         {nullptr, nullptr, 0, nullptr}};

PyModuleDef definition = {PyModuleDef_HEAD_INIT,
                          "_torch_dispatch",
                          "Calls of layers to libswitchback, compiled.",
                          -1,
                          methods,
                          nullptr,
                          nullptr,
                          nullptr,
                          nullptr};

}  // namespace
}  // namespace dispatch

PyMODINIT_FUNC PyInit__torch_dispatch() {
  using namespace dispatch;
  if (const char* missing = find_torch_functions()) {
    PyErr_Format(PyExc_ImportError, "this torch has no %s", missing);
    return nullptr;
  }
  names = {PyUnicode_InternFromString("_version"), PyUnicode_InternFromString("requires_grad"),
           PyUnicode_InternFromString("is_neg"),   PyUnicode_InternFromString("_current_level"),
           PyUnicode_InternFromString("retired"),  PyUnicode_InternFromString("on"),
           PyUnicode_InternFromString("enter")};
  layer_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&layer_spec));
  layer_set_type = reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&layer_set_spec));
  Ref module(PyModule_Create(&definition));
  Ref functions(PyTuple_New(function_count));
  if (layer_type == nullptr || layer_set_type == nullptr || !module || !functions) return nullptr;
  for (Py_ssize_t i = 0; i < function_count; ++i)
    PyTuple_SetItem(functions.get(), i, PyUnicode_FromString(function_names[i]));
  if (PyModule_AddObjectRef(module.get(), "Layer", reinterpret_cast<PyObject*>(layer_type)) < 0 ||
      PyModule_AddObjectRef(module.get(), "LayerSet", reinterpret_cast<PyObject*>(layer_set_type)) <
          0 ||
      PyModule_AddObjectRef(module.get(), "FUNCTIONS", functions.get()) < 0 ||
      PyModule_AddIntConstant(module.get(), "VERSION", version) < 0)
    return nullptr;
  return module.release();
}
