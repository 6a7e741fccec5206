// SPDX-License-Identifier: Apache-2.0
#include "linear/checks.hpp"

#include <limits>
#include <string>
#include <vector>

#include "core/check.hpp"
#include "linear/mode.hpp"
#include "quant/rotate.hpp"
#include "switchback/gemm.hpp"

namespace switchback::linear {

namespace {

void check_engine(std::string_view op, const Context& context, const LinearOptions& options) {
  if (options.engine.empty()) return;
  const auto engines = traits_of(options.mode).is_floating() ? gemm_standard_engines(context)
                                                             : gemm_engines(context);
  std::string names;
  for (const EngineInfo& engine : engines) {
    if (engine.name == options.engine) {
      if (!engine.available)
        core::fail(Status::unsupported, "{}: engine '{}' is not available: {}", op, options.engine,
                   engine.reason);
      return;
    }
    names += (names.empty() ? "" : ", ") + engine.name;
  }
  core::fail(Status::invalid_argument, "{}: engine '{}' is not one of {} (mode {})", op,
             options.engine, names, mode_name(options.mode));
}

// The modes that mode auto may choose from, with their bits, for a message: "standard (bit 0),
// rowwise (bit 1) …".
std::string choosable_with_bits() {
  std::vector<std::string> modes;
  for (std::size_t bit = 0; bit < mode_count; ++bit)
    if (const Mode mode{static_cast<std::int32_t>(bit)}; traits_of(mode).may_be_chosen)
      modes.push_back(fmt::format("{} (bit {})", mode_name(mode), bit));
  return core::listed(modes, "and");
}

// Checks `allow`, the modes that mode auto may choose from. Other modes than auto must leave it 0.
void check_allowed(std::string_view op, const LinearOptions& options) {
  if (options.mode != Mode::automatic) {
    core::require(options.allow == 0, "{}: allow = {}; only mode auto uses it, not mode {}", op,
                  options.allow, mode_name(options.mode));
    return;
  }
  if ((options.allow & ~all_choosable) != 0)
    core::fail(Status::invalid_argument, "{}: allow = {}; mode auto can choose only from {}", op,
               options.allow, choosable_with_bits());
  core::require(options.engine.empty(),
                "{}: engine '{}' in mode auto; engine must be empty, because the modes that auto "
                "chooses from have different engines",
                op, options.engine);
}

void check_weight_gradient(std::string_view op, const LinearOptions& options) {
  core::check_enum<weight_gradient_name>(op, "dw", options.dw);
  core::check_block_rows(op, "dw_block_rows", options.dw_block_rows);
  const ModeTraits& mode = traits_of(options.mode);
  if (options.dw == WeightGradient::floating || mode.has_int8_dw()) return;
  core::fail(
      Status::invalid_argument, "{}: dw = int8_block in mode {}; it must be {}{}", op, mode.name,
      mode_names_where([](const ModeTraits& each) { return each.has_int8_dw(); }),
      mode.keeps_codes ? " (with int8_block, mode global keeps codes instead of x too)" : "");
}

void check_features(std::string_view op, std::string_view name, std::int64_t features,
                    const LinearOptions& options, std::string_view product) {
  const ModeTraits& mode = traits_of(options.mode);
  const bool may_be_standard =
      mode.is_floating() ||
      (!mode.is_int8() &&
       (options.allow == 0 || (options.allow & allow_mode(Mode::standard)) != 0));
  core::require(features >= 1, "{}: {} = {}; it must be at least 1", op, name, features);
  core::require(may_be_standard || features <= max_exact_k,
                "{}: {} = {}; in mode {} it must be at most {}, or the int32 sums of codes "
                "over it ({}) could overflow",
                op, name, features, mode.name, max_exact_k, product);
}

void check_groups(std::string_view op, const LinearOptions& options) {
  constexpr std::int64_t most_groups = std::numeric_limits<std::int32_t>::max();
  core::require(options.groups >= 1 && options.groups <= most_groups,
                "{}: groups = {}; it must be from 1 to 2^31 - 1", op, options.groups);
  for (const std::int64_t features : {options.in_features, options.out_features})
    core::require(features <= std::numeric_limits<std::int64_t>::max() / options.groups,
                  "{}: {} groups of {} features are more than a 64-bit signed integer can count",
                  op, options.groups, features);
  core::require(options.groups == 1 || !options.transposed_weight,
                "{}: transposed_weight with {} groups; only a layer without groups may have it", op,
                options.groups);
}

}  // namespace

void check_options(std::string_view op, const Context& context, const LinearOptions& options) {
  core::check_enum<mode_name>(op, "mode", options.mode);
  check_allowed(op, options);
  check_features(op, "in_features", options.in_features, options, "the forward pass");
  check_features(op, "out_features", options.out_features, options, "dX");
  core::check_float(op, "dtype", options.dtype);
  core::check_enum<activation_name>(op, "activation", options.activation);
  check_groups(op, options);
  if (options.rotation != Rotation::none) {
    quant::check_rotation(op, options.rotation, options.in_features, "in_features");
    if (!traits_of(options.mode).is_int8())
      core::fail(Status::invalid_argument, "{}: rotation = {} in mode {}; it needs mode {}", op,
                 quant::group_of(options.rotation), mode_name(options.mode),
                 mode_names_where(is_int8_mode));
    core::require(!options.transposed_weight,
                  "{}: rotation = {} with transposed_weight; only a weight [N,K] is rotated", op,
                  quant::group_of(options.rotation));
  }
  check_engine(op, context, options);
  check_weight_gradient(op, options);
}

void check_dtype(std::string_view op, std::string_view argument, DType dtype, DType layer) {
  core::require(dtype == layer, "{}: {} has dtype {}; it must be the layer's, {}", op, argument,
                dtype_name(dtype), dtype_name(layer));
}

void check_output_dtype(std::string_view op, std::string_view argument, DType dtype, DType layer) {
  if (layer == DType::f32) return check_dtype(op, argument, dtype, layer);
  core::require(dtype == layer || dtype == DType::f32,
                "{}: {} has dtype {}; it must be the layer's, {}, or f32", op, argument,
                dtype_name(dtype), dtype_name(layer));
}

void check_gradient(std::string_view op, std::string_view argument, AnyMatrix m, DType layer,
                    std::int64_t rows, std::string_view rows_name, std::int64_t cols,
                    std::string_view cols_name) {
  if (m.data == nullptr) return;
  core::check_matrix(op, argument, m);
  check_output_dtype(op, argument, m.dtype, layer);
  core::check_shape(op, argument, m, rows, rows_name, cols, cols_name);
}

void check_usable(std::string_view op, bool moved_from, bool context_is_gone) {
  if (moved_from)
    core::fail(Status::invalid_state, "{}: the layer was moved from; it has no state", op);
  if (context_is_gone)
    core::fail(Status::invalid_state,
               "{}: the layer's Context was destroyed; it must outlive the layer", op);
}

void check_weight_is_set(std::string_view op, bool is_set) {
  if (!is_set)
    core::fail(Status::invalid_state, "{}: the layer has no weight; call set_weight first", op);
}

namespace {

std::string_view save_name(Save save) noexcept {
  return core::name_among({"nothing", "copy", "borrow", "caller"}, save);
}

}  // namespace

void check_save(std::string_view op, Save save) {
  core::check_enum<save_name>(op, "save", save);
}

void check_saves_in_training(std::string_view op, Save save, bool in_eval) {
  if (in_eval && save != Save::nothing)
    core::fail(Status::invalid_state,
               "{}: save = {} ({}) after prepare_for_eval; it must be nothing (0) until "
               "weight_updated or set_weight is called",
               op, save_name(save), static_cast<std::int32_t>(save));
}

void check_trains(std::string_view op, bool in_eval) {
  if (in_eval)
    core::fail(Status::invalid_state,
               "{}: the layer is prepared for eval; call weight_updated or set_weight, then a "
               "forward that saves",
               op);
}

void check_saved(std::string_view op, SavedState saved) {
  if (saved == SavedState::overwritten)
    core::fail(
        Status::invalid_state,
        "{}: x borrowed by forward was overwritten by an output of a later forward; borrow only "
        "memory that stays unchanged until backward has run, or call forward with save = copy",
        op);
  if (!is_valid(saved))
    core::fail(Status::invalid_state,
               "{}: no forward has saved anything; call forward with save = copy or borrow first",
               op);
}

void forget_overwritten(SavedState& saved, ConstAnyMatrix x, ConstAnyMatrix output) {
  if (saved == SavedState::borrowed && core::overlaps(x, output)) saved = SavedState::overwritten;
}

}  // namespace switchback::linear
