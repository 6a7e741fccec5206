// SPDX-License-Identifier: Apache-2.0
// Models, dispatch zone: a table of functions that run the operations of kernels.hpp on one kind of
// device.
#pragma once

#include "core/device_table.hpp"
#include "studies/models/kernels.hpp"

namespace switchback::models {

/// Implementations of operations for one kind of device. Each has the arguments of the function of
/// the same name in kernels.hpp.
struct Engine {
  decltype(models::embed)* embed;
  decltype(models::embed_backward)* embed_backward;
  decltype(models::rms_norm)* rms_norm;
  decltype(models::rms_norm_backward)* rms_norm_backward;
  decltype(models::layer_norm)* layer_norm;
  decltype(models::layer_norm_backward)* layer_norm_backward;
  decltype(models::rope)* rope;
  decltype(models::attention)* attention;
  decltype(models::attention_backward)* attention_backward;
  decltype(models::swiglu)* swiglu;
  decltype(models::swiglu_backward)* swiglu_backward;
  decltype(models::dropout)* dropout;  ///< called only if p > 0
  decltype(models::zero)* zero;
  decltype(models::add)* add;
  decltype(models::queue_cross_entropy)* queue_cross_entropy;
  decltype(models::sgd)* sgd;
  decltype(models::adamw)* adamw;
};

/// The implementations for each kind of device; null for kinds that this build does not support.
core::DeviceTable<const Engine*>& engines() noexcept;

namespace cuda {
/// The table of CUDA implementations; null in a build without CUDA.
const Engine* engine() noexcept;
}  // namespace cuda

}  // namespace switchback::models
