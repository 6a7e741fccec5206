// SPDX-License-Identifier: Apache-2.0
// The state of a layer that Python and compiled code share, and when the codes of a weight are used
// again, by the rules of nn/_rules.py. The classes LayerSet and Layer of nn/_layer.py derive from
// the types here. Python passes the addresses of libswitchback's functions.
#pragma once

#include <algorithm>
#include <new>

#include "tensors.hpp"

namespace dispatch {

#define DISPATCH_LIBRARY_FUNCTIONS(F) \
  F(linear_forward)                   \
  F(linear_backward)                  \
  F(linear_weight_updated)            \
  F(fingerprint)                      \
  F(quantize)                         \
  F(gemm)

// Functions of libswitchback that this module calls. Python passes their addresses.
struct Functions {
#define DISPATCH_MEMBER(name) decltype(&switchback_##name) name = nullptr;
  DISPATCH_LIBRARY_FUNCTIONS(DISPATCH_MEMBER)
#undef DISPATCH_MEMBER
};
#define DISPATCH_NAME(name) "switchback_" #name,
inline constexpr const char* function_names[] = {DISPATCH_LIBRARY_FUNCTIONS(DISPATCH_NAME)};
#undef DISPATCH_NAME
inline constexpr int function_count = sizeof(function_names) / sizeof(function_names[0]);

inline Functions library;
inline PyObject* reuse = nullptr;  // `reuse` of nn/_rules.py
inline PyObject* check = nullptr;  // raises the exception for a status of the library

// The constants of nn/_rules.py: FEW_ROWS, MANY_CODES and PLANS.
struct Rules {
  long long few_rows = 0, many_codes = 0;
  unsigned char plans[128] = {};
};
inline Rules rules;
enum Plan { keep = 1, prove = 2, to_remember = 4, has_met = 8, will_meet_again = 16 };

// ---- The state of a layer

struct Held {
  Place weight, bias, absmax;  // `weight` is the weight or its codes
  bool has_bias = false;
  long long codes_version = 0, absmax_version = 0;
};

struct Layer {
  PyObject base;
  // Set once.
  switchback_linear* linear;
  switchback_context* context;
  int32_t dtype;        // the library's number of the element type
  int32_t torch_dtype;  // torch's
  int32_t device;       // as of View
  int64_t in_features, out_features;
  int64_t block_rows;       // rows in a block of x whose codes are kept for dw; 0: none are kept
  long long torch_threads;  // torch's number of threads if the context follows it; else -1
  PyObject *context_object, *acquire, *release;
  // Members of the Python class Layer, which Python sets.
  char on_cpu, is_standard, met, meets_again, read_by_backward;
  long long updates, weight_gradients, weight_version, bias_version;
  PyObject* fingerprint;  // two numbers, or null
  // The weight or the codes that the library holds. Both are null if this module does not know it.
  Held* weight;
  Held* codes;
};

struct LayerSet {
  PyObject base;
  long long updates, weight_gradients;
  PyObject* latest;
};

inline PyTypeObject* layer_type = nullptr;
inline PyTypeObject* layer_set_type = nullptr;

inline Layer* as_layer(PyObject* object) {
  return reinterpret_cast<Layer*>(object);
}
inline LayerSet* as_layers(PyObject* object) {
  return reinterpret_cast<LayerSet*>(object);
}

inline void free_object(PyObject* self) {
  PyTypeObject* type = Py_TYPE(self);
  const auto release = reinterpret_cast<freefunc>(PyType_GetSlot(type, Py_tp_free));
  release(self);
  Py_DECREF(type);
}

inline void forget(Layer& layer) {
  delete std::exchange(layer.weight, nullptr);
  delete std::exchange(layer.codes, nullptr);
}

inline int traverse_layer(PyObject* self, visitproc visit, void* arg) {
  Layer& layer = *as_layer(self);
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(layer.context_object);
  Py_VISIT(layer.acquire);
  Py_VISIT(layer.release);
  Py_VISIT(layer.fingerprint);
  return 0;
}

inline int clear_layer(PyObject* self) {
  Layer& layer = *as_layer(self);
  Py_CLEAR(layer.context_object);
  Py_CLEAR(layer.acquire);
  Py_CLEAR(layer.release);
  Py_CLEAR(layer.fingerprint);
  return 0;
}

inline void dealloc_layer(PyObject* self) {
  PyObject_GC_UnTrack(self);
  clear_layer(self);
  forget(*as_layer(self));
  free_object(self);
}

inline int traverse_layers(PyObject* self, visitproc visit, void* arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(as_layers(self)->latest);
  return 0;
}

inline int clear_layers(PyObject* self) {
  Py_CLEAR(as_layers(self)->latest);
  return 0;
}

inline void dealloc_layers(PyObject* self) {
  PyObject_GC_UnTrack(self);
  clear_layers(self);
  free_object(self);
}

// Python method _describe(linear, context, device, dtype, in, out, block_rows, torch_threads,
// context_object, acquire, release): sets the properties of a new layer.
inline PyObject* describe(PyObject* self, PyObject* args) {
  Layer& layer = *as_layer(self);
  PyObject *linear, *context, *object, *acquire, *release;
  int device, dtype;
  long long in, out, block_rows, threads;
  if (!PyArg_ParseTuple(args, "OOiiLLLLOOO", &linear, &context, &device, &dtype, &in, &out,
                        &block_rows, &threads, &object, &acquire, &release))
    return nullptr;
  layer.linear = static_cast<switchback_linear*>(PyLong_AsVoidPtr(linear));
  layer.context = static_cast<switchback_context*>(PyLong_AsVoidPtr(context));
  if (PyErr_Occurred()) return nullptr;
  layer.device = device;
  layer.dtype = dtype;
  layer.torch_dtype = torch_type_of(dtype);
  layer.in_features = in;
  layer.out_features = out;
  layer.block_rows = block_rows;
  layer.torch_threads = threads;
  clear_layer(self);
  layer.context_object = Py_NewRef(object);
  layer.acquire = Py_NewRef(acquire);
  layer.release = Py_NewRef(release);
  return none();
}

// Python method _hold_nothing(): the library's layer has no current weight or codes.
inline PyObject* hold_nothing(PyObject* self, PyObject*) {
  forget(*as_layer(self));
  return none();
}

// Python method _hold_weight(weight, bias): the library reads these tensors in place from now on.
inline PyObject* hold_weight(PyObject* self, PyObject* args) {
  Layer& layer = *as_layer(self);
  PyObject *weight, *bias;
  if (!PyArg_ParseTuple(args, "OO", &weight, &bias)) return nullptr;
  forget(layer);
  Held* held = new (std::nothrow) Held;
  if (held == nullptr) return PyErr_NoMemory();
  held->has_bias = bias != Py_None;
  if (held->weight.set(weight) && held->weight.dtype == layer.torch_dtype &&
      (!held->has_bias || (held->bias.set(bias) && held->bias.dtype == layer.torch_dtype)))
    layer.weight = held;
  else
    delete held;
  return none();
}

// Python method _hold_codes(codes, absmax, bias, and the version of each): the library has copied
// these tensors.
inline PyObject* hold_codes(PyObject* self, PyObject* args) {
  Layer& layer = *as_layer(self);
  PyObject *codes, *absmax, *bias;
  long long of_codes, of_absmax, of_bias;
  if (!PyArg_ParseTuple(args, "OOOLLL", &codes, &absmax, &bias, &of_codes, &of_absmax, &of_bias))
    return nullptr;
  forget(layer);
  Held* held = new (std::nothrow) Held;
  if (held == nullptr) return PyErr_NoMemory();
  held->has_bias = bias != Py_None;
  held->codes_version = of_codes;
  held->absmax_version = of_absmax;
  if (held->weight.set(codes) && held->absmax.set(absmax) &&
      (!held->has_bias || held->bias.set(bias)))
    layer.codes = held;
  else
    delete held;
  return none();
}

inline PyMemberDef layer_members[] = {
    {"_on_cpu", T_BOOL, offsetof(Layer, on_cpu), 0, nullptr},
    {"_is_standard", T_BOOL, offsetof(Layer, is_standard), 0, nullptr},
    {"_met", T_BOOL, offsetof(Layer, met), 0, nullptr},
    {"_meets_again", T_BOOL, offsetof(Layer, meets_again), 0, nullptr},
    {"_read_by_backward", T_BOOL, offsetof(Layer, read_by_backward), 0, nullptr},
    {"_updates", T_LONGLONG, offsetof(Layer, updates), 0, nullptr},
    {"_weight_gradients", T_LONGLONG, offsetof(Layer, weight_gradients), 0, nullptr},
    {"_weight_version", T_LONGLONG, offsetof(Layer, weight_version), 0, nullptr},
    {"_bias_version", T_LONGLONG, offsetof(Layer, bias_version), 0, nullptr},
    {"_fingerprint", T_OBJECT, offsetof(Layer, fingerprint), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

inline PyMemberDef layer_set_members[] = {
    {"updates", T_LONGLONG, offsetof(LayerSet, updates), 0, nullptr},
    {"weight_gradients", T_LONGLONG, offsetof(LayerSet, weight_gradients), 0, nullptr},
    {"latest", T_OBJECT, offsetof(LayerSet, latest), 0, nullptr},
    {nullptr, 0, 0, 0, nullptr}};

inline PyMethodDef layer_methods[] = {{"_describe", describe, METH_VARARGS, nullptr},
                                      {"_hold_nothing", hold_nothing, METH_NOARGS, nullptr},
                                      {"_hold_weight", hold_weight, METH_VARARGS, nullptr},
                                      {"_hold_codes", hold_codes, METH_VARARGS, nullptr},
                                      {nullptr, nullptr, 0, nullptr}};

template <class F>
inline void* slot(F* function) {
  return reinterpret_cast<void*>(function);
}

inline PyType_Slot layer_slots[] = {
    {Py_tp_members, layer_members},         {Py_tp_methods, layer_methods},
    {Py_tp_traverse, slot(traverse_layer)}, {Py_tp_clear, slot(clear_layer)},
    {Py_tp_dealloc, slot(dealloc_layer)},   {0, nullptr}};
inline PyType_Slot layer_set_slots[] = {{Py_tp_members, layer_set_members},
                                        {Py_tp_traverse, slot(traverse_layers)},
                                        {Py_tp_clear, slot(clear_layers)},
                                        {Py_tp_dealloc, slot(dealloc_layers)},
                                        {0, nullptr}};
inline constexpr unsigned type_flags =
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC;
inline PyType_Spec layer_spec = {"switchback._torch_dispatch.Layer", sizeof(Layer), 0, type_flags,
                                 layer_slots};
inline PyType_Spec layer_set_spec = {"switchback._torch_dispatch.LayerSet", sizeof(LayerSet), 0,
                                     type_flags, layer_set_slots};

// ---- Whether compiled code can handle a call

// Whether a tensor is on the layer's device and has this torch dtype.
inline bool suits(const View& view, const Layer& layer, int32_t dtype) {
  return view.device == layer.device && view.dtype == dtype;
}
inline bool suits(const View& view, const Layer& layer) {
  return suits(view, layer, layer.torch_dtype);
}

// The layer of a module that was used last, if it holds a weight and its context is current; else
// null.
inline Layer* current_layer(PyObject* layers) {
  PyObject* latest = as_layers(layers)->latest;
  if (latest == nullptr || !PyObject_TypeCheck(latest, layer_type)) return nullptr;
  Layer* layer = as_layer(latest);
  if (layer->weight == nullptr && layer->codes == nullptr) return nullptr;
  if (layer->torch_threads >= 0) {
    uint32_t threads = 0;
    if (torch_get_num_threads(&threads) != TORCH_SUCCESS || threads != layer->torch_threads)
      return nullptr;
  }
  return is_true(layer->context_object, names.retired) ? nullptr : layer;
}

// Takes a context's lock if it is free. If not, Python code handles the call, and waits for the
// lock.
class Lock {
 public:
  Lock(PyObject* acquire, PyObject* release) : release_(Py_NewRef(release)) {
    Ref taken(PyObject_CallFunctionObjArgs(acquire, Py_False, nullptr));
    is_taken_ = taken.get() == Py_True;
    PyErr_Clear();
  }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;
  ~Lock() { unlock(); }
  bool is_taken() const { return is_taken_; }
  void unlock() {
    if (!std::exchange(is_taken_, false)) return;
    PyObject *type, *value, *trace;
    PyErr_Fetch(&type, &value, &trace);
    Ref done(PyObject_CallNoArgs(release_.get()));
    PyErr_Restore(type, value, trace);
  }

 private:
  Ref release_;
  bool is_taken_ = false;
};

// Calls Context.enter of _context.py; returns false if Python's error is set.
inline bool enter(PyObject* context, int32_t device) {
  if (device == host) return true;  // a CPU has no streams
  return static_cast<bool>(Ref(PyObject_CallMethodObjArgs(context, names.enter, nullptr)));
}

// Sets Python's error to the exception for a status that is not 0.
inline void fail(switchback_status status, Lock& lock) {
  lock.unlock();
  Ref done(PyObject_CallFunction(check, "i", static_cast<int>(status)));
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_RuntimeError, "switchback: a call failed");
}

inline bool is_reusing() {
  return is_true(reuse, names.on);
}

struct Numbers {
  uint64_t value[2];
};

// Whether the layer remembers a fingerprint: of the weight (0), or of codes (0), scales (1), bias
// (2).
inline bool has_remembered(const Layer& layer, Py_ssize_t of = 0) {
  return layer.fingerprint != nullptr && layer.fingerprint != Py_None &&
         PyTuple_Size(layer.fingerprint) >= 2 * of + 2;
}

// Whether the fingerprint that the layer remembers equals `found`.
inline bool is_remembered(const Layer& layer, const Numbers& found, Py_ssize_t of = 0) {
  if (!has_remembered(layer, of)) return false;
  bool same = true;
  for (Py_ssize_t i = 0; i < 2; ++i)
    same = same && PyLong_AsUnsignedLongLong(PyTuple_GetItem(layer.fingerprint, 2 * of + i)) ==
                       found.value[i];
  return same && !PyErr_Occurred();
}

inline void remember(Layer& layer, const Numbers* numbers) {
  PyObject* made =
      numbers == nullptr ? nullptr : Py_BuildValue("(KK)", numbers->value[0], numbers->value[1]);
  PyErr_Clear();
  Py_XDECREF(std::exchange(layer.fingerprint, made));
}

inline switchback_matrix weight_matrix(const Layer& layer) {
  const Place& weight = layer.weight->weight;  // [N,K] or [K,N]
  const int64_t rows = weight.sizes[0], cols = weight.sizes[1];
  return {weight.data, layer.dtype, rows, cols, std::max(weight.strides[0], cols)};
}

inline switchback_status fingerprint_of(const Layer& layer, const switchback_matrix& matrix,
                                        Numbers& numbers) {
  return without_gil([&] { return library.fingerprint(layer.context, &matrix, numbers.value); });
}

inline switchback_status fingerprint_of(const Layer& layer, Numbers& numbers) {
  return fingerprint_of(layer, weight_matrix(layer), numbers);
}

inline bool may_prove(const Layer& layer) {
  return layer.on_cpu != 0 && layer.is_standard == 0;
}

// Whether the library's layer has this weight and reads it in place.
inline bool holds_weight(const Layer& layer, PyObject* weight) {
  View view;
  return layer.weight != nullptr && look_at(weight, view) && layer.weight->weight.is(view) &&
         layer.weight->weight.tensor.data() == view.data;
}

inline bool holds_bias(const Held& held, PyObject* bias) {
  if (bias == Py_None || !held.has_bias) return bias == Py_None && !held.has_bias;
  View view;
  return look_at(bias, view) && held.bias.is(view) && held.bias.tensor.data() == view.data;
}

// Whether the library's layer has a copy of these codes, and torch has counted no change since.
inline bool holds_codes(const Layer& layer, PyObject* codes, PyObject* absmax) {
  const Held* held = layer.codes;
  View of_codes, of_absmax;
  long long version = 0, absmax_version = 0;
  return held != nullptr && version_of(codes, version) && version == held->codes_version &&
         version_of(absmax, absmax_version) && absmax_version == held->absmax_version &&
         look_at(codes, of_codes) && held->weight.is(of_codes) && look_at(absmax, of_absmax) &&
         held->absmax.is(of_absmax);
}

// Whether Python handles the call, because a product of few rows reads the codes directly; like the
// function of the same name in nn/_function.py.
inline bool reads_codes_themselves(const Layer& layer, int64_t rows) {
  return layer.on_cpu != 0 && rows <= rules.few_rows &&
         layer.in_features * layer.out_features >= rules.many_codes && !is_reusing();
}

// A dense tensor as a matrix of the library; its dtype is -1 if the library does not have that
// type.
inline switchback_matrix matrix_of(const Place& place) {
  const int32_t dtype = library_type_of(place.dtype);
  const int64_t rows = place.dim == 2 ? place.sizes[0] : 1, cols = place.sizes[place.dim - 1];
  return {place.data, dtype, rows, cols, cols};
}

// Whether codes that the library has copied are unchanged, by their fingerprints. Like
// Layer._have_changed of nn/_layer.py, which returns the opposite of `unchanged`.
inline switchback_status prove_codes(const Layer& layer, bool and_bias, bool& unchanged) {
  unchanged = layer.on_cpu == 0 || is_reusing();
  if (unchanged) return SWITCHBACK_OK;
  const Held& held = *layer.codes;
  const Place* const places[3] = {&held.weight, &held.absmax, &held.bias};
  const int count = and_bias && held.has_bias ? 3 : 2;
  for (int i = 0; i < count; ++i) {
    Numbers found;
    if (!has_remembered(layer, i)) return SWITCHBACK_OK;
    if (const auto status = fingerprint_of(layer, matrix_of(*places[i]), found);
        status != SWITCHBACK_OK)
      return status;
    if (!is_remembered(layer, found, i)) return SWITCHBACK_OK;
  }
  unchanged = true;
  return SWITCHBACK_OK;
}

// Like Layer.use_weight of nn/_layer.py, for a weight that the library's layer already has.
inline switchback_status use_weight(Layer& layer, const LayerSet& layers, long long version,
                                    long long bias_version, bool once) {
  const bool same = version == layer.weight_version && bias_version == layer.bias_version &&
                    layers.updates == layer.updates;
  const bool state[] = {same,
                        same && is_reusing(),
                        layers.weight_gradients == layer.weight_gradients,
                        may_prove(layer),
                        layer.met != 0,
                        layer.meets_again != 0,
                        once};
  int place = 0;
  for (const bool bit : state)
    place = 2 * place + bit;
  const int plan = rules.plans[place];
  if (plan & Plan::keep) return SWITCHBACK_OK;
  layer.met = (plan & Plan::has_met) != 0;
  layer.meets_again = (plan & Plan::will_meet_again) != 0;
  Numbers found;
  bool has_found = (plan & Plan::prove) != 0;
  if (has_found) {
    if (const auto status = fingerprint_of(layer, found); status != SWITCHBACK_OK) return status;
    if (is_remembered(layer, found)) return SWITCHBACK_OK;
  }
  remember(layer, nullptr);
  if (const auto status = library.linear_weight_updated(layer.linear); status != SWITCHBACK_OK)
    return status;
  layer.weight_version = version;
  layer.bias_version = bias_version;
  layer.updates = layers.updates;
  layer.weight_gradients = layers.weight_gradients;
  if (!has_found && (plan & Plan::to_remember) && may_prove(layer)) {
    if (const auto status = fingerprint_of(layer, found); status != SWITCHBACK_OK) return status;
    has_found = true;
  }
  if (has_found) remember(layer, &found);
  layer.read_by_backward = 0;
  return SWITCHBACK_OK;
}

// Like Layer.use_weight_of_forward of nn/_layer.py. `current`: whether the codes may be used.
inline switchback_status use_weight_of_forward(Layer& layer, long long version, PyObject* weight,
                                               bool& current) {
  current = version == layer.weight_version && holds_weight(layer, weight);
  if (!current) return SWITCHBACK_OK;
  if (layer.read_by_backward == 0 && has_remembered(layer)) {
    Numbers found;
    if (const auto status = fingerprint_of(layer, found); status != SWITCHBACK_OK) return status;
    current = is_remembered(layer, found);
  }
  if (current) layer.read_by_backward = 1;
  return SWITCHBACK_OK;
}

// ---- Calling the library

// The rows of an input tensor (x or g) as a matrix of the library.
struct Rows {
  View view;
  int64_t count = 0;
  switchback_matrix matrix = {};

  // Returns false if the tensor cannot be read in place; then Python handles the call.
  bool read(const Layer& layer, PyObject* tensor, int64_t cols) {
    int64_t stride = 0;
    if (!look_at(tensor, view) || !suits(view, layer) || !rows_of(view, cols, count, stride) ||
        is_negated(tensor))
      return false;
    matrix = {view.data, layer.dtype, count, cols, stride};
    return true;
  }
};

// A result tensor as a matrix of the library.
inline switchback_matrix matrix_of(const Tensor& tensor, const Layer& layer, int64_t rows,
                                   int64_t cols) {
  return {tensor.data(), layer.dtype, rows, cols, cols};
}

enum class Outcome { done, left_to_python, raised };

// A context of _context.py, and the methods of its lock.
struct Entry {
  PyObject *context, *acquire, *release;
  int32_t device;  // as of View
};

// Locks and enters the context, calls hold(current), which may set `current` to false to leave the
// call to Python, and calls run().
template <class Hold, class Run>
Outcome call(const Entry& entry, Hold hold, Run run) {
  Lock lock(entry.acquire, entry.release);
  if (!lock.is_taken()) return Outcome::left_to_python;
  if (!enter(entry.context, entry.device)) return Outcome::raised;
  bool current = true;
  switchback_status status = hold(current);
  if (status == SWITCHBACK_OK) {
    if (!current) return Outcome::left_to_python;
    status = without_gil(run);
  }
  if (status == SWITCHBACK_OK) return Outcome::done;
  fail(status, lock);
  return Outcome::raised;
}

// Runs a forward or backward, like the block of LayerSet.use in nn/_layer.py. hold(current) sets
// `current` to false if the layer does not have the weight of this call.
template <class Hold, class Run>
Outcome call(Layer& layer, Hold hold, Run run) {
  return call(Entry{layer.context_object, layer.acquire, layer.release, layer.device}, hold, run);
}

// What a function of this module returns if the outcome of call() is not `done`.
inline PyObject* unfinished(Outcome outcome) {
  return outcome == Outcome::raised ? nullptr : none();
}

}  // namespace dispatch
