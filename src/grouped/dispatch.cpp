// SPDX-License-Identifier: Apache-2.0
#include "grouped/dispatch.hpp"

#include "core/check.hpp"
#include "core/cuda/platform.hpp"
#include "gemm/int8/dispatch.hpp"
#include "gemm/int8/product.hpp"
#include "grouped/device_engine.hpp"
#include "grouped/groups.hpp"

namespace switchback::grouped {

core::DeviceTable<const DeviceEngine*>& device_engines() noexcept {
  static auto table =
      core::cuda::table_of<core::DeviceTable<const DeviceEngine*>>(nullptr, cuda::engine());
  return table;
}

const DeviceEngine& device_engine(const ContextState& state) {
  const DeviceEngine* engine = device_engines().of(state.device.kind);
  if (engine == nullptr)
    core::fail(Status::unsupported,
               "grouped operations: this build does not support them on device {}", state.device);
  return *engine;
}

namespace {

using gemm_int8::GemmProblem;
using gemm_int8::GroupLayout;

// Describes the groups of a grouped product in its problem.
void add_groups(const GroupedGemmArgs& args, GemmProblem& problem) {
  problem.layout = args.d_column_stride > 0   ? GroupLayout::columns
                   : args.groups.ends.empty() ? GroupLayout::strided
                                              : GroupLayout::packed;
  problem.groups = args.groups.count;
  problem.group_rows = args.groups.rows;
  problem.d_column_stride = args.d_column_stride;
  if (args.packed_b != nullptr) problem.packed_step_bytes = args.packed_b->state().step_bytes;
}

}  // namespace

void multiply(ContextState& state, const GroupedGemmArgs& args) {
  gemm_int8::Product product = gemm_int8::product_of(args, args.groups.count);
  if (args.d.dtype != DType::s32) gemm_int8::add_scales(args, product, args.groups.count);
  add_groups(args, product.problem);
  product.operands.groups = args.groups;
  core::Workspace::Frame frame(state.workspace);
  product.operands.rows = rows_of(state, frame, args.groups);
  gemm_int8::multiply(state, "grouped_gemm", product, args.engine);
}

}  // namespace switchback::grouped
