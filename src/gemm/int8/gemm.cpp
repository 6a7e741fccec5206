// SPDX-License-Identifier: Apache-2.0
// Entry and dispatch of the int8 products: validates, picks an engine and a configuration, runs.
#include "switchback/gemm.hpp"

#include <string>

#include "core/check.hpp"
#include "gemm/int8/candidates.hpp"
#include "gemm/int8/codes.hpp"
#include "gemm/int8/packed_weight.hpp"

namespace switchback {

using gemm_int8::Engine;
using gemm_int8::EngineId;
using gemm_int8::GemmConfig;
using gemm_int8::GemmOperands;
using gemm_int8::GemmProblem;
using gemm_int8::ScaleMode;

PackedWeight::PackedWeight() : state_(std::make_unique<PackedWeightState>()) {}
PackedWeight::~PackedWeight() = default;
PackedWeight::PackedWeight(PackedWeight&&) noexcept = default;
PackedWeight& PackedWeight::operator=(PackedWeight&&) noexcept = default;

bool PackedWeight::empty() const noexcept {
  return state_ == nullptr || state_->engine == nullptr;
}
std::int64_t PackedWeight::rows() const noexcept {
  return state_ == nullptr ? 0 : state_->rows;
}
std::int64_t PackedWeight::cols() const noexcept {
  return state_ == nullptr ? 0 : state_->cols;
}
std::size_t PackedWeight::bytes() const noexcept {
  return state_ == nullptr ? 0 : state_->buffer.capacity_bytes();
}
std::string_view PackedWeight::engine() const noexcept {
  return empty() ? std::string_view() : state_->engine->name;
}

namespace {

// The engine of that name, able to run here; Error otherwise.
const Engine& named_engine(std::string_view op, std::string_view name, const ContextState& state) {
  const Engine* engine = gemm_int8::find_engine(state.device.kind, name);
  if (engine == nullptr)
    core::fail(Status::invalid_argument, "{}: engine '{}' is not one of {}", op, name,
               gemm_int8::engine_table().names(state.device.kind));
  const std::string_view reason = engine->unavailable(state);
  if (!reason.empty())
    core::fail(Status::unsupported, "{}: engine '{}' is not available: {}", op, name, reason);
  return *engine;
}

void check_k(std::string_view op, std::int64_t k) {
  core::require(k <= max_exact_k,
                "{}: K = {}; it must be at most {}, or the int32 sums of codes could overflow", op,
                k, max_exact_k);
}

// Where K is such that a code of -128 could make a sum overflow, there is none.
void check_codes(ContextState& state, std::string_view op, std::string_view argument,
                 MatrixView<const std::int8_t> m) {
  if (m.data == nullptr || m.cols <= max_exact_k_of_any_codes) return;
  gemm_int8::check_codes(state, op, argument, m,
                         " where K is above 131071, or the int32 sums could overflow");
}

// What gemm_s8s8s32 and gemm share: a, b or packed_b, d and the engine's name.
struct Inputs {
  std::string_view op;
  const ContextState& state;
  MatrixView<const std::int8_t> a;
  MatrixView<const std::int8_t> b;
  const PackedWeight* packed_b;
  AnyMatrix d;
  std::string_view engine;
};

// Validates the shared arguments and fills in what they say of the problem.
void check_inputs(const Inputs& in, GemmProblem& problem, GemmOperands& operands) {
  core::check_matrix(in.op, "a", in.a);
  check_k(in.op, in.a.cols);
  problem.m = in.a.rows;
  problem.k = in.a.cols;
  problem.stride_a = in.a.stride;
  operands.a = in.a.data;

  if (in.packed_b != nullptr) {
    core::require(in.b.data == nullptr, "{}: both b and packed_b are given; give one of them",
                  in.op);
    if (in.packed_b->empty())
      core::fail(Status::invalid_state, "{}: packed_b is empty; pack_weight fills it", in.op);
    const PackedWeightState& packed = in.packed_b->state();
    core::require(packed.cols == problem.k, "{}: packed_b is [{},{}]; it must be [N,K] = [{},{}]",
                  in.op, packed.rows, packed.cols, packed.rows, problem.k);
    const Engine* named = gemm_int8::find_engine(in.state.device.kind, in.engine);
    core::require(in.engine.empty() ||
                      (named != nullptr &&
                       gemm_int8::reads_layout(in.state.device.kind, *named, packed.engine->id)),
                  "{}: packed_b is packed for engine '{}'; it cannot be used by engine '{}'", in.op,
                  packed.engine->name, in.engine);
    if (packed.device != in.state.device)
      core::fail(Status::invalid_argument,
                 "{}: packed_b was packed on device {}; it cannot be used on {}", in.op,
                 packed.device, in.state.device);
    problem.n = packed.rows;
    problem.packed_for = packed.engine->id;
    operands.packed_b = packed.buffer.as<const void>();
  } else {
    core::check_matrix(in.op, "b", in.b);
    core::check_shape(in.op, "b", in.b, in.b.rows, "N", problem.k, "K");
    problem.n = in.b.rows;
    problem.stride_b = in.b.stride;
    operands.b = in.b.data;
  }

  core::check_matrix(in.op, "d", in.d);
  core::check_shape(in.op, "d", in.d, problem.m, "M", problem.n, "N");
  problem.stride_d = in.d.stride;
  problem.output = in.d.dtype;
  operands.d = in.d.data;
}

// The engine that is forced by name, null if none is.
const Engine* forced_engine(const ContextState& state, std::string_view op,
                            const GemmProblem& problem, std::string_view forced) {
  if (!forced.empty()) {
    const Engine* engine = &named_engine(op, forced, state);
    const std::string_view reason = engine->rejects(problem);
    if (!reason.empty())
      core::fail(Status::unsupported, "{}: engine '{}' cannot run {}: {}", op, forced,
                 gemm_int8::describe(problem), reason);
    return engine;
  }
  if (problem.packed_for != EngineId::none) {
    const Engine* packer = gemm_int8::find_engine(state.device.kind, problem.packed_for);
    const std::string_view reason = packer->unavailable(state);
    if (!reason.empty())
      core::fail(Status::unsupported,
                 "{}: packed_b is packed for engine '{}', which is not available: {}", op,
                 packer->name, reason);
  }
  return nullptr;
}

// Runs the tuned configuration if there is one that holds here; else false, and the source is told.
bool run_tuned(Context& context, const GemmProblem& problem, const GemmOperands& operands,
               const Engine* forced) {
  ContextState& state = context.state();
  if (state.config_source == nullptr) return false;
  const ConfigQuery query = gemm_int8::config_query(problem, state);
  ConfigChoice choice;
  if (!state.find_config(query, choice)) return false;
  const GemmConfig config = gemm_int8::from_choice(choice);
  if (forced != nullptr && config.engine != forced->id) return false;
  const std::string reason = gemm_int8::check_config(problem, config, state);
  if (!reason.empty()) {
    state.refuse_config(query, choice, reason);
    return false;
  }
  try {
    gemm_int8::run_checked(state, problem, config, operands);
    return true;
  } catch (const Error& error) {
    if (error.status() != Status::unsupported) throw;
    state.refuse_config(query, choice, error.what());
    return false;
  }
}

// The named engine, or the first that runs here.
const Engine* named_or_first(std::string_view op, const ContextState& state,
                             std::string_view engine) {
  return engine.empty() ? &gemm_int8::packing_engine(state) : &named_engine(op, engine, state);
}

}  // namespace

MatrixView<std::int8_t> gemm_int8::begin_packed_rows(Context& context, std::int64_t n,
                                                     std::int64_t k, PackedWeight& out,
                                                     std::string_view engine) {
  ContextState& state = context.state();
  const Engine* packer = named_or_first("pack_weight", state, engine);
  if (packer->packed_stride == nullptr || state.runtime == nullptr) return {};
  if (out.empty()) out = PackedWeight();  // a moved-from object has no state
  PackedWeightState& packed = out.state();
  const std::size_t bytes = packer->packed_bytes(n, k);
  packed.buffer.reserve(bytes, state.runtime);
  packed.engine = packer;
  packed.device = state.device;
  packed.rows = n;
  packed.cols = k;
  const std::int64_t stride = packer->packed_stride(n, k);
  if (bytes != static_cast<std::size_t>(n * k))
    state.runtime->fill(packed.buffer.as<void>(), 0, bytes);
  return {packed.buffer.as<std::int8_t>(), n, k, stride};
}

void pack_weight(Context& context, MatrixView<const std::int8_t> b, PackedWeight& out,
                 std::string_view engine) {
  constexpr std::string_view op = "pack_weight";
  core::check_matrix(op, "b", b);
  check_k(op, b.cols);
  ContextState& state = context.state();
  const Engine* packer = named_or_first(op, state, engine);
  if (out.empty()) out = PackedWeight();  // a moved-from object has no state
  PackedWeightState& packed = out.state();
  core::check_operands(state, op, {}, {core::operand("b", b)});
  check_codes(state, op, "b", b);
  packed.buffer.reserve(packer->packed_bytes(b.rows, b.cols), state.runtime);
  packed.engine = nullptr;  // until the bytes are on their way: a device can fail here
  packer->pack(state, b, packed.buffer.as<void>());
  packed.engine = packer;
  packed.device = state.device;
  packed.rows = b.rows;
  packed.cols = b.cols;
}

namespace {

// The tuned configuration, else the default of the forced engine, of the one b is packed for, or of
// the first that accepts the problem. A library may have nothing for a problem that its engine
// takes. Unless the caller forced that engine, the device's last one, which takes everything and
// reads what the others pack, does it.
void choose_and_run(Context& context, std::string_view op, GemmProblem problem,
                    const GemmOperands& operands, std::string_view forced) {
  ContextState& state = context.state();
  problem.alignment =
      core::alignment_class(state, {operands.a, operands.b, operands.packed_b, operands.d});
  const Engine* engine = forced_engine(state, op, problem, forced);
  if (run_tuned(context, problem, operands, engine)) return;
  const GemmConfig config = engine != nullptr ? engine->default_config(problem, state)
                                              : gemm_int8::default_config(problem, context);
  try {
    return gemm_int8::run(context, problem, config, operands);
  } catch (const Error& error) {
    const Engine& last = *gemm_int8::engines(state.device.kind).back();
    if (error.status() != Status::unsupported || !forced.empty() || state.on_cpu() ||
        config.engine == last.id)
      throw;
    last.run(state, problem, last.default_config(problem, state), operands);
  }
}

}  // namespace

void gemm_s8s8s32(Context& context, const GemmS8S8S32Args& args) {
  constexpr std::string_view op = "gemm_s8s8s32";
  GemmProblem problem;
  GemmOperands operands;
  check_inputs({op, context.state(), args.a, args.b, args.packed_b, args.d, args.engine}, problem,
               operands);
  core::check_operands(context.state(), op, {core::operand("d", args.d)},
                       {core::operand("a", args.a), core::operand("b", args.b)});
  check_codes(context.state(), op, "a", args.a);
  check_codes(context.state(), op, "b", args.b);
  choose_and_run(context, op, problem, operands, args.engine);
}

void gemm(Context& context, const GemmArgs& args) {
  constexpr std::string_view op = "gemm";
  GemmProblem problem;
  GemmOperands operands;
  check_inputs({op, context.state(), args.a, args.b, args.packed_b, args.d, args.engine}, problem,
               operands);
  core::check_float(op, "d", args.d.dtype);
  core::check_span(op, "absmax_a", args.absmax_a, problem.m, "M");
  core::require(
      args.absmax_b.size() == 1 || args.absmax_b.size() == static_cast<std::size_t>(problem.n),
      "{}: absmax_b holds {} floats; it must hold N = {} or 1", op, args.absmax_b.size(),
      problem.n);
  core::check_span(op, "absmax_b", args.absmax_b, static_cast<std::int64_t>(args.absmax_b.size()),
                   "N or 1");
  problem.scale = args.absmax_b.size() == static_cast<std::size_t>(problem.n)
                      ? ScaleMode::row_col
                      : ScaleMode::row_scalar;
  operands.absmax_a = args.absmax_a.data();
  operands.absmax_b = args.absmax_b.data();
  if (args.bias.data != nullptr) {
    core::check_matrix(op, "bias", args.bias);
    core::check_float(op, "bias", args.bias.dtype);
    core::check_shape(op, "bias", args.bias, 1, "1", problem.n, "N");
    problem.has_bias = true;
    problem.bias = args.bias.dtype;
    operands.bias = args.bias.data;
  }
  core::check_operands(
      context.state(), op, {core::operand("d", args.d)},
      {core::operand("a", args.a), core::operand("b", args.b),
       core::operand("absmax_a", args.absmax_a), core::operand("absmax_b", args.absmax_b),
       core::operand("bias", args.bias)});
  check_codes(context.state(), op, "a", args.a);
  check_codes(context.state(), op, "b", args.b);
  choose_and_run(context, op, problem, operands, args.engine);
}

std::vector<EngineInfo> gemm_engines(const Context& context) {
  std::vector<EngineInfo> infos;
  for (const Engine* engine : gemm_int8::engines(context.state().device.kind)) {
    const std::string_view reason = engine->unavailable(context.state());
    infos.push_back({std::string(engine->name), reason.empty(), std::string(reason)});
  }
  return infos;
}

}  // namespace switchback
