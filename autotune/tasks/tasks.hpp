// SPDX-License-Identifier: Apache-2.0
// Tuner: the tasks, one file for each kind of problem.
#pragma once

#include <memory>

#include "autotune/task.hpp"
#include "gemm/blockwise/problem.hpp"
#include "gemm/floating/problem.hpp"
#include "gemm/int8/grouped.hpp"
#include "linear/mode.hpp"
#include "quant/problem.hpp"

namespace switchback::autotune {

std::unique_ptr<Task> make_quantize_task(Context& context, const quant::Problem& problem,
                                         Purpose purpose);
std::unique_ptr<Task> make_int8_task(Context& context, const gemm_int8::GemmProblem& problem,
                                     Purpose purpose);
std::unique_ptr<Task> make_blockwise_task(Context& context,
                                          const blockwise::BlockwiseProblem& problem,
                                          Purpose purpose);
std::unique_ptr<Task> make_floating_task(Context& context, const floating::Problem& problem,
                                         Purpose purpose);
std::unique_ptr<Task> make_layer_task(Context& context, const linear::PassProblem& problem,
                                      Purpose purpose);
std::unique_ptr<Task> make_grouped_int8_task(Context& context,
                                             const gemm_int8::GroupedProblem& problem,
                                             Purpose purpose);
std::unique_ptr<Task> make_grouped_layer_task(Context& context,
                                              const linear::GroupedPassProblem& problem,
                                              Purpose purpose);

}  // namespace switchback::autotune
