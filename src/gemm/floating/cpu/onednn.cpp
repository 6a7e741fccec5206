// SPDX-License-Identifier: Apache-2.0
#include "gemm/floating/cpu/onednn.hpp"

#include "core/check.hpp"

#if defined(SWITCHBACK_HAVE_ONEDNN)
#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <oneapi/dnnl/dnnl.hpp>
#include <vector>

#include "core/cpu/forks.hpp"
#endif

namespace switchback::floating {

#if defined(SWITCHBACK_HAVE_ONEDNN)

std::string onednn_unavailable() {
  return {};
}

bool onednn_multiplies_bf16(std::int64_t k) {
  // oneDNN's effective instruction set, which ONEDNN_MAX_CPU_ISA may have lowered. The bits of each
  // level include those of the levels below it.
  static const auto isa = static_cast<unsigned>(dnnl_get_effective_cpu_isa());
  constexpr unsigned bf16 = dnnl_cpu_isa_avx512_core_bf16;
  constexpr unsigned amx = dnnl_cpu_isa_avx512_core_amx;
  constexpr std::int64_t crashes_with_amx = 63;
  return (isa & bf16) == bf16 && ((isa & amx) != amx || k != crashes_with_amx);
}

void check_onednn(int status, std::string_view call) {
  if (status == dnnl_success) return;
  const auto s = status == dnnl_out_of_memory   ? Status::out_of_memory
                 : status == dnnl_unimplemented ? Status::unsupported
                                                : Status::internal;
  const char* name = status == dnnl_out_of_memory       ? "out_of_memory"
                     : status == dnnl_invalid_arguments ? "invalid_arguments"
                     : status == dnnl_unimplemented     ? "unimplemented"
                     : status == dnnl_runtime_error     ? "runtime_error"
                                                        : "unknown";
  core::fail(s, "gemm_standard: oneDNN: {} failed with status {} ({})", call, status, name);
}

namespace {

using dnnl::memory;

memory::data_type type_of(DType dtype) {
  return dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

memory::desc matrix_desc(std::int64_t rows, std::int64_t cols, DType dtype, std::int64_t ld,
                         bool transposed) {
  const memory::dims strides = transposed ? memory::dims{1, ld} : memory::dims{ld, 1};
  return {{rows, cols}, type_of(dtype), strides};
}

// Scratch memory comes from the Workspace: threads could not share memory that a primitive owns.
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

// A matmul that tells which layout oneDNN prefers for b[k,n]. In principle the layout could depend
// on m; in practice it does not, and asking with one fixed m makes it the same for all m.
dnnl::matmul::primitive_desc packed_matmul(const dnnl::engine& engine, std::int64_t k,
                                           std::int64_t n, DType dtype) {
  constexpr std::int64_t m = 128;
  const memory::desc any({k, n}, type_of(dtype), memory::format_tag::any);
  const auto d = matrix_desc(m, n, DType::f32, n, false);
  return describe_matmul(engine, matrix_desc(m, k, dtype, k, false), any, {}, d, false,
                         attributes(false));
}

// The primitives of a problem and the memory objects they are called with. The objects own no
// memory: each call sets their pointers.
struct Prepared {
  Problem problem;
  LayoutB layout = LayoutB::plain;
  dnnl::matmul matmul;
  dnnl::reorder pack;
  memory a, b, d, bias, scratch;
  memory b_plain, pack_scratch;  ///< operand and scratch memory of `pack`, if layout is packed_here
  std::int64_t scratch_bytes = 0;
  std::int64_t packed_bytes = 0;
  std::int64_t pack_scratch_bytes = 0;
};

std::int64_t size_of(const memory::desc& desc) {
  return static_cast<std::int64_t>(desc.get_size());
}

std::unique_ptr<Prepared> prepare(const dnnl::engine& engine, const Problem& p, LayoutB layout) {
  auto made = std::make_unique<Prepared>();
  made->problem = p;
  made->layout = layout;
  const auto a = matrix_desc(p.m, p.k, p.input, p.lda, p.transpose_a);
  const auto b_plain = matrix_desc(p.k, p.n, p.input, p.ldb, p.transpose_b);
  const auto d = matrix_desc(p.m, p.n, p.output, p.ldd, false);
  const auto bias = matrix_desc(1, p.n, DType::f32, p.n, false);
  memory::desc b = b_plain;
  if (layout == LayoutB::packed_here)
    b = memory::desc({p.k, p.n}, type_of(p.input), memory::format_tag::any);
  if (layout == LayoutB::packed) b = packed_matmul(engine, p.k, p.n, p.input).weights_desc();
  const auto pd = describe_matmul(engine, a, b, bias, d, p.bias, attributes(p.accumulate));
  made->matmul = dnnl::matmul(pd);
  made->a = memory(a, engine, DNNL_MEMORY_NONE);
  made->b = memory(pd.weights_desc(), engine, DNNL_MEMORY_NONE);
  made->d = memory(d, engine, DNNL_MEMORY_NONE);
  made->bias = memory(bias, engine, DNNL_MEMORY_NONE);
  made->scratch = memory(pd.scratchpad_desc(), engine, DNNL_MEMORY_NONE);
  made->scratch_bytes = size_of(pd.scratchpad_desc());
  if (layout == LayoutB::packed_here) {
    const dnnl::reorder::primitive_desc pack(engine, b_plain, engine, pd.weights_desc(),
                                             attributes(false));
    made->pack = dnnl::reorder(pack);
    made->b_plain = memory(b_plain, engine, DNNL_MEMORY_NONE);
    made->pack_scratch = memory(pack.scratchpad_desc(), engine, DNNL_MEMORY_NONE);
    made->packed_bytes = size_of(pd.weights_desc());
    made->pack_scratch_bytes = size_of(pack.scratchpad_desc());
  }
  return made;
}

// A cache of one thread's primitives, the most recently used first. So a repeated call creates
// nothing. If a second thread needs the same primitive, oneDNN's own cache makes the creation
// cheap.
class Cache {
 public:
  Prepared& get(const Problem& problem, LayoutB layout) {
    // A primitive runs on the number of threads that it was made for. After fork() the parent's
    // threads are gone, so all primitives are dropped.
    if (fork_generation_ != core::fork_generation()) {
      entries_.clear();
      fork_generation_ = core::fork_generation();
    }
    const auto same = [&](const std::unique_ptr<Prepared>& entry) {
      return entry->layout == layout && entry->problem == problem;
    };
    auto found = std::ranges::find_if(entries_, same);
    if (found == entries_.end()) {
      auto made = prepare(engine_, problem, layout);
      if (entries_.size() == capacity) entries_.pop_back();
      entries_.push_back(std::move(made));
      found = entries_.end() - 1;
    }
    std::rotate(entries_.begin(), found, found + 1);
    return *entries_.front();
  }
  [[nodiscard]] const dnnl::engine& engine() const { return engine_; }
  [[nodiscard]] dnnl_stream_t stream() const { return stream_.get(); }

  static Cache& of_this_thread() {
    static thread_local Cache cache;
    return cache;
  }

 private:
  // The number of cached primitives. A model's layers have few shapes with three passes each;
  // panels of widened operands add two more.
  static constexpr std::size_t capacity = 64;
  dnnl::engine engine_{dnnl::engine::kind::cpu, 0};
  dnnl::stream stream_{engine_};
  std::vector<std::unique_ptr<Prepared>> entries_;
  unsigned fork_generation_ = core::fork_generation();
};

// Runs a primitive by oneDNN's C functions: the C++ functions need a std::unordered_map of
// arguments, built for each call.
template <std::size_t count>
void execute(ContextState& context, const dnnl::primitive& primitive, dnnl_stream_t stream,
             const std::array<dnnl_exec_arg_t, count>& arguments, std::string_view what) {
  dnnl_status_t status = dnnl_success;
  // A single task runs on the calling thread, in the default floating point environment.
  context.threads.for_each(1, [&](std::int64_t, int) {
    status =
        dnnl_primitive_execute(primitive.get(), stream, static_cast<int>(count), arguments.data());
    if (status == dnnl_success) status = dnnl_stream_wait(stream);
  });
  check_onednn(status, what);
}

void set(const memory& object, const void* data) {
  // oneDNN's interface takes pointers to non-const, also of operands that it only reads.
  check_onednn(dnnl_memory_set_data_handle(object.get(), const_cast<void*>(data)),
               "dnnl_memory_set_data_handle");
}

void run_pack(ContextState& context, dnnl_stream_t stream, const dnnl::reorder& pack,
              const memory& from, const memory& to, const memory& scratch) {
  execute(
      context, pack, stream,
      std::array{dnnl_exec_arg_t{DNNL_ARG_FROM, from.get()}, dnnl_exec_arg_t{DNNL_ARG_TO, to.get()},
                 dnnl_exec_arg_t{DNNL_ARG_SCRATCHPAD, scratch.get()}},
      "reorder");
}

// Runs f and converts exceptions of oneDNN to Error.
template <class F>
auto translated(const F& f) {
  try {
    return f();
  } catch (const dnnl::error& error) {
    check_onednn(error.status, error.what());
    throw Error(Status::internal, error.what());
  } catch (const std::bad_alloc&) {
    core::fail(Status::out_of_memory, "gemm_standard: oneDNN: no memory for a primitive");
  }
}

}  // namespace

void multiply(ContextState& context, const Problem& problem, LayoutB layout, const void* a,
              const void* b, void* d, const float* bias) {
  const core::ScopedLibraryThreads threads(context.threads.count());
  translated([&] {
    Cache& cache = Cache::of_this_thread();
    Prepared& p = cache.get(problem, layout);
    core::Workspace::Frame frame(context.workspace);
    if (layout == LayoutB::packed_here) {
      set(p.b_plain, b);
      set(p.b, frame.take<std::byte>(p.packed_bytes));
      set(p.pack_scratch, frame.take<std::byte>(p.pack_scratch_bytes));
      run_pack(context, cache.stream(), p.pack, p.b_plain, p.b, p.pack_scratch);
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
  });
}

std::size_t packed_bytes(std::int64_t k, std::int64_t n, DType dtype) {
  return translated([&] {
    const auto pd = packed_matmul(Cache::of_this_thread().engine(), k, n, dtype);
    // Only oneDNN kernels whose names begin with "brg" have their own layout of b; others do not
    // gain from packing.
    const bool pays = std::string_view(pd.impl_info_str()).starts_with("brg");
    return pays ? pd.weights_desc().get_size() : 0;
  });
}

void pack_transposed(ContextState& context, const void* w, std::int64_t n, std::int64_t k,
                     std::int64_t ld, DType dtype, void* packed) {
  const core::ScopedLibraryThreads threads(context.threads.count());
  translated([&] {
    const Cache& cache = Cache::of_this_thread();
    const auto from = matrix_desc(k, n, dtype, ld, true);
    const auto to = packed_matmul(cache.engine(), k, n, dtype).weights_desc();
    const dnnl::reorder::primitive_desc pd(cache.engine(), from, cache.engine(), to,
                                           attributes(false));
    core::Workspace::Frame frame(context.workspace);
    auto* scratch = frame.take<std::byte>(size_of(pd.scratchpad_desc()));
    // const_cast: oneDNN's interface takes a pointer to non-const, but only reads w.
    run_pack(context, cache.stream(), dnnl::reorder(pd),
             memory(from, cache.engine(), const_cast<void*>(w)), memory(to, cache.engine(), packed),
             memory(pd.scratchpad_desc(), cache.engine(), scratch));
  });
}

#else

std::string onednn_unavailable() {
  return "this build has no oneDNN";
}
bool onednn_multiplies_bf16(std::int64_t) {
  return false;
}
void check_onednn(int, std::string_view) {}

#endif

}  // namespace switchback::floating
