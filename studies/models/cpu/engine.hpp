// SPDX-License-Identifier: Apache-2.0
// Models, engine zone: the table of the CPU implementations of a model's operations.
#pragma once

#include "studies/models/engine.hpp"

namespace switchback::models::cpu {

decltype(models::embed) embed;
decltype(models::embed_backward) embed_backward;
decltype(models::rms_norm) rms_norm;
decltype(models::rms_norm_backward) rms_norm_backward;
decltype(models::layer_norm) layer_norm;
decltype(models::layer_norm_backward) layer_norm_backward;
decltype(models::rope) rope;
decltype(models::attention) attention;
decltype(models::attention_backward) attention_backward;
decltype(models::swiglu) swiglu;
decltype(models::swiglu_backward) swiglu_backward;
decltype(models::dropout) dropout;
decltype(models::zero) zero;
decltype(models::add) add;
decltype(models::queue_cross_entropy) queue_cross_entropy;
decltype(models::sgd) sgd;
decltype(models::adamw) adamw;

inline constexpr Engine engine = {
    .embed = embed,
    .embed_backward = embed_backward,
    .rms_norm = rms_norm,
    .rms_norm_backward = rms_norm_backward,
    .layer_norm = layer_norm,
    .layer_norm_backward = layer_norm_backward,
    .rope = rope,
    .attention = attention,
    .attention_backward = attention_backward,
    .swiglu = swiglu,
    .swiglu_backward = swiglu_backward,
    .dropout = dropout,
    .zero = zero,
    .add = add,
    .queue_cross_entropy = queue_cross_entropy,
    .sgd = sgd,
    .adamw = adamw,
};

}  // namespace switchback::models::cpu
