// SPDX-License-Identifier: Apache-2.0
// Calls every function of the C ABI that returns a status, with its first, second, ... allocation
// failing: only that one, or all from there on. Each time the status is out_of_memory, and every
// byte of every output is unchanged. The same call, repeated, gives the same result as without a
// failure. A function that the header declares and that has no case here fails the test.
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <thread>

#include "capi/calls.hpp"
#include "capi/failing_allocations.hpp"
#include "switchback/switchback.h"

namespace switchback::test {
namespace {

// Runs f in a new thread, so that libraries allocate again what they keep for each thread.
template <class F>
void in_new_thread(const F& f) {
  std::thread(f).join();
}

// Runs the case while only `allowed` allocations succeed. Returns false if no allocation was
// refused.
bool run_with(const Case& c, const Bytes& want, long allowed, Refuse how) {
  bool was_refused = false;
  in_new_thread([&] {
    SCOPED_TRACE(c.function + " " + c.what + ", allocation " + std::to_string(allowed) +
                 (how == Refuse::once ? " alone" : " and all after it"));
    World world(c.threads);
    c.prepare(world);
    const Bytes before = world.written();
    refuse_allocations(allowed, how);
    switchback_status status = world.call();
    was_refused = stop_refusing();
    // A call may succeed without an optional allocation; its results must then be the usual ones.
    if (was_refused && status != SWITCHBACK_OK) {
      EXPECT_EQ(status, SWITCHBACK_OUT_OF_MEMORY) << switchback_last_error();
      EXPECT_STRNE(switchback_last_error(), "");
      EXPECT_TRUE(world.written() == before) << "an output was changed";
      world.look_unchanged();
      status = world.call();
    }
    EXPECT_EQ(status, SWITCHBACK_OK) << switchback_last_error();
    world.look();
    EXPECT_TRUE(world.makes_addresses || world.written() == want)
        << "the results are not those of an undisturbed call";
  });
  return was_refused;
}

void sweep(const Case& c) {
  Bytes want;
  in_new_thread([&] {
    World world(c.threads);
    c.prepare(world);
    expect_ok(world.call());
    world.look();
    want = world.written();
  });
  for (const Refuse how : {Refuse::once, Refuse::from_then})
    for (long allowed = how == Refuse::once ? 0 : sample_step / 2;; allowed += sample_step) {
      ASSERT_LT(allowed, 2000) << "it never succeeds";
      if (!run_with(c, want, allowed, how) || ::testing::Test::HasFailure()) break;
    }
}

class OutOfMemoryIn : public ::testing::TestWithParam<Cases (*)()> {};

TEST_P(OutOfMemoryIn, NothingIsChangedAndTheCallCanBeRepeated) {
  for (const Case& c : GetParam()()) {
    sweep(c);
    if (HasFailure()) return;  // one failing case is report enough
  }
}

INSTANTIATE_TEST_SUITE_P(Functions, OutOfMemoryIn, ::testing::ValuesIn(all_cases));

TEST(OutOfMemoryFunctions, EveryFunctionThatReturnsAStatusHasACase) {
  std::string header;
  for (const char* const name : {"switchback.h", "switchback_groups.h"}) {
    std::ifstream file(std::string(SWITCHBACK_C_HEADERS) + name);
    header.append(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  // switchback_context_set_stream has no case: it does nothing except on CUDA.
  std::set<std::string> covered = {"switchback_context_set_stream"};
  for (const auto cases : all_cases)
    for (const Case& c : cases())
      covered.insert(c.function);
  const std::regex declaration("SWITCHBACK_API switchback_status\\s+(switchback_\\w+)\\(");
  std::set<std::string> declared;
  for (std::sregex_iterator at(header.begin(), header.end(), declaration), end; at != end; ++at)
    declared.insert((*at)[1]);
  EXPECT_GE(declared.size(), 35u);
  for (const std::string& function : declared)
    EXPECT_TRUE(covered.contains(function)) << function << " has no case in calls_of_*.cpp";
  for (const std::string& function : covered)
    EXPECT_TRUE(declared.contains(function)) << function << " is not declared";
}

}  // namespace
}  // namespace switchback::test
