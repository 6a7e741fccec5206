// SPDX-License-Identifier: Apache-2.0
#include "measure/matrix.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "core/context_state.hpp"
#include "measure/data.hpp"
#include "measure/source_scope.hpp"
#include "support/contexts.hpp"

namespace switchback::measure {
namespace {

// On every device, matrices hold the same data, also after copies on the device and to the host.
TEST(OwnedMatrix, HoldsTheSameDataOnEveryContext) {
  for (const ContextOptions& on : test::all_contexts()) {
    Context context(on);
    for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::s8}) {
      Context cpu;
      const Matrix want(dtype, 5, 7);
      const Matrix got(context, dtype, 5, 7, 9, 1);
      fill_random(cpu, want.any(), 3);
      fill_random(context, got.any(), 3);
      EXPECT_EQ(difference(context, got.any(), want.any()), "") << test::describe(on);
      const Matrix again = copy_of(context, got);
      EXPECT_EQ(again.any().stride, 9);
      EXPECT_EQ(again.alignment(), 1);
      EXPECT_EQ(difference(context, again.any(), want.any()), "");
      EXPECT_EQ(difference(cpu, host_copy(context, got.any()).any(), want.any()), "");
    }
  }
}

// A device fills a matrix with random data by repeating a block. These matrices have two and a half
// blocks.
TEST(OwnedMatrix, ADeviceRepeatsRandomDataAsTheHostDoes) {
  for (const ContextOptions& on : test::all_contexts()) {
    Context context(on), cpu;
    for (const DType dtype : {DType::bf16, DType::s8}) {
      const Matrix want(dtype, 1021, 2567);
      const Matrix got(context, dtype, 1021, 2567, 0, 1);
      fill_random(cpu, want.any(), 4);
      fill_random(context, got.any(), 4);
      EXPECT_EQ(difference(context, got.any(), want.any()), "") << test::describe(on);
    }
  }
}

TEST(OwnedMatrix, FillsThatKnowTheDeviceAreThoseOfTheHost) {
  for (const ContextOptions& on : test::all_contexts()) {
    Context context(on), cpu;
    const Matrix normal(DType::f32, 3, 70), codes(DType::s8, 3, 70), scales(DType::f32, 1, 70);
    const Matrix normal_d(context, DType::f32, 3, 70, 80), codes_d(context, DType::s8, 3, 70, 80),
        scales_d(context, DType::f32, 1, 70);
    fill_normal(cpu, normal.any(), 1, 2.0f);
    fill_normal(context, normal_d.any(), 1, 2.0f);
    fill_codes(cpu, codes.view<std::int8_t>(), 2);
    fill_codes(context, codes_d.view<std::int8_t>(), 2);
    fill_scales(cpu, scales.floats(), 3);
    fill_scales(context, scales_d.floats(), 3);
    EXPECT_EQ(difference(context, normal_d.any(), normal.any()), "");
    EXPECT_EQ(difference(context, codes_d.any(), codes.any()), "");
    EXPECT_EQ(difference(context, scales_d.any(), scales.any()), "");
    for (const float scale : scales.floats()) {
      EXPECT_GE(scale, 0.5f);
      EXPECT_LT(scale, 1.5f);
    }
  }
}

TEST(OwnedMatrix, PoisonIsWhatNoOperationWritesAndStaysInside) {
  for (const ContextOptions& on : test::all_contexts()) {
    Context context(on);
    const Matrix floats(context, DType::bf16, 2, 3), codes(context, DType::s8, 2, 3),
        sums(context, DType::s32, 2, 3);
    for (const Matrix* m : {&floats, &codes, &sums})
      poison(context, m->any());
    const Matrix f = to_host(context, floats), q = to_host(context, codes),
                 s = to_host(context, sums);
    EXPECT_TRUE(std::isnan(element(f.any(), 1, 2)));
    EXPECT_EQ(element(q.any(), 0, 1), -128);
    EXPECT_EQ(element(s.any(), 1, 0), -1);
  }
  // poison() must not write between the rows of a matrix: that memory may belong to other objects.
  Context cpu;
  std::vector<float> elements(8, 1.0f);
  poison(cpu, AnyMatrix(elements.data(), DType::f32, 2, 3, 4));
  EXPECT_TRUE(std::isnan(elements[2]));
  EXPECT_EQ(elements[3], 1.0f);
}

TEST(OwnedMatrix, DifferencesHaveAPlaceAndBothValues) {
  Context context;
  const Matrix want(DType::s32, 2, 3);
  for (std::int32_t& value : want.values<std::int32_t>())
    value = 4;
  const Matrix got = copy_of(context, want);
  EXPECT_EQ(difference(context, got.any(), want.any()), "");
  got.values<std::int32_t>()[4] = 5;
  EXPECT_EQ(difference(context, got.any(), want.any()), "element (1,1) is 5, not 4");
}

TEST(OwnedMatrix, OnTheHostElementsAreNotCopied) {
  Context context;
  const Matrix m(context, DType::f32, 2, 2);
  EXPECT_EQ(to_host(context, m).data(), m.data());
  EXPECT_NE(host_copy(context, m.any()).data(), m.data());
  EXPECT_TRUE(Matrix(context, DType::f32, 0, 5).empty());
}

class Nothing final : public ConfigSource {
 public:
  bool find(const ConfigQuery&, const ContextState&, ConfigChoice&) const override { return false; }
};

TEST(OwnedMatrix, AScopeGivesTheSourceBack) {
  Context context;
  const auto before = std::make_shared<Nothing>();
  context.set_config_source(before);
  {
    const SourceScope scope(context, std::make_shared<Nothing>());
    EXPECT_NE(context.state().config_source, before);
  }
  EXPECT_EQ(context.state().config_source, before);
}

}  // namespace
}  // namespace switchback::measure
