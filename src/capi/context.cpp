// SPDX-License-Identifier: Apache-2.0
// C ABI: versions, errors, contexts, engines.
#include <iterator>

#include "capi/guard.hpp"
#include "capi/handles.hpp"

using namespace switchback;
using namespace switchback::capi;

static_assert(SWITCHBACK_OK == static_cast<int>(Status::ok));
static_assert(SWITCHBACK_INVALID_ARGUMENT == static_cast<int>(Status::invalid_argument));
static_assert(SWITCHBACK_UNSUPPORTED == static_cast<int>(Status::unsupported));
static_assert(SWITCHBACK_OUT_OF_MEMORY == static_cast<int>(Status::out_of_memory));
static_assert(SWITCHBACK_DEVICE_ERROR == static_cast<int>(Status::device_error));
static_assert(SWITCHBACK_IO_ERROR == static_cast<int>(Status::io_error));
static_assert(SWITCHBACK_INVALID_STATE == static_cast<int>(Status::invalid_state));
static_assert(SWITCHBACK_INTERNAL == static_cast<int>(Status::internal));
static_assert(SWITCHBACK_F32 == static_cast<int>(DType::f32));
static_assert(SWITCHBACK_F16 == static_cast<int>(DType::f16));
static_assert(SWITCHBACK_BF16 == static_cast<int>(DType::bf16));
static_assert(SWITCHBACK_S8 == static_cast<int>(DType::s8));
static_assert(SWITCHBACK_S32 == static_cast<int>(DType::s32));

uint32_t switchback_abi_version(void) {
  return SWITCHBACK_ABI_VERSION_MAJOR << 16 | SWITCHBACK_ABI_VERSION_MINOR;
}

const char* switchback_version_string(void) {
  return SWITCHBACK_VERSION;
}

const char* switchback_status_name(switchback_status status) {
  return status_name(static_cast<Status>(status));
}

const char* switchback_last_error(void) {
  return last_error();
}

switchback_status switchback_context_create(const switchback_context_options* options_or_null,
                                            switchback_context** out) {
  return guard([&] {
    constexpr std::string_view op = "context_create";
    check_pointer(op, "out", out);
    ContextOptions options;
    TunerOptions tuner;
    if (options_or_null != nullptr) {
      const auto given = read_struct(op, "options", options_or_null);
      tuner.mode = read_name(given.tune);
      tuner.cache_directory = read_name(given.tune_cache);
      options.device = read_name(given.device);
      options.threads = given.threads;
      options.isa = read_name(given.isa);
      options.stream = given.stream;
      options.allocator = {given.allocate, given.release, given.allocator_user};
    }
    auto made = std::make_unique<switchback_context>(options);
    made->tuner = Tuner::open(*made->context, tuner);
    made->tuner->attach(*made->context);
    *out = made.release();
  });
}

void switchback_context_destroy(switchback_context* or_null) {
  delete or_null;
}

switchback_status switchback_context_get_info(const switchback_context* context,
                                              switchback_context_info* out) {
  return guard([&] {
    constexpr std::string_view op = "context_get_info";
    check_pointer(op, "context", context);
    auto info = read_struct(op, "out", out);
    const TunerCounters counters = context->tuner->counters();
    info.device = context->device.c_str();
    info.isa = context->isa.c_str();
    info.threads = context->context->threads();
    info.workspace_bytes = context->context->workspace_bytes();
    info.tune_hits = counters.hits;
    info.tune_misses = counters.misses;
    info.tune_refused = counters.refused;
    write_struct(info, out);
  });
}

switchback_status switchback_context_synchronize(switchback_context* context) {
  return guard([&] { read_context("context_synchronize", context).synchronize(); });
}

switchback_status switchback_context_set_stream(switchback_context* context, void* stream) {
  return guard([&] { read_context("context_set_stream", context).set_stream(stream); });
}

switchback_status switchback_context_tune_warnings(switchback_context* context, const char** out) {
  return guard([&] {
    constexpr std::string_view op = "context_tune_warnings";
    check_pointer(op, "context", context);
    check_pointer(op, "out", out);
    std::string text;
    for (const std::string& warning : context->tuner->warnings()) {
      if (!text.empty()) text += '\n';
      text += warning;
    }
    context->warnings = std::move(text);
    *out = context->warnings.c_str();
  });
}

namespace {

std::vector<EngineInfo> engines_of(const Context& context, int32_t operation) {
  switch (operation) {
    case SWITCHBACK_ENGINES_QUANTIZE:
      return quantize_engines(context);
    case SWITCHBACK_ENGINES_GEMM:
      return gemm_engines(context);
    case SWITCHBACK_ENGINES_GEMM_BLOCKWISE:
      return gemm_blockwise_engines(context);
    case SWITCHBACK_ENGINES_GEMM_STANDARD:
      return gemm_standard_engines(context);
    default:
      core::fail(Status::invalid_argument,
                 "engines: operation = {}; it must be quantize (0), gemm (1), gemm_standard (2) or "
                 "gemm_blockwise (3)",
                 operation);
  }
}

}  // namespace

switchback_status switchback_engines(switchback_context* context, int32_t operation,
                                     const switchback_engine_info** out, size_t* count) {
  return guard([&] {
    constexpr std::string_view op = "engines";
    const Context& cpp_context = read_context(op, context);
    check_pointer(op, "out", out);
    check_pointer(op, "count", count);
    const bool known = operation >= 0 && operation < std::ssize(context->engines);
    if (!known || !context->engines[static_cast<std::size_t>(operation)].made) {
      EngineTable table;
      table.infos = engines_of(cpp_context, operation);  // throws if the operation is unknown
      for (const EngineInfo& info : table.infos)
        table.rows.push_back({info.name.c_str(), info.available ? 1 : 0, info.reason.c_str()});
      table.made = true;
      // Moving a vector does not move its elements, so the pointers to them stay valid.
      context->engines[static_cast<std::size_t>(operation)] = std::move(table);
    }
    const EngineTable& table = context->engines[static_cast<std::size_t>(operation)];
    *out = table.rows.data();
    *count = table.rows.size();
  });
}
