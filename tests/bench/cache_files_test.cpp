// SPDX-License-Identifier: Apache-2.0
// `switchback-bench cache` merge, export, import and prune: what they leave in files.
#include "bench/cache_fixture.hpp"

namespace switchback::bench {
namespace {

TEST_F(Cache, MergeDoesNotDependOnTheOrder) {
  const ConfigQuery query = product();
  const fs::path a = in("a.jsonl"), b = in("b.jsonl"), c = in("c.jsonl");
  write(a, {record(RecordType::winner, query, 0, Effort::normal),
            record(RecordType::sample, query, 0)});
  write(b, {record(RecordType::winner, query, 1, Effort::thorough),
            record(RecordType::sample, query, 0), record(RecordType::winner, product(5))});
  write(c, {record(RecordType::winner, query, 0, Effort::normal, next_day)});
  put(c, content(c) + newer_line(record(RecordType::winner, query)) + "\n");
  std::vector<std::string> names = {a.string(), b.string(), c.string()};
  std::string first;
  do {
    std::vector<std::string> arguments = {"merge", in("out.jsonl").string(), "--force"};
    arguments.insert(arguments.end(), names.begin(), names.end());
    const Result result = run(arguments);
    ASSERT_EQ(result.code, 0) << result.err;
    expect_part(result.out, "2 conflicts");
    expect_part(result.out, "thorough");
    if (first.empty()) first = content(in("out.jsonl"));
    EXPECT_EQ(content(in("out.jsonl")), first);
  } while (std::next_permutation(names.begin(), names.end()));
  EXPECT_EQ(std::count(first.begin(), first.end(), '\n'), 4);
  expect_part(first, "\"v\":2");  // not ours to drop
  EXPECT_FALSE(fs::exists(in("out.jsonl.lock")));

  const std::vector<json> program =
      lines(run({"merge", in("json.jsonl").string(), a.string(), b.string(), "--json"}).out);
  EXPECT_EQ(only(program, "conflict")["kept"]["effort"], "thorough");
  EXPECT_EQ(only(program, "conflict")["dropped"]["speedup"], 1.0);
  EXPECT_EQ(only(program, "merge")["winners"], 2);
}

TEST_F(Cache, MergeOverwritesOnlyWithForceAndTakesDirectories) {
  store({record(RecordType::winner, product())});
  autotune::Store(file(other_machine()))
      .append(std::vector<Record>{foreign(record(RecordType::winner, product()))});
  const std::string out = in("out.jsonl").string();
  ASSERT_EQ(run({"merge", out, cache().string()}).code, 0);
  EXPECT_EQ(read(out).size(), 2u);
  const std::string before = content(out);
  const Result refused = run({"merge", out, cache().string()});
  EXPECT_EQ(refused.code, 2);
  expect_part(refused.err, "OUT " + out + ": the file exists; --force");
  EXPECT_EQ(content(out), before);

  // Into a file that programs append to, itself among the inputs.
  write(in("more.jsonl"), {record(RecordType::winner, product(5))});
  const Result forced =
      run({"merge", file().string(), in("more.jsonl").string(), file().string(), "--force"});
  EXPECT_EQ(forced.code, 0) << forced.err;
  EXPECT_EQ(read(file()).size(), 2u);

  const Result missing = run({"merge", in("new.jsonl").string(), in("none.jsonl").string()});
  EXPECT_EQ(missing.code, 1);
  expect_part(missing.err, "none.jsonl: there is no such file");
  EXPECT_FALSE(fs::exists(in("new.jsonl")));
  EXPECT_EQ(run({"merge", in("new.jsonl").string(), directory_.path().string()}).code, 2);
  EXPECT_EQ(run({"merge", in("no/new.jsonl").string(), out}).code, 1);
  EXPECT_EQ(run({"merge", directory_.path().string(), out, "--force"}).code, 2);
}

TEST_F(Cache, ExportedWinnersAreTheSameWhereTheyAreImported) {
  const ConfigQuery query = product();
  store({record(RecordType::winner, query, 0, Effort::quick), record(RecordType::sample, query, 0),
         record(RecordType::winner, query, 1), record(RecordType::winner, product(5)),
         record(RecordType::tombstone, product(5)), record(RecordType::miss, product(7))});
  const std::string out = in("x.jsonl").string();
  const Result exported = here({"export", out});
  EXPECT_EQ(exported.code, 0) << exported.err;
  expect_part(exported.out, autotune::describe(machine_));
  EXPECT_EQ(read(out).size(), 2u);  // the sample and the better winner
  EXPECT_EQ(here({"export", out}).code, 2);
  ASSERT_EQ(here({"export", out, "--winners", "--force"}).code, 0);
  ASSERT_EQ(read(out).size(), 1u);
  EXPECT_EQ(read(out)[0], record(RecordType::winner, query, 1));

  const std::string other = in("other").string();
  const Result imported = run({"import", out, "--cache", other});
  EXPECT_EQ(imported.code, 0) << imported.err;
  expect_part(imported.out, "1 records added, 0 already there, 0 conflicts, 0 unreadable");
  const json there = lines(here({"list", "--json", "--cache", other}).out).at(0);
  const json was = lines(here({"list", "--json", "--filter", "m=4 "}).out).at(0);
  EXPECT_EQ(there["winner"]["candidate"], was["winner"]["candidate"]);
  EXPECT_EQ(there["usable"], true);
  const json again = lines(run({"import", out, "--cache", other, "--json"}).out).at(0);
  EXPECT_EQ(again["added"], 0);
  EXPECT_EQ(again["known"], 1);

  // The system list takes the same file.
  fs::create_directories(in("system"));
  fs::copy(out, in("system/x.jsonl"));
  const json listed = lines(here({"list", "--json", "--cache", in("empty").string()}).out).at(0);
  EXPECT_EQ(listed["origin"], "system list");
  EXPECT_EQ(listed["usable"], true);
}

TEST_F(Cache, ExportLeavesOutWhatIsInDoubt) {
  const Record doubtful = test::doubtful(record(RecordType::winner, product(), 1));
  const Record sample = test::doubtful(record(RecordType::sample, product(), 1));
  const Record fail = test::doubtful(record(RecordType::fail, product(), 2));
  const Record certain = record(RecordType::winner, product(5));
  store({doubtful, sample, fail, certain});
  const std::string out = in("x.jsonl").string();
  const Result exported = here({"export", out});
  EXPECT_EQ(exported.code, 0) << exported.err;
  expect_part(exported.out, "1 winners are left out: they are in doubt");
  std::vector<Record> records = read(out);
  ASSERT_EQ(records.size(), 2u);
  EXPECT_EQ(std::count(records.begin(), records.end(), fail), 1);
  EXPECT_EQ(std::count(records.begin(), records.end(), certain), 1);

  const json counts = lines(here({"export", out, "--force", "--in-doubt", "--json"}).out).at(0);
  EXPECT_EQ(counts["written"], 4);
  EXPECT_EQ(counts["left_out_in_doubt"], 0);
  // Imported, it is not used, and replaces nothing that is.
  const std::string other = in("other").string();
  const json imported = lines(here({"import", out, "--json", "--cache", other}).out).back();
  EXPECT_EQ(imported["winners"], 2);
  EXPECT_EQ(imported["used_here"], 1);
  EXPECT_EQ(imported["not_used"].size(), 1u);
  const json listed =
      lines(here({"list", "--json", "--filter", "m=4 ", "--cache", other}).out).at(0);
  EXPECT_EQ(listed["usable"], false);
}

TEST_F(Cache, ImportSaysHowManyAreUsedHereAndWhyNotTheOthers) {
  Record kernels = record(RecordType::winner, product(6));
  kernels.env.kernels = "int8 0";
  store({record(RecordType::winner, product(7), 0, Effort::thorough)});
  write(in("in.jsonl"),
        {record(RecordType::winner, product()), record(RecordType::winner, product(5)), kernels,
         foreign(record(RecordType::winner, product())), record(RecordType::sample, product()),
         record(RecordType::winner, product(7), 1),
         test::doubtful(record(RecordType::winner, product(8)))});
  const Result people = here({"import", in("in.jsonl").string()});
  EXPECT_EQ(people.code, 0) << people.err;
  expect_part(people.out, "2 of the 5 winners are used here.");
  expect_part(people.out, "measured with kernels 'int8 0'");
  expect_part(people.out, "of another machine: " + autotune::describe(other_machine()));
  expect_part(people.out, "in doubt");
  const json again =
      lines(run({"import", in("in.jsonl").string(), "--json", "--device", "cpu", "--threads", "2"})
                .out)
          .back();
  EXPECT_EQ(again["used_here"], 0);
  EXPECT_EQ(again["not_used"]["of another machine: " + autotune::describe(other_machine())], 1);
}

TEST_F(Cache, ImportPutsRecordsIntoTheFolderOfTheirMachine) {
  store({record(RecordType::winner, product(), 1, Effort::thorough)});
  Record unknown = record(RecordType::winner, product());
  unknown.key = autotune::make_key(R"({"backend":"cpu","op":"sort"})");
  write(in("in.jsonl"),
        {record(RecordType::winner, product(), 0), foreign(record(RecordType::winner, product())),
         record(RecordType::winner, product(5)), record(RecordType::miss, product(6)), unknown});
  const json counts = lines(run({"import", in("in.jsonl").string(), "--json"}).out).back();
  EXPECT_EQ(counts["added"], 2);
  EXPECT_EQ(counts["known"], 0);
  EXPECT_EQ(counts["conflicts"], 1);
  EXPECT_EQ(counts["other_wins"], 1);
  EXPECT_EQ(counts["unreadable"], 1);
  EXPECT_EQ(counts["misses"], 1);
  ASSERT_EQ(read(file(other_machine())).size(), 1u);
  EXPECT_EQ(read(file(other_machine()))[0], foreign(record(RecordType::winner, product())));
  EXPECT_EQ(read(file()).size(), 2u);
  EXPECT_EQ(run({"verify"}).code, 0);
  // An export of all machines has both.
  ASSERT_EQ(here({"export", in("all.jsonl").string(), "--all"}).code, 0);
  EXPECT_EQ(read(in("all.jsonl")).size(), 3u);
  expect_part(here({"list", "--all"}).out, "999 cores");
}

TEST_F(Cache, ImportWritesNothingIfAFileCannotBeRead) {
  write(in("good.jsonl"), {record(RecordType::winner, product())});
  fs::create_directories(in("folder.jsonl"));
  for (const std::string bad : {"folder.jsonl", "none.jsonl"}) {
    const Result result = run({"import", in("good.jsonl").string(), in(bad).string()});
    EXPECT_NE(result.code, 0);
    expect_part(result.err, bad);
    EXPECT_FALSE(fs::exists(cache()));
  }
  // A cache that cannot be written: its directory is a file.
  put(in("file"), "mine\n");
  const Result result = run({"import", in("good.jsonl").string(), "--cache", in("file").string()});
  EXPECT_EQ(result.code, 1);
  expect_part(result.err, in("file").string());
  EXPECT_EQ(content(in("file")), "mine\n");
}

// A script that carries the wrong file sees it.
TEST_F(Cache, GarbageIsAnErrorAndMakesNoFile) {
  put(in("garbage"), "not a record\nnor this\n");
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"import", in("garbage").string()},
           {"merge", in("out.jsonl").string(), in("garbage").string()}}) {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, 1) << arguments[0];
    expect_part(result.err, in("garbage").string() + ": there is no record in it");
  }
  EXPECT_FALSE(fs::exists(in("out.jsonl")));
  EXPECT_FALSE(fs::exists(cache()));
  // What can be read is taken all the same.
  write(in("good.jsonl"), {record(RecordType::winner, product())});
  put(in("half.jsonl"), content(in("good.jsonl")) + "noise\n");
  const Result half = run({"import", in("half.jsonl").string(), "--json"});
  EXPECT_EQ(half.code, 1);
  EXPECT_EQ(lines(half.out).back()["added"], 1);
  EXPECT_EQ(lines(half.out).back()["unreadable"], 1);
  const Result merged = run({"merge", in("out.jsonl").string(), in("half.jsonl").string()});
  EXPECT_EQ(merged.code, 1);
  expect_part(merged.out, "1 lines of them cannot be read");
  EXPECT_EQ(read(in("out.jsonl")).size(), 1u);
  // An empty file is nothing wrong.
  put(in("empty.jsonl"), "");
  EXPECT_EQ(run({"import", in("empty.jsonl").string()}).code, 0);
  EXPECT_EQ(run({"merge", in("none.jsonl").string(), in("empty.jsonl").string()}).code, 0);
  EXPECT_FALSE(fs::exists(in("none.jsonl")));
}

