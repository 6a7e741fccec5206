// SPDX-License-Identifier: Apache-2.0
#include "capi/guard.hpp"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>

#include "capi/arguments.hpp"

namespace switchback::capi {
namespace {

template <class Thrown>
switchback_status status_after(const Thrown& thrown) {
  return guard([&] { throw thrown; });
}

TEST(Guard, SuccessIsZeroAndKeepsTheMessage) {
  EXPECT_EQ(status_after(Error(Status::io_error, "the disk")), SWITCHBACK_IO_ERROR);
  EXPECT_EQ(guard([] {}), SWITCHBACK_OK);
  EXPECT_STREQ(switchback_last_error(), "the disk");
}

TEST(Guard, EveryStatusCrosses) {
  for (std::int32_t s = SWITCHBACK_INVALID_ARGUMENT; s <= SWITCHBACK_INTERNAL; ++s) {
    const std::string message = "message " + std::to_string(s);
    EXPECT_EQ(status_after(Error(static_cast<Status>(s), message)), s);
    EXPECT_EQ(switchback_last_error(), message);
  }
}

TEST(Guard, AnErrorIsNeverSuccess) {
  EXPECT_EQ(status_after(Error(Status::ok, "odd")), SWITCHBACK_INTERNAL);
}

TEST(Guard, OtherExceptionsAreMapped) {
  EXPECT_EQ(status_after(std::bad_alloc()), SWITCHBACK_OUT_OF_MEMORY);
  EXPECT_NE(std::string(switchback_last_error()).find("memory"), std::string::npos);
  EXPECT_EQ(status_after(std::bad_array_new_length()), SWITCHBACK_OUT_OF_MEMORY);
  EXPECT_EQ(status_after(std::length_error("too long")), SWITCHBACK_OUT_OF_MEMORY);
  EXPECT_EQ(status_after(std::runtime_error("surprise")), SWITCHBACK_INTERNAL);
  EXPECT_STREQ(switchback_last_error(), "surprise");
  EXPECT_EQ(status_after(42), SWITCHBACK_INTERNAL);
  EXPECT_STREQ(switchback_last_error(), "an exception of unknown type");
}

TEST(Guard, LongMessagesAreCut) {
  for (const std::size_t length : {1022u, 1023u, 1024u, 100000u}) {
    failed(Status::internal, std::string(length, 'm').c_str());
    const std::string kept = last_error();
    EXPECT_EQ(kept.size(), std::min<std::size_t>(length, 1023));
    EXPECT_EQ(kept.ends_with("..."), length > 1023);
  }
}

TEST(Guard, TheLastMessageCanBeReportedAgain) {
  failed(Status::internal, "first");
  failed(Status::internal, switchback_last_error());
  EXPECT_STREQ(switchback_last_error(), "first");
}

// A struct to which a newer version of the header has added its last member.
struct Grown {
  std::size_t struct_size;
  std::int64_t old_member;
  std::int64_t new_member;
};

}  // namespace

template <>
inline constexpr std::size_t first_size<Grown> = offsetof(Grown, new_member);

namespace {

TEST(Structs, OlderOnesLackMembers) {
  Grown given = {offsetof(Grown, new_member), 5, 7};
  Grown read = read_struct("op", "given", &given);
  EXPECT_EQ(read.old_member, 5);
  EXPECT_EQ(read.new_member, 0);
  read.old_member = read.new_member = 9;
  write_struct(read, &given);
  EXPECT_EQ(given.old_member, 9);
  EXPECT_EQ(given.new_member, 7);
  given.struct_size = sizeof(Grown);
  EXPECT_EQ(read_struct("op", "given", &given).new_member, 7);
  given.struct_size = offsetof(Grown, new_member) - 1;
  EXPECT_THROW(read_struct("op", "given", &given), Error);
}

}  // namespace
}  // namespace switchback::capi
