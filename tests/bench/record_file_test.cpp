// SPDX-License-Identifier: Apache-2.0
#include "bench/workload/record_file.hpp"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "bench/run/log.hpp"
#include "bench/run/record.hpp"
#include "bench/workload/output.hpp"
#include "support/temporary_directory.hpp"
#include "switchback/error.hpp"

namespace switchback::bench {
namespace {

constexpr std::string_view start = "{\"repeat\":";

void check(std::string_view line) {
  parse_record(line);
}

std::string line_of(std::int64_t batch_size) {
  Record record;
  record.repeat = 3;
  record.shape = case_of_shape(batch_size, 8, 16);
  for (auto& time : record.times_ms)
    time = 0.25;
  return to_line(record);
}

class RecordFile : public testing::Test {
 protected:
  void put(const std::string& text) const { std::ofstream(path, std::ios::binary) << text; }
  [[nodiscard]] std::string content() const { return read_file(path); }
  [[nodiscard]] LineFile open(OpenMode mode) const { return LineFile(path, mode, start, check); }

  /// Opening the file must throw an Error of this status with `part` in its message, and must not
  /// change the file.
  void expect_refused(OpenMode mode, Status status, const std::string& part) const {
    const std::string before = content();
    try {
      (void)open(mode);
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), status);
      EXPECT_NE(std::string(error.what()).find(part), std::string::npos) << error.what();
    }
    EXPECT_EQ(content(), before);
  }

  test::TemporaryDirectory directory;
  std::string path = directory / "a.jsonl";
};

TEST_F(RecordFile, CreatesAndWritesWholeLines) {
  {
    LineFile file = open(OpenMode::create);
    file.reserve(1 << 20);
    file.write(line_of(1));
    file.write(line_of(2));
  }
  EXPECT_EQ(content(), line_of(1) + "\n" + line_of(2) + "\n");
}

TEST_F(RecordFile, ReservedRoomIsGivenBack) {
  { open(OpenMode::create).reserve(1 << 22); }
  struct stat status {};
  ASSERT_EQ(::stat(path.c_str(), &status), 0);
  EXPECT_EQ(status.st_size, 0);
  EXPECT_EQ(status.st_blocks, 0);
}

TEST_F(RecordFile, NothingIsOverwritten) {
  put(line_of(1) + "\n");
  expect_refused(OpenMode::create, Status::invalid_argument, "--append");
  expect_refused(OpenMode::create, Status::invalid_argument, "--resume");
  put("");
  EXPECT_NO_THROW(open(OpenMode::create));
}

TEST_F(RecordFile, AppendsBehindWhatIsThere) {
  put(line_of(1) + "\n");
  {
    LineFile file = open(OpenMode::append);
    EXPECT_EQ(file.lines(), std::vector<std::string>{line_of(1)});
    EXPECT_TRUE(file.notes().empty());
    file.write(line_of(2));
    EXPECT_EQ(content(), line_of(1) + "\n" + line_of(2) + "\n");  // before it is closed
  }
}

TEST_F(RecordFile, CutsATornTailOfAnyLengthAndSaysWhere) {
  const std::string whole = line_of(1) + "\n";
  const std::string next = line_of(2);
  for (std::size_t length = 1; length < next.size(); length += 7) {
    put(whole + next.substr(0, length));
    LineFile file = open(OpenMode::append);
    ASSERT_EQ(file.notes().size(), 1u) << length;
    EXPECT_EQ(file.notes()[0],
              path + ":2: an incomplete line of " + std::to_string(length) + " bytes was removed");
    EXPECT_EQ(content(), whole);
  }
  put(whole + next.substr(0, 40) + "\n");  // a torn line with a newline after it
  { EXPECT_EQ(open(OpenMode::append).notes().size(), 1u); }
  EXPECT_EQ(content(), whole);
  put(whole + std::string(100, '\0'));  // zeros, as a lost write leaves them
  { EXPECT_EQ(open(OpenMode::append).notes().size(), 1u); }
  EXPECT_EQ(content(), whole);
}