TEST_F(Cache, ImportHonoursWhatWasForgottenSince) {
  const ConfigQuery query = product();
  store({record(RecordType::tombstone, query, 0, Effort::normal, day)});
  write(in("old.jsonl"),
        {record(RecordType::winner, query, 0, Effort::normal, "2026-01-01T00:00:00Z")});
  write(in("new.jsonl"), {record(RecordType::winner, query, 1, Effort::normal, next_day)});
  const Result old = run({"import", in("old.jsonl").string()});
  expect_part(old.out, "0 records added");
  expect_part(old.out, "1 were left out: their keys were forgotten here since");
  EXPECT_EQ(lines(run({"import", in("new.jsonl").string(), "--json"}).out).back()["added"], 1);
  EXPECT_EQ(lines(here({"list", "--json"}).out).at(0)["usable"], true);
  const json forced =
      lines(run({"import", in("old.jsonl").string(), "--forgotten", "--json"}).out).back();
  EXPECT_EQ(forced["forgotten"], 0);

  // The other way round: a tombstone of theirs does not bury what was measured here later.
  write(in("theirs.jsonl"), {record(RecordType::tombstone, query, 0, Effort::normal, day)});
  ASSERT_EQ(run({"import", in("theirs.jsonl").string()}).code, 0);
  EXPECT_EQ(lines(here({"list", "--json"}).out).at(0)["winner"]["time"], next_day);
}

