// SPDX-License-Identifier: Apache-2.0
#include "gemm/cuda/engines.hpp"

#include "gemm/cublaslt/cuda/algorithms.hpp"
#include "gemm/cublaslt/cuda/cublaslt.hpp"

namespace switchback::floating::cuda {

namespace {

namespace products = products::cuda;
using core::cuda::CurrentDevice;
using core::cuda::Runtime;
using core::cuda::runtime;

// The first compute capability with tensor cores for bf16 and tf32.
constexpr int ampere = 80;

std::string unavailable() {
  return products::CublasLt::missing();
}

std::string rejects_tf32(const Problem& p) {
  if (p.input != DType::f32) return "the operands are not f32";
  if (p.compute_capability < ampere) return "tf32 needs compute capability 8.0";
  return {};
}

cudaDataType_t type_of(DType dtype) {
  return dtype == DType::f16 ? CUDA_R_16F : dtype == DType::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

bool is_aligned(const void* data, std::size_t alignment) {
  return reinterpret_cast<std::uintptr_t>(data) % alignment == 0;
}

// A matrix that cuBLASLt reads, and its source if it must be converted first.
struct Staged {
  ConstAnyMatrix matrix;
  ConstAnyMatrix from;
  bool copied = false;
};

Staged stage(core::Workspace::Frame& frame, ConstAnyMatrix m, DType as, std::size_t alignment) {
  Staged staged;
  staged.matrix = staged.from = m;
  staged.copied = m.dtype != as || !is_aligned(m.data, alignment);
  if (staged.copied) {
    auto* bytes =
        frame.take<std::byte>(m.rows * m.cols * static_cast<std::int64_t>(dtype_size_bytes(as)));
    staged.matrix = ConstAnyMatrix(AnyMatrix(bytes, as, m.rows, m.cols, m.cols));
  }
  return staged;
}

void queue_conversion(Runtime& device, const Staged& staged) {
  const ConstAnyMatrix& m = staged.matrix;
  if (staged.copied)
    device.convert(staged.from,
                   AnyMatrix(const_cast<void*>(m.data), m.dtype, m.rows, m.cols, m.stride), false);
}

// The type in which cuBLASLt reads the operands. GPUs before Ampere have no bf16 products, so bf16
// is widened to f32; the product of each pair of factors is the same to the last bit.
DType type_read(const Problem& p) {
  const bool widen = p.input == DType::bf16 && p.compute_capability < ampere;
  return widen ? DType::f32 : p.input;
}

// The product in cuBLASLt's terms, without alignments. Row-major d = op(a) · op(b) is column-major
// dᵀ = op(b)ᵀ · op(a)ᵀ, with all matrices in place.
products::Product product_of(const Problem& p, const Config& config, std::int64_t lda,
                             std::int64_t ldb, std::int64_t ldd, DType sum) {
  products::Product product;
  product.type_a = product.type_b = type_of(type_read(p));
  product.type_d = type_of(sum);
  product.compute =
      config.engine == EngineId::cublaslt_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  product.transpose_a = p.transpose_b;
  product.transpose_b = p.transpose_a;
  product.bias = p.bias;
  product.m = p.n;
  product.n = p.m;
  product.k = p.k;
  product.lda = ldb;
  product.ldb = lda;
  product.ldd = ldd;
  product.choose(config.algorithm, config.cublaslt);
  return product;
}

// The product that a problem is expected to become: operands have the alignment of allocated device
// memory, and a bias has d's type. It serves to judge a configuration before operands exist.
products::Product expected_product(const Problem& p, const Config& config) {
  const DType read = type_read(p);
  const bool as_it_lies = read == p.input;
  const bool in_place = p.output == read || p.output == DType::f32;
  products::Product product =
      product_of(p, config, as_it_lies ? p.lda : (p.transpose_a ? p.m : p.k),
                 as_it_lies ? p.ldb : (p.transpose_b ? p.k : p.n), in_place ? p.ldd : p.n,
                 in_place ? p.output : DType::f32);
  product.accumulate = p.accumulate && in_place;
  product.align_a = product.align_b = product.align_d = products::alignment_of(nullptr);
  return product;
}

std::string invalid_config(const Problem& p, const Config& config, const ContextState& state) {
  return products::refusal(runtime(state), expected_product(p, config));
}

std::string provenance(const Problem& p, const Config& config, const ContextState& state) {
  return products::algorithm_hex(runtime(state), expected_product(p, config));
}

std::int64_t scratch_bytes(const Problem&, const Config& config) {
  return workspace_bytes(config.cublaslt);
}

template <bool all>
void candidates(const Problem& p, const ContextState& state, std::vector<Config>& out) {
  Runtime& device = runtime(state);
  const CurrentDevice current(device.index());
  Config config;
  config.engine = EngineId::cublaslt;
  cublasLtHandle_t handle = products::Plans::of(device).handle();
  const products::Product product = expected_product(p, config);
  for (const products::Candidate& candidate :
       all ? products::all_candidates(handle, product) : products::candidates(handle, product)) {
    config.algorithm = candidate.place;
    config.cublaslt = candidate.choice;
    out.push_back(config);
  }
}

void run(ContextState& state, const Problem& p, const Config& config, const Operands& o) {
  Runtime& device = runtime(state);
  const CurrentDevice current(device.index());
  core::Workspace::Frame frame(state.workspace);
  const DType input = type_read(p);
  const Staged a =
      stage(frame, {o.a, p.input, p.transpose_a ? p.k : p.m, p.transpose_a ? p.m : p.k, p.lda},
            input, dtype_size_bytes(p.input));
  const Staged b =
      stage(frame, {o.b, p.input, p.transpose_b ? p.n : p.k, p.transpose_b ? p.k : p.n, p.ldb},
            input, dtype_size_bytes(p.input));
  const AnyMatrix d(o.d, p.output, p.m, p.n, p.ldd);
  // cuBLASLt adds a bias of its output's type. Rounding another bias to 16 bits first would add an
  // error larger than that of the result. Such a bias is added to f32 sums instead, which costs one
  // more pass over them.
  const bool exact_bias = !p.bias || o.bias.dtype == d.dtype || d.dtype == DType::f32;
  const bool in_place = is_aligned(d.data, dtype_size_bytes(d.dtype)) &&
                        (d.dtype == input || d.dtype == DType::f32) && exact_bias;
  const AnyMatrix sum =
      in_place ? d : AnyMatrix(frame.take<float>(p.m * p.n), DType::f32, p.m, p.n, p.n);
  Staged bias;
  constexpr std::size_t bias_alignment = 16;
  if (p.bias)
    bias = stage(frame, {o.bias.data, o.bias.dtype, 1, p.n, p.n}, sum.dtype, bias_alignment);

  products::Product product =
      product_of(p, config, a.matrix.stride, b.matrix.stride, sum.stride, sum.dtype);
  product.accumulate = p.accumulate && in_place;
  product.align_a = products::alignment_of(b.matrix.data);
  product.align_b = products::alignment_of(a.matrix.data);
  product.align_d = products::alignment_of(sum.data);
  products::Plans& plans = products::Plans::of(device);
  products::Plan& plan = plans.plan(product);
  auto* workspace = frame.take<std::byte>(static_cast<std::int64_t>(plan.workspace_bytes()));

  // All memory is allocated. From here on work is queued on the stream.
  if (device.is_dry_run()) return;
  queue_conversion(device, a);
  queue_conversion(device, b);
  if (p.bias) queue_conversion(device, bias);
  plan.run(plans.handle(), b.matrix.data, a.matrix.data, sum.data, bias.matrix.data, workspace,
           device.cuda_stream());
  if (!in_place) device.convert(sum, d, p.accumulate);
}

}  // namespace

const Engine cublaslt_engine = {
    .id = EngineId::cublaslt,
    .name = "cublaslt",
    .unavailable = unavailable,
    .candidates = candidates<false>,
    .all_candidates = candidates<true>,
    .invalid_config = invalid_config,
    .provenance = provenance,
    .scratch_bytes = scratch_bytes,
    .run = run,
};
const Engine cublaslt_tf32_engine = {
    .id = EngineId::cublaslt_tf32,
    .name = "cublaslt_tf32",
    // Tensor cores truncate a factor after 10 bits of its fraction. The factor gets smaller by less
    // than 2^-10 of itself, and the product by less than 2^-9.
    .factor_error = 0x1p-9,
    .unavailable = unavailable,
    .unsupported = rejects_tf32,
    .invalid_config = invalid_config,
    .provenance = provenance,
    .scratch_bytes = scratch_bytes,
    .run = run,
};

}  // namespace switchback::floating::cuda