TEST_F(RecordFile, AWholeLastLineOnlyGetsItsNewline) {
  put(line_of(1));
  {
    LineFile file = open(OpenMode::append);
    EXPECT_EQ(file.lines().size(), 1u);
    EXPECT_EQ(file.notes().size(), 1u);
  }
  EXPECT_EQ(content(), line_of(1) + "\n");
}

TEST_F(RecordFile, ForeignContentIsLeftUntouched) {
  for (const std::string& text :
       {std::string("hello"), std::string("hello\n"), std::string("{\"repeat\": 1}\n"),
        std::string("{\"repeat\": 1}"), line_of(1) + "\nhello", line_of(1) + "\nhello\n",
        line_of(1) + "\n\n", "a,b\n" + line_of(1) + "\n",
        line_of(1).substr(0, 50) + "\n" + line_of(1) + "\n"}) {
    put(text);
    expect_refused(OpenMode::append, Status::invalid_argument, path + ":");
  }
}

TEST_F(RecordFile, ASecondWriterIsRefused) {
  const LineFile first = open(OpenMode::create);
  expect_refused(OpenMode::append, Status::io_error, path);
}

TEST_F(RecordFile, UnwritablePlacesAreFoundWhenOpened) {
  for (const std::string& bad :
       std::vector<std::string>{directory.path(), directory / "no/such/x.jsonl", "/dev/full"})
    try {
      LineFile(bad, OpenMode::create, start, check);
      FAIL() << bad;
    } catch (const Error& error) {
      EXPECT_EQ(error.status(), Status::io_error);
      EXPECT_NE(std::string(error.what()).find(bad), std::string::npos) << error.what();
    }
  LineFile null("/dev/null", OpenMode::create, start, check);
  EXPECT_FALSE(null.regular());
  null.write("x");
}

// A file size limit simulates a disk that fills up in the middle of a line.
TEST_F(RecordFile, AWriteThatFailsHalfWayLeavesWhatWasThere) {
  LineFile file = open(OpenMode::create);
  file.write(line_of(1));
  const std::string before = content();
  struct rlimit limit {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &limit), 0);
  struct rlimit low = limit;
  low.rlim_cur = before.size() + 20;
  const auto previous = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  EXPECT_THROW(file.write(line_of(2)), Error);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  std::signal(SIGXFSZ, previous);
  EXPECT_EQ(content(), before);
  file.write(line_of(3));
  EXPECT_EQ(content(), before + line_of(3) + "\n");
}

TEST(RunLog, LiesBesideTheRecords) {
  EXPECT_EQ(run_log_path("a/b.jsonl"), "a/b.run.jsonl");
  EXPECT_EQ(run_log_path("a/b"), "a/b.run.jsonl");
}

TEST(RunLog, ReadsBackWhatReportsNeedAndPassesOverTheRest) {
  const RunLog log = parse_run_log(
      {R"({"type":"run_start","machine":{"device":"cpu","cpu":"X","isa":"avx2","threads":2},"dtype":"f32","ceilings":{"s8_tops":1.5,"f32_tflops":0.5}})",
       R"({"type":"case","id":"1x2x3","fwd_packed_ms":0.5,"standard_fwd_packed_ms":2})",
       R"({"type":"case","id":"1x2x4","fwd_packed_ms":null})", R"({"type":"new"})", "[]", "torn{"});
  EXPECT_EQ(log.s8_tops, 1.5);
  EXPECT_EQ(log.f32_tflops, 0.5);
  EXPECT_EQ(log.machine, "X, avx2, 2 threads, f32");
  EXPECT_EQ(log.fwd_packed_ms, (std::map<std::string, double>{{"1x2x3", 0.5}}));
  EXPECT_EQ(log.standard_fwd_packed_ms, (std::map<std::string, double>{{"1x2x3", 2.0}}));
  EXPECT_EQ(log.setting.size(), 5u);
}

}  // namespace
}  // namespace switchback::bench
