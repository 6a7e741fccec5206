// SPDX-License-Identifier: Apache-2.0
// Python objects and torch's tensors, only through stable interfaces: Python's limited API of 3.10
// and torch's C functions.
#pragma once

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030A0000
#include <Python.h>
#include <structmember.h>

#include <cstddef>
#include <cstdint>
#include <utility>

#include "switchback/switchback.h"
#include "torch_functions.hpp"

namespace dispatch {

// ---- Objects that Python passes once, when it loads this module

struct Torch {
  PyObject* plain_types = nullptr;  // types of tensors that represent no others
  // Functions that say whether a feature of torch intercepts calls.
  PyObject* disturbances = nullptr;
  PyObject* forward_mode = nullptr;  // torch.autograd.forward_ad
  // Replacements for torch_tensor_from_pyobject and torch_tensor_to_pyobject, which old versions of
  // torch lack. They make a capsule with a new handle of a Python tensor, and a Python tensor from
  // such a capsule.
  PyObject* to_capsule = nullptr;
  PyObject* from_capsule = nullptr;
  PyObject* deletes_handle = nullptr;  // True: from_capsule deletes the handle
};

struct Names {
  PyObject *version, *requires_grad, *is_neg, *current_level, *retired, *on, *enter;
};

inline Torch torch_objects;
inline Names names;

// ---- Python objects

class Ref {
 public:
  Ref() = default;
  explicit Ref(PyObject* owned) : object_(owned) {}
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  PyObject* release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// Calls a function without Python's global lock (GIL), so that other Python threads can run.
template <class F>
auto without_gil(F function) {
  PyThreadState* state = PyEval_SaveThread();
  const auto result = function();
  PyEval_RestoreThread(state);
  return result;
}

inline PyObject* none() {
  return Py_NewRef(Py_None);
}

// Whether an attribute is true. Also true if there is no such attribute; Python's error is cleared.
inline bool is_true(PyObject* object, PyObject* name) {
  Ref found(PyObject_GetAttr(object, name));
  const int truth = found ? PyObject_IsTrue(found.get()) : -1;
  if (truth < 0) PyErr_Clear();
  return truth != 0;
}

inline bool is_plain(PyObject* object) {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  for (Py_ssize_t i = 0; i < PyTuple_Size(torch_objects.plain_types); ++i)
    if (PyTuple_GetItem(torch_objects.plain_types, i) == type) return true;
  return false;
}

inline bool undisturbed() {
  for (Py_ssize_t i = 0; i < PyTuple_Size(torch_objects.disturbances); ++i) {
    Ref answer(PyObject_CallNoArgs(PyTuple_GetItem(torch_objects.disturbances, i)));
    const int truth = answer ? PyObject_IsTrue(answer.get()) : -1;
    if (truth < 0) PyErr_Clear();
    if (truth != 0) return false;
  }
  Ref level(PyObject_GetAttr(torch_objects.forward_mode, names.current_level));
  const long value = level ? PyLong_AsLong(level.get()) : 0;
  PyErr_Clear();
  return value < 0;
}

// ---- Tensors

class Tensor {
 public:
  Tensor() = default;
  explicit Tensor(AtenTensorHandle owned) : handle_(owned) {}
  Tensor(Tensor&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  Tensor& operator=(Tensor&& other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~Tensor() {
    if (handle_ != nullptr) aoti_torch_delete_tensor_object(handle_);
  }
  AtenTensorHandle get() const { return handle_; }
  AtenTensorHandle release() { return std::exchange(handle_, nullptr); }
  void* data() const {
    void* found = nullptr;
    if (handle_ == nullptr || aoti_torch_get_data_ptr(handle_, &found) != TORCH_SUCCESS)
      return nullptr;
    return found;
  }

 private:
  AtenTensorHandle handle_ = nullptr;
};

// The torch tensor inside a Python tensor; null after a failure.
inline Tensor from_python(PyObject* object) {
  AtenTensorHandle handle = nullptr;
  if (torch_tensor_from_pyobject != nullptr) {
    if (torch_tensor_from_pyobject(object, &handle) != TORCH_SUCCESS) return Tensor();
  } else {
    Ref capsule(PyObject_CallFunctionObjArgs(torch_objects.to_capsule, object, nullptr));
    if (capsule)
      handle = static_cast<AtenTensorHandle>(PyCapsule_GetPointer(capsule.get(), nullptr));
    PyErr_Clear();
  }
  return Tensor(handle);
}

// Makes a Python tensor from a torch tensor, or None from an empty one; null, with Python's error
// set, after a failure.
inline Ref to_python(Tensor tensor) {
  if (tensor.get() == nullptr) return Ref(none());
  if (torch_tensor_to_pyobject != nullptr) {
    void* made = nullptr;
    if (torch_tensor_to_pyobject(tensor.get(), nullptr, &made) != TORCH_SUCCESS &&
        !PyErr_Occurred())
      PyErr_SetString(PyExc_RuntimeError, "forward: torch could not create a tensor");
    return Ref(static_cast<PyObject*>(made));
  }
  Ref capsule(PyCapsule_New(tensor.get(), nullptr, nullptr));
  if (!capsule) return Ref();
  if (torch_objects.deletes_handle == Py_True) tensor.release();
  return Ref(PyObject_CallFunctionObjArgs(torch_objects.from_capsule, capsule.get(), nullptr));
}

constexpr int max_dims = 8;
constexpr int32_t host = -1;  // number of the CPU as a device; CUDA devices have their index

// An element type, as the library and as torch number it.
struct ElementType {
  int32_t of_library;
  int32_t (**of_torch)();
};
inline constexpr ElementType element_types[] = {{SWITCHBACK_F32, &aoti_torch_dtype_float32},
                                                {SWITCHBACK_F16, &aoti_torch_dtype_float16},
                                                {SWITCHBACK_BF16, &aoti_torch_dtype_bfloat16},
                                                {SWITCHBACK_S8, &aoti_torch_dtype_int8}};

// torch's number of an element type of the library; -1 if torch has no such type.
inline int32_t torch_type_of(int32_t of_library) {
  for (const ElementType& type : element_types)
    if (type.of_library == of_library) return (*type.of_torch)();
  return -1;
}
inline int32_t library_type_of(int32_t of_torch) {
  for (const ElementType& type : element_types)
    if ((*type.of_torch)() == of_torch) return type.of_library;
  return -1;
}

// The memory and shape of a strided tensor of a plain type, on the CPU or a CUDA device.
struct View {
  Tensor tensor;
  void* data = nullptr;
  int32_t device = host;
  int32_t dtype = 0;  // torch's
  int64_t dim = 0;
  int64_t* sizes = nullptr;
  int64_t* strides = nullptr;

  int64_t last() const { return sizes[dim - 1]; }
};

inline bool device_of(AtenTensorHandle handle, int32_t& device) {
  int32_t type = 0;
  device = host;
  if (aoti_torch_get_device_type(handle, &type) != TORCH_SUCCESS) return false;
  return type == aoti_torch_device_type_cpu() ||
         (type == aoti_torch_device_type_cuda() &&
          aoti_torch_get_device_index(handle, &device) == TORCH_SUCCESS);
}

inline bool look_at(PyObject* object, View& view) {
  if (!is_plain(object)) return false;
  view.tensor = from_python(object);
  const AtenTensorHandle handle = view.tensor.get();
  int32_t layout = 0;
  return handle != nullptr && aoti_torch_get_layout(handle, &layout) == TORCH_SUCCESS &&
         layout == aoti_torch_layout_strided() && device_of(handle, view.device) &&
         aoti_torch_get_dtype(handle, &view.dtype) == TORCH_SUCCESS &&
         aoti_torch_get_dim(handle, &view.dim) == TORCH_SUCCESS && view.dim >= 1 &&
         view.dim <= max_dims && aoti_torch_get_sizes(handle, &view.sizes) == TORCH_SUCCESS &&
         aoti_torch_get_strides(handle, &view.strides) == TORCH_SUCCESS &&
         aoti_torch_get_data_ptr(handle, &view.data) == TORCH_SUCCESS;
}

// Treats tensor[..., cols] as a matrix whose rows are evenly spaced: sets the number and distance
// of the rows. Returns false if that is impossible or there are no rows.
inline bool rows_of(const View& view, int64_t cols, int64_t& rows, int64_t& stride) {
  if (view.last() != cols || (cols > 1 && view.strides[view.dim - 1] != 1)) return false;
  rows = 1;
  stride = cols;
  for (int64_t d = view.dim - 2; d >= 0; --d) {
    if (view.sizes[d] == 1) continue;
    if (rows == 1)
      stride = view.strides[d];
    else if (view.strides[d] != rows * stride)
      return false;
    rows *= view.sizes[d];
  }
  return rows > 0 && stride >= cols;
}

inline bool is_dense(const View& view) {
  int64_t step = 1;
  for (int64_t d = view.dim - 1; d >= 0; step *= view.sizes[d--])
    if (view.sizes[d] != 1 && view.strides[d] != step) return false;
  return true;
}

// Whether a tensor is a dense matrix of this size.
inline bool is_dense(const View& view, int64_t rows, int64_t cols) {
  return view.dim == 2 && view.sizes[0] == rows && view.sizes[1] == cols && is_dense(view);
}

// Creates an uninitialised tensor; null after a failure.
inline Tensor empty(int64_t dim, const int64_t* sizes, int32_t dtype, int32_t device) {
  int64_t strides[max_dims];
  int64_t step = 1;
  for (int64_t d = dim - 1; d >= 0; --d) {
    strides[d] = step;
    step *= sizes[d];
  }
  AtenTensorHandle made = nullptr;
  const bool on_host = device == host;
  const int32_t type = on_host ? aoti_torch_device_type_cpu() : aoti_torch_device_type_cuda();
  if (aoti_torch_empty_strided(dim, sizes, strides, dtype, type, on_host ? 0 : device, &made) !=
      TORCH_SUCCESS)
    return Tensor();
  return Tensor(made);
}

// Creates an uninitialised tensor like `view`, but with `cols` as its last dimension and this torch
// dtype.
inline Tensor empty_like(const View& view, int64_t cols, int32_t dtype) {
  int64_t sizes[max_dims];
  for (int64_t d = 0; d < view.dim - 1; ++d)
    sizes[d] = view.sizes[d];
  sizes[view.dim - 1] = cols;
  return empty(view.dim, sizes, dtype, view.device);
}
inline Tensor empty_like(const View& view, int64_t cols) {
  return empty_like(view, cols, view.dtype);
}

// Sets the number of changes that torch has counted for a tensor. Returns false if torch does not
// count its changes.
inline bool version_of(PyObject* tensor, long long& version) {
  if (tensor == Py_None) {
    version = 0;
    return true;
  }
  Ref found(PyObject_GetAttr(tensor, names.version));
  version = found ? PyLong_AsLongLong(found.get()) : -1;
  if (version < 0) PyErr_Clear();
  return version >= 0;
}

// The memory of a weight, a bias or scales, with the shape and strides by which it is read.
struct Place {
  Tensor tensor;  // keeps the memory allocated
  void* data = nullptr;
  int32_t dtype = 0;
  int64_t dim = 0;
  int64_t sizes[2] = {};
  int64_t strides[2] = {};

  bool set(PyObject* object) {
    View view;
    if (!look_at(object, view) || view.dim > 2) return false;
    data = view.data;
    dtype = view.dtype;
    dim = view.dim;
    for (int64_t d = 0; d < dim; ++d)
      sizes[d] = view.sizes[d], strides[d] = view.strides[d];
    tensor = std::move(view.tensor);
    return true;
  }

  bool is(const View& view) const {
    if (view.data != data || view.dtype != dtype || view.dim != dim) return false;
    for (int64_t d = 0; d < dim; ++d)
      if (view.sizes[d] != sizes[d] || view.strides[d] != strides[d]) return false;
    return true;
  }
};

inline bool requires_grad(PyObject* tensor) {
  return tensor != Py_None && is_true(tensor, names.requires_grad);
}

// Whether a tensor is a negated view: its memory has the numbers with the other sign.
inline bool is_negated(PyObject* tensor) {
  Ref answer(PyObject_CallMethodObjArgs(tensor, names.is_neg, nullptr));
  if (!answer) PyErr_Clear();
  return answer.get() != Py_False;
}

}  // namespace dispatch
