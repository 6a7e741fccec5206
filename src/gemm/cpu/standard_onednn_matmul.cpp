// SPDX-License-Identifier: Apache-2.0
// Engine zone: oneDNN's matmul primitive: f32, and bf16 where the CPU multiplies bf16; everything
// else is widened to f32 first. Bias and accumulation are fused. Primitives are kept per thread, so
// that a repeated call creates nothing; oneDNN's own cache makes a second thread's creation cheap.
#include "gemm/cpu/standard_f32.hpp"
#include "gemm/cpu/standard_onednn.hpp"

#if defined(SWITCHBACK_HAVE_ONEDNN)
#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "core/check.hpp"
#endif

namespace switchback::standard {

namespace {

#if defined(SWITCHBACK_HAVE_ONEDNN)

using dnnl::memory;

memory::data_type type_of(DType dtype) {
  return dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc matrix_desc(std::int64_t rows, std::int64_t cols, DType dtype, std::int64_t ld,
                         bool transposed) {
  const memory::dims strides = transposed ? memory::dims{1, ld} : memory::dims{ld, 1};
  return {{rows, cols}, type_of(dtype), strides};
}

// A problem made into primitives and the memory objects they are called with. The objects hold no
// memory: each call lends them its pointers.
struct Prepared {
  Problem problem;
  bool pack_b = false;
  dnnl::matmul matmul;
  dnnl::reorder pack;
  memory a, b, d, bias, scratch;
  memory b_plain, pack_scratch;  ///< of pack, if pack_b
  std::int64_t scratch_bytes = 0;
  std::int64_t packed_bytes = 0;
  std::int64_t pack_scratch_bytes = 0;
};

// Scratch comes from the Workspace: a primitive's own could not be shared by threads.
dnnl::primitive_attr attributes(bool accumulate) {
  dnnl::primitive_attr attr;
  attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (accumulate) {
    dnnl::post_ops ops;
    ops.append_sum(1.0f);
    attr.set_post_ops(ops);
  }
  return attr;
}

dnnl::matmul::primitive_desc describe_matmul(const dnnl::engine& engine, const memory::desc& a,
                                             const memory::desc& b, const memory::desc& bias,
                                             const memory::desc& d, bool has_bias,
                                             const dnnl::primitive_attr& attr) {
#if DNNL_VERSION_MAJOR >= 3
  if (has_bias) return {engine, a, b, bias, d, attr};
  return {engine, a, b, d, attr};
#else
  if (has_bias) return {dnnl::matmul::desc(a, b, bias, d), attr, engine};
  return {dnnl::matmul::desc(a, b, d), attr, engine};
#endif
}

std::unique_ptr<Prepared> prepare(const dnnl::engine& engine, const Problem& p, bool pack_b) {
  auto made = std::make_unique<Prepared>();
  made->problem = p;
  made->pack_b = pack_b;
  const auto a = matrix_desc(p.m, p.k, p.input, p.lda, p.transpose_a);
  const auto b_plain = matrix_desc(p.k, p.n, p.input, p.ldb, p.transpose_b);
  const auto b =
      pack_b ? memory::desc({p.k, p.n}, type_of(p.input), memory::format_tag::any) : b_plain;
  const auto d = matrix_desc(p.m, p.n, p.output, p.ldd, false);
  const auto bias = matrix_desc(1, p.n, DType::f32, p.n, false);
  const auto pd = describe_matmul(engine, a, b, bias, d, p.bias, attributes(p.accumulate));
  made->matmul = dnnl::matmul(pd);
  made->a = memory(a, engine, DNNL_MEMORY_NONE);
  made->b = memory(pd.weights_desc(), engine, DNNL_MEMORY_NONE);
  made->d = memory(d, engine, DNNL_MEMORY_NONE);
  made->bias = memory(bias, engine, DNNL_MEMORY_NONE);
  made->scratch = memory(pd.scratchpad_desc(), engine, DNNL_MEMORY_NONE);
  made->scratch_bytes = static_cast<std::int64_t>(pd.scratchpad_desc().get_size());
  if (pack_b) {
    const dnnl::reorder::primitive_desc pack(engine, b_plain, engine, pd.weights_desc(),
                                             attributes(false));
    made->pack = dnnl::reorder(pack);
    made->b_plain = memory(b_plain, engine, DNNL_MEMORY_NONE);
    made->pack_scratch = memory(pack.scratchpad_desc(), engine, DNNL_MEMORY_NONE);
    made->packed_bytes = static_cast<std::int64_t>(pd.weights_desc().get_size());
    made->pack_scratch_bytes = static_cast<std::int64_t>(pack.scratchpad_desc().get_size());
  }
  return made;
}

// One thread's primitives, the most recently used first.
class Cache {
 public:
  Prepared& get(const Problem& problem, bool pack_b) {
    const auto same = [&](const std::unique_ptr<Prepared>& entry) {
      return entry->pack_b == pack_b && entry->problem == problem;
    };
    auto found = std::ranges::find_if(entries_, same);
    if (found == entries_.end()) {
      auto made = prepare(engine_, problem, pack_b);
      if (entries_.size() == capacity) entries_.pop_back();
      entries_.push_back(std::move(made));
      found = entries_.end() - 1;
    }
    std::rotate(entries_.begin(), found, found + 1);
    return *entries_.front();
  }
  [[nodiscard]] dnnl_stream_t stream() const { return stream_.get(); }

 private:
  // A model's layers have few shapes, each with three passes; panels of widened operands add two.
  static constexpr std::size_t capacity = 64;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::vector<std::unique_ptr<Prepared>> entries_;
};

// The C calls: the C++ ones take a std::unordered_map of arguments, made anew each time.
template <std::size_t count>
void execute(ContextState& context, const dnnl::primitive& primitive, dnnl_stream_t stream,
             const std::array<dnnl_exec_arg_t, count>& arguments, std::string_view what) {
  dnnl_status_t status = dnnl_success;
  // One task runs on the calling thread, in the default floating point environment.
  context.threads.for_each(1, [&](std::int64_t, int) {
    status =
        dnnl_primitive_execute(primitive.get(), stream, static_cast<int>(count), arguments.data());
    if (status == dnnl_success) status = dnnl_stream_wait(stream);
  });
  check_onednn(status, what);
}

void set(const memory& object, const void* data) {
  // Operands that are only read are not const in oneDNN's interface.
  check_onednn(dnnl_memory_set_data_handle(object.get(), const_cast<void*>(data)),
               "dnnl_memory_set_data_handle");
}

void multiply(ContextState& context, const Problem& problem, bool pack_b, const void* a,
              const void* b, void* d, const float* bias) {
  const core::ScopedLibraryThreads threads(context.threads.count());
  try {
    static thread_local Cache cache;
    Prepared& p = cache.get(problem, pack_b);
    core::Workspace::Frame frame(context.workspace);
    if (pack_b) {
      auto* packed = frame.take<std::byte>(p.packed_bytes);
      set(p.b_plain, b);
      set(p.b, packed);
      set(p.pack_scratch, frame.take<std::byte>(p.pack_scratch_bytes));
      execute(context, p.pack, cache.stream(),
              std::array{dnnl_exec_arg_t{DNNL_ARG_FROM, p.b_plain.get()},
                         dnnl_exec_arg_t{DNNL_ARG_TO, p.b.get()},
                         dnnl_exec_arg_t{DNNL_ARG_SCRATCHPAD, p.pack_scratch.get()}},
              "reorder");
    } else {
      set(p.b, b);
    }
    set(p.a, a);
    set(p.d, d);
    set(p.bias, bias);
    set(p.scratch, frame.take<std::byte>(p.scratch_bytes));
    const dnnl_exec_arg_t src{DNNL_ARG_SRC, p.a.get()};
    const dnnl_exec_arg_t weights{DNNL_ARG_WEIGHTS, p.b.get()};
    const dnnl_exec_arg_t dst{DNNL_ARG_DST, p.d.get()};
    const dnnl_exec_arg_t scratch{DNNL_ARG_SCRATCHPAD, p.scratch.get()};
    const dnnl_exec_arg_t row{DNNL_ARG_BIAS, p.bias.get()};
    if (bias != nullptr)
      execute(context, p.matmul, cache.stream(), std::array{src, weights, dst, scratch, row},
              "matmul");
    else
      execute(context, p.matmul, cache.stream(), std::array{src, weights, dst, scratch}, "matmul");
  } catch (const dnnl::error& error) {
    check_onednn(error.status, error.what());
    throw Error(Status::internal, error.what());
  } catch (const std::bad_alloc&) {
    core::fail(Status::out_of_memory, "gemm_standard: oneDNN: no memory for a matmul primitive");
  }
}

void core_matmul(ContextState& context, const F32Gemm& g, const Config& config) {
  Problem p;
  p.m = g.m;
  p.n = g.n;
  p.k = g.k;
  p.lda = g.lda;
  p.ldb = g.ldb;
  p.ldd = g.ldd;
  p.transpose_a = g.transpose_a;
  p.transpose_b = g.transpose_b;
  p.accumulate = g.accumulate;
  p.threads = context.threads.count();
  multiply(context, p, config.pack_b, g.a, g.b, g.d, nullptr);
}

void run(ContextState& context, const Problem& problem, const Config& config,
         const Operands& operands) {
  const bool native =
      problem.input == DType::f32 || (problem.input == DType::bf16 && onednn_has_native_bf16());
  if (!native) return run_on_f32(context, problem, config, operands, core_matmul);
  core::Workspace::Frame frame(context.workspace);
  const float* bias = bias_as_f32(context, frame, problem, operands);
  multiply(context, problem, config.pack_b, operands.a, operands.b, operands.d, bias);
}

#else

void run(ContextState&, const Problem&, const Config&, const Operands&) {}

#endif

// Any size (64-bit counts), stride and transposition: what its fast kernels do not take (a leading
// dimension wider than the matrix) it hands to the kernels of dnnl_sgemm.
std::string refuses(const Problem&, const Config&) {
  return {};
}

}  // namespace

const Engine onednn_matmul_engine = {EngineId::onednn_matmul, "onednn_matmul", onednn_unavailable,
                                     refuses, run};

}  // namespace switchback::standard