TEST_F(Cache, PruneCompacts) {
  store({record(RecordType::winner, product(), 0, Effort::quick),
         record(RecordType::sample, product()), record(RecordType::winner, product(), 1)});
  put(file(), content(file()) + "noise\n");
  const std::string before = content(file());
  const Result dry = here({"prune", "--dry-run"});
  EXPECT_EQ(dry.code, 0) << dry.err;
  expect_part(dry.out, "2 lines would be dropped");
  EXPECT_EQ(content(file()), before);
  const json would = lines(here({"prune", "--dry-run", "--json"}).out).at(0);
  const json done = lines(here({"prune", "--json"}).out).at(0);
  EXPECT_EQ(would["bytes_after"], done["bytes_after"]);
  EXPECT_EQ(would["dropped"], done["dropped"]);
  EXPECT_EQ(done["dropped"], 2);
  EXPECT_EQ(done["bytes_before"], before.size());
  EXPECT_EQ(done["bytes_after"], fs::file_size(file()));
  EXPECT_EQ(read(file()).size(), 2u);
  expect_part(here({"prune"}).out, "0 lines dropped");
}

TEST_F(Cache, PruneDropsSamplesOldAndStaleRecords) {
  Record stale = record(RecordType::winner, product(5));
  stale.candidate = record(RecordType::winner, product(5), 0).candidate;
  stale.env.kernels = "int8 0";
  // A library that its engine does not use is no reason.
  Record usable = record(RecordType::winner, product(6), 0);
  usable.env.openblas += " of last year";
  const Record old =
      record(RecordType::winner, product(7), 0, Effort::normal, "2001-01-01T00:00:00Z");
  Record recent = record(RecordType::winner, product(), 1);
  recent.time = autotune::time_now();
  stale.time = usable.time = recent.time;
  store({recent, record(RecordType::sample, product()), stale, usable, old});
  put(file(), content(file()) + newer_line(recent) + "\n");
  const json would =
      lines(here({"prune", "--stale", "--older-than", "36500", "--dry-run", "--json"}).out).at(0);
  EXPECT_EQ(would["stale"], 1);
  EXPECT_EQ(would["older"], 0);
  const json samples = lines(here({"prune", "--samples", "--json"}).out).at(0);
  EXPECT_EQ(samples["samples"], 1);
  EXPECT_EQ(samples["dropped"], 1);
  const json rest = lines(here({"prune", "--stale", "--older-than", "365", "--json"}).out).at(0);
  EXPECT_EQ(rest["stale"], 1);
  EXPECT_EQ(rest["older"], 1);
  EXPECT_EQ(rest["bytes_after"], fs::file_size(file()));
  expect_part(content(file()), "\"v\":2");
  const json list = only(lines(here({"list", "--json"}).out), "summary");
  EXPECT_EQ(list["keys"], 2);
}

TEST_F(Cache, PruneForgetsAKeyOfAnyMachine) {
  const Record theirs = foreign(record(RecordType::winner, product()));
  autotune::Store(file(other_machine())).append(std::vector<Record>{theirs});
  store({record(RecordType::winner, product())});
  const std::string key = theirs.key.sha;
  const std::string before = content(file(other_machine()));
  EXPECT_EQ(here({"prune", "--key", key, "--dry-run"}).code, 0);
  EXPECT_EQ(content(file(other_machine())), before);
  const Result result = here({"prune", "--key", key.substr(0, 10)});
  EXPECT_EQ(result.code, 0) << result.err;
  expect_part(result.out, "forgot " + key.substr(0, 12));
  const std::vector<Record> left = read(file(other_machine()));
  ASSERT_EQ(left.size(), 1u);
  EXPECT_EQ(left[0].type, RecordType::tombstone);
  EXPECT_EQ(read(file()).size(), 1u);
}

}  // namespace
}  // namespace switchback::bench
