// SPDX-License-Identifier: Apache-2.0
// `switchback-bench cache` path, list, show, explain and verify: what they print and how they end.
#include <cstdlib>

#include "bench/cache_fixture.hpp"
#include "linear/mode.hpp"

namespace switchback::bench {
namespace {

TEST_F(Cache, AnEmptyCacheIsNoError) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"list"},
                                             {"verify"},
                                             {"verify", "--run"},
                                             {"prune"},
                                             {"export", in("x.jsonl").string()}}) {
    const Result result = here(arguments);
    EXPECT_EQ(result.code, 0) << arguments[0] << result.err;
    expect_part(result.out, "There is nothing in the cache");
    EXPECT_EQ(result.err, "");
  }
  EXPECT_FALSE(fs::exists(in("x.jsonl")));
  EXPECT_FALSE(fs::exists(cache()));
  EXPECT_EQ(only(lines(here({"list", "--json"}).out), "summary")["keys"], 0);
}

TEST_F(Cache, PathSaysWhereEverythingIsAndWhatSaysSo) {
  store({record(RecordType::winner, product())});
  put(in("system/list.jsonl"), "");
  const Result people = here({"path"});
  EXPECT_EQ(people.code, 0) << people.err;
  expect_part(people.out, file().string());
  expect_part(people.out, in("system/list.jsonl").string());
  expect_part(people.out, "SWITCHBACK_TUNE_SYSTEM");
  expect_part(people.out, "not there yet");  // the file of misses
  const json program = lines(here({"path", "--json", "--cache", in("other").string()}).out).at(0);
  EXPECT_EQ(program["places"][0]["path"], in("other").string());
  EXPECT_EQ(program["places"][0]["set_by"], "--cache");
  EXPECT_EQ(program["places"][1]["exists"], false);
  EXPECT_EQ(program["variables"]["SWITCHBACK_TUNE_CACHE"], cache().string());
}

// The list that was installed is found however the program was started.
TEST_F(Cache, TheSystemListIsFoundByAnyName) {
  const fs::path program = SWITCHBACK_BENCH_PROGRAM;
  const fs::path link = in("other-name");
  fs::create_symlink(program, link);
  const auto list_of = [&](const std::string& command) {
    const std::string shell = fmt::format(
        "unset SWITCHBACK_TUNE_SYSTEM; cd /; PATH={}:{}:$PATH; {} cache path --json > {}",
        program.parent_path().string(), in("").string(), command, in("out").string());
    EXPECT_EQ(std::system(shell.c_str()), 0) << shell;
    const json path = lines(content(in("out"))).at(0);
    for (const json& place : path["places"])
      if (place["what"] == "system list") return place["path"].get<std::string>();
    return std::string();
  };
  const std::string list = list_of(program.string());
  EXPECT_TRUE(list.ends_with("share/switchback/configs")) << list;
  EXPECT_EQ(list_of(program.filename().string()), list);
  EXPECT_EQ(list_of(link.string()), list);
  EXPECT_EQ(list_of("other-name"), list);
}

TEST_F(Cache, AModeThatIsNoneIsNamed) {
  const std::string shell = fmt::format("SWITCHBACK_TUNE=bogus {} cache path --cache {} > {} 2> {}",
                                        SWITCHBACK_BENCH_PROGRAM, cache().string(),
                                        in("out").string(), in("err").string());
  EXPECT_EQ(std::system(shell.c_str()), 0);
  expect_part(content(in("err")), "mode 'bogus' is not one of off, read, record, tune, require");
  expect_part(content(in("out")), "bogus (no mode: off, read, record, tune or require)");
}

TEST_F(Cache, ListHasALineForEachKey) {
  const ConfigQuery first = product();
  store({record(RecordType::winner, first, 1), record(RecordType::sample, first, 0),
         record(RecordType::winner, product(5)), record(RecordType::tombstone, product(5))});
  Record unknown = record(RecordType::winner, product());
  unknown.key = autotune::make_key(R"({"backend":"cpu","op":"sort"})");
  store({unknown});
  write(in("system/list.jsonl"),
        {record(RecordType::winner, product(6)), foreign(record(RecordType::winner, product(6)))});
  const Result people = here({"list"});
  EXPECT_EQ(people.code, 0) << people.err;
  expect_part(people.out, record(RecordType::winner, first).key.sha.substr(0, 12));
  expect_part(people.out, autotune::describe(first));
  expect_part(people.out, "2.00x");
  expect_part(people.out, "(forgotten)");
  expect_part(people.out, "cannot be read here: ");
  expect_part(people.out, "system list");
  expect_part(people.out, "4 keys in " + file().string());

  const std::vector<json> program = lines(here({"list", "--json"}).out);
  ASSERT_EQ(program.size(), 5u);
  EXPECT_EQ(program[0]["winner"]["candidate"]["engine"],
            record(RecordType::winner, first, 1).candidate.engine);
  EXPECT_EQ(program[0]["winner"]["line"], 1);
  EXPECT_EQ(program[0]["winner"]["speedup"], 2.0);
  EXPECT_EQ(program[0]["usable"], true);
  EXPECT_FALSE(program[1].contains("winner"));
  EXPECT_TRUE(program[2].contains("unreadable"));
  EXPECT_EQ(program[3]["origin"], "system list");
  EXPECT_EQ(only(lines(here({"list", "--json", "--all"}).out), "summary")["keys"], 5);
  EXPECT_EQ(only(lines(here({"list", "--json", "--op", "quantize"}).out), "summary")["shown"], 0);
  EXPECT_EQ(only(lines(here({"list", "--json", "--filter", "m=4 "}).out), "summary")["shown"], 1);
  expect_part(run({"list", "--device", "cpu", "--threads", "2"}).out, "of another Context:");
}

TEST_F(Cache, LinesThatCannotBeReadAreNamed) {
  store({record(RecordType::winner, product())});
  put(file(),
      content(file()) + "noise\n" + newer_line(record(RecordType::winner, product())) + "\n");
  const Result result = here({"list"});
  EXPECT_EQ(result.code, 0);
  expect_part(result.out, "2 lines were skipped");
  expect_part(result.err, file().string() + ":2: it is no record in JSON");
  expect_part(result.err, file().string() + ":3: schema version 2");
  EXPECT_EQ(only(lines(here({"list", "--json"}).out), "skipped")["line"], 2);
}

TEST_F(Cache, ShowHasEverythingOfAKey) {
  const ConfigQuery query = product();
  // Where there are only two candidates, the one that wins.
  const std::size_t third = std::min<std::size_t>(2, choices(query).size() - 1);
  Record slow = record(RecordType::sample, query, 0);
  Record fast = record(RecordType::sample, query, 1);
  fast.env.kernels = slow.env.kernels = "";
  store({record(RecordType::sample, query, third, Effort::quick, "2025-01-01T00:00:00Z"),
         record(RecordType::tombstone, query), slow, fast, record(RecordType::fail, query, third),
         record(RecordType::winner, query, 1)});
  const std::string sha = slow.key.sha;
  const Result people = here({"show", sha.substr(0, 6)});
  EXPECT_EQ(people.code, 0) << people.err;
  for (const std::string& part :
       {sha, slow.key.json, autotune::describe(query), std::string("C[0,0] is 1, not 2"),
        std::string("forgotten at "), std::string("it is used"), file().string() + ":6"})
    expect_part(people.out, part);
  EXPECT_LT(people.out.find(file().string() + ":4"), people.out.find(file().string() + ":3"));

  const json program = lines(here({"show", sha, "--json"}).out).at(0);
  ASSERT_EQ(program["records"].size(), 6u);
  EXPECT_EQ(program["winner"]["line"], 6);
  EXPECT_EQ(program["winner"]["env"]["product"], slow.env.product);
  double before = 0;
  for (const json& r : program["records"]) {
    if (!r.contains("stats")) continue;
    EXPECT_GE(r["stats"]["median_ms"].get<double>(), before);
    before = r["stats"]["median_ms"];
    EXPECT_EQ(r["forgotten"].get<bool>(), r["line"] == 1);
  }
}

TEST_F(Cache, KeysThatAreNoneOrSeveralAreErrorsThatHelp) {
  std::map<std::string, autotune::Key> seen;  // by their first digits
  std::vector<Record> two;
  for (int i = 0; two.empty(); ++i) {
    Record r = record(RecordType::winner, product());
    r.key = autotune::make_key(fmt::format("{{\"number\":{}}}", i));
    const auto [other, is_new] = seen.try_emplace(r.key.sha.substr(0, 4), r.key);
    if (is_new) continue;
    two = {r, r};
    two[1].key = other->second;
  }
  store(two);
  const Result several = here({"show", two[0].key.sha.substr(0, 4)});
  EXPECT_EQ(several.code, 2);
  expect_part(several.err, "2 keys begin so");
  expect_part(several.err, two[0].key.sha.substr(0, 12));
  expect_part(several.err, two[1].key.sha.substr(0, 12));
  EXPECT_EQ(here({"show", two[0].key.sha}).code, 0);

  const std::string none = two[0].key.sha.starts_with("ffff") ? "0000" : "ffff";
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"show", none}, {"explain", none}, {"prune", "--key", none}}) {
    const Result result = here(arguments);
    EXPECT_EQ(result.code, 2) << result.out;
    expect_part(result.err, "'" + none + "': no key begins so");
  }
  for (const char* key : {"abc", "xyz1", ""}) {
    const Result result = here({"show", key});
    EXPECT_EQ(result.code, 2);
    expect_part(result.err, "4 to 64 hexadecimal digits");
  }
}

TEST_F(Cache, ExplainShowsARefusalAndNamesTheDefault) {
  const ConfigQuery query = product();
  Record winner = record(RecordType::winner, query, 1);
  winner.candidate = record(RecordType::winner, query, 0).candidate;  // of our own kernels
  winner.env.kernels = "int8 0";
  store({winner});
  const Result people = here({"explain", winner.key.sha.substr(0, 8)});
  EXPECT_EQ(people.code, 0) << people.err;
  expect_part(people.out, "refused: libraries and kernels: measured with kernels 'int8 0'");
  expect_part(people.out, "the default: no entry holds here");
  expect_part(people.out, file().string() + ":1");

  const json program = lines(here({"explain", winner.key.sha, "--json"}).out).at(0);
  EXPECT_EQ(program["records"][0]["verdicts"][0]["passed"], false);
  EXPECT_EQ(program["runs"]["origin"], "default");
  EXPECT_EQ(program["runs"]["candidate"]["engine"], winner.candidate.engine);

  const json listed = lines(here({"list", "--json"}).out).at(0);
  EXPECT_EQ(listed["usable"], false);
  expect_part(listed["why"], "measured with kernels 'int8 0'");
}

TEST_F(Cache, AWinnerInDoubtIsMarkedAndTheDefaultRuns) {
  const Record winner = test::doubtful(record(RecordType::winner, product(), 1));
  store({winner, record(RecordType::winner, product(5))});
  const json listed = lines(here({"list", "--json", "--filter", "m=4 "}).out).at(0);
  EXPECT_EQ(listed["usable"], false);
  EXPECT_EQ(listed["winner"]["in_doubt"], true);
  expect_part(listed["why"], "in doubt: other programs disturbed the measurement");
  const Result list = here({"list"});
  expect_part(list.out, "no: in doubt");
  expect_part(list.out, "1 of them in doubt, so the default runs");
  expect_part(here({"show", winner.key.sha}).out, "20 rounds disturbed (in doubt)");
  const std::string explained = here({"explain", winner.key.sha}).out;
  expect_part(explained, "measurement no");
  expect_part(explained, "refused: measurement: in doubt");
  expect_part(explained, "the default: no entry holds here");
  expect_part(here({"verify", "--run"}).out,
              "1 right, 0 wrong, 1 not used here anyway (1 of them in doubt)");

  // One that is not in doubt is used, whatever the effort and the dates say.
  store({record(RecordType::winner, product(), 0, Effort::quick, "2026-01-01T00:00:00Z")});
  const json mended = lines(here({"explain", winner.key.sha, "--json"}).out).at(0);
  EXPECT_EQ(mended["runs"]["line"], 3);
}

TEST_F(Cache, ExplainSaysWhichEntryWinsAndWhy) {
  const ConfigQuery query = product();
  store({record(RecordType::winner, query, 0, Effort::thorough, day),
         record(RecordType::winner, query, 1, Effort::quick, next_day),
         record(RecordType::fail, product(5), 1)});
  write(in("system/list.jsonl"), {record(RecordType::winner, query, 1)});
  const std::string key = record(RecordType::winner, query).key.sha;
  const json effort = lines(here({"explain", key, "--json"}).out).at(0);
  ASSERT_EQ(effort["records"].size(), 3u);
  expect_part(effort["records"][0]["outcome"], "wins: effort thorough goes before quick");
  expect_part(effort["records"][1]["outcome"], "loses: effort thorough goes before quick");
  expect_part(effort["records"][2]["outcome"], "the cache goes first");
  EXPECT_EQ(effort["runs"]["origin"], "cache");
  EXPECT_EQ(effort["runs"]["line"], 1);
  EXPECT_EQ(effort["records"][0]["verdicts"].size(), 4u);

  // A fail of the best one leaves the other, a tombstone the system list.
  store({record(RecordType::fail, query, 0)});
  const json failed = lines(here({"explain", key, "--json"}).out).at(0);
  expect_part(failed["records"][0]["outcome"], "it failed later");
  EXPECT_EQ(failed["runs"]["line"], 2);
  store({record(RecordType::tombstone, query)});
  const json system = lines(here({"explain", key, "--json"}).out).at(0);
  EXPECT_EQ(system["runs"]["origin"], "system list");
  EXPECT_EQ(system["runs"]["file"], in("system/list.jsonl").string());
  expect_part(system["records"][1]["outcome"], "forgotten at ");

  const Result other = run({"explain", key, "--device", "cpu", "--threads", "2"});
  expect_part(other.out, "nothing here looks it up; it is of another Context");
  expect_part(other.out, "--threads 1");
}

TEST_F(Cache, ExplainTakesShapes) {
  store({record(RecordType::winner, product(), 1)});
  const std::size_t all = autotune::queries_of(context_, {{4, 16, 8, DType::f32, false}}).size();
  const std::vector<json> program = lines(here({"explain", "--shape", "4,16,8", "--json"}).out);
  ASSERT_EQ(program.size(), all);
  EXPECT_EQ(std::count_if(program.begin(), program.end(),
                          [](const json& p) { return p["runs"]["origin"] == "cache"; }),
            1);
  const Result people = here({"explain", "--shape", "4,16,8"});
  EXPECT_EQ(people.code, 0) << people.err;
  expect_part(people.out, "Nothing is known of these; the default runs:");
  expect_part(people.out,
              fmt::format("{} problems: 1 run what was found, {} the default", all, all - 1));
}

// Twenty problems are one table, not twenty.
TEST_F(Cache, ExplainOfShapesHasALineForEachProblem) {
  std::vector<Record> winners;
  for (const ConfigQuery& query : autotune::queries_of(context_, {{4, 16, 8, DType::f32, false}}))
    winners.push_back(record(RecordType::winner, query));
  Record refused = winners.back();
  winners.pop_back();
  refused.env.kernels = "of old";
  winners.push_back(refused);
  store(winners);
  const Result result = here({"explain", "--shape", "4,16,8"});
  EXPECT_EQ(result.code, 0) << result.err;
  const auto count = [&](const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = result.out.find(part); at != std::string::npos;
         at = result.out.find(part, at + 1))
      ++found;
    return found;
  };
  EXPECT_EQ(count("problem: what runs"), 2u) << result.out;
  expect_part(result.out, "These run what was found:");
  expect_part(result.out, "Of these something is known, and the default runs:");
  expect_part(result.out, "refused: ");
  for (const Record& winner : winners)
    EXPECT_EQ(count(winner.key.sha.substr(0, 12)), 1u);
  EXPECT_LE(std::count(result.out.begin(), result.out.end(), '\n'),
            static_cast<std::ptrdiff_t>(winners.size()) + 14);
}

TEST_F(Cache, ADateAheadOfTheClockLosesAndSaysSo) {
  const ConfigQuery query = product();
  store({record(RecordType::winner, query, 0, Effort::normal, "9876-01-01T00:00:00Z")});
  Record now = record(RecordType::winner, query, 1);
  now.time = autotune::time_now();
  store({now});
  const json explained = lines(here({"explain", now.key.sha, "--json"}).out).at(0);
  EXPECT_EQ(explained["runs"]["line"], 2);
  expect_part(explained["why"], "goes before 9876-01-01T00:00:00Z, which is more than a day ahead");
  ASSERT_EQ(here({"prune"}).code, 0);
  const std::vector<Record> kept = read(file());
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0], now);
}

TEST_F(Cache, ExplainFollowsNearShapes) {
  // 33 and 40 rows are of the bucket that ends at 48.
  store({record(RecordType::winner, product(40), 1)});
  const auto near = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"explain", "--shape", "33,16,8", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    for (const json& line : lines(here(arguments).out))
      if (line["key_sha"] == record(RecordType::winner, product(33)).key.sha) return line;
    return json();
  };
  EXPECT_EQ(near({})["runs"]["origin"], "default");
  const json found = near({"--near-shapes"});
  ASSERT_EQ(found["records"].size(), 1u) << found;
  EXPECT_EQ(found["records"][0]["origin"], "near shape");
  expect_part(found["records"][0]["of"], "m=40");
  EXPECT_EQ(found["runs"]["origin"], "near shape");
  expect_part(found["records"][0]["outcome"], "wins: ");
}

TEST_F(Cache, VerifyCountsAndNamesWhatIsWrong) {
  store({record(RecordType::winner, product()), record(RecordType::sample, product()),
         record(RecordType::miss, product())});
  put(file(), content(file()) + newer_line(record(RecordType::winner, product())) + "\n");
  const Result fine = run({"verify"});
  EXPECT_EQ(fine.code, 0) << fine.err;
  expect_part(fine.err, ":4: schema version 2");

  const std::string line = autotune::to_line(record(RecordType::winner, product()));
  const std::string other_key = test::with_crc(
      test::replaced(test::fields_of(record(RecordType::winner, product())), "\"m\":4", "\"m\":9"));
  put(file(), content(file()) + test::replaced(line, "\"m\":4", "\"m\":9") + "\n" + other_key +
                  "\n" + line.substr(0, 50));
  const Result wrong = run({"verify"});
  EXPECT_EQ(wrong.code, 1);
  expect_part(wrong.err, file().string() + ":5: the CRC does not match");
  expect_part(wrong.err, file().string() + ":6: key_sha is not the SHA-256 of the key");
  expect_part(wrong.err, file().string() + ":7: it is cut short");
  expect_part(wrong.out, "why lines were skipped");
  const std::vector<json> program = lines(run({"verify", "--json"}).out);
  const json counts = only(program, "file");
  EXPECT_EQ(counts["lines"], 7);
  EXPECT_EQ(counts["records"]["winner"], 1);
  EXPECT_EQ(counts["records"]["sample"], 1);
  EXPECT_EQ(counts["records"]["miss"], 1);
  EXPECT_EQ(counts["skipped"], 3);
  EXPECT_EQ(counts["newer"], 1);
  EXPECT_EQ(only(program, "summary")["ok"], false);
}

TEST_F(Cache, VerifyFindsRecordsInAnotherMachinesFolder) {
  store({record(RecordType::winner, product())});
  fs::create_directories(file(other_machine()).parent_path());
  fs::copy(file(), file(other_machine()));
  put(cache() / "recorded.jsonl", autotune::to_line(record(RecordType::miss, product())) + "\n");
  const Result result = run({"verify"});
  EXPECT_EQ(result.code, 1);
  expect_part(result.err,
              file(other_machine()).string() + ":1: it is of " + autotune::describe(machine_));
  expect_part(result.out, "recorded.jsonl");

  const std::vector<json> listed = lines(here({"list", "--all", "--json"}).out);
  ASSERT_EQ(listed.size(), 3u);
  for (int i = 0; i < 2; ++i)
    EXPECT_EQ(listed[i]["usable"].get<bool>(), listed[i]["winner"]["file"] == file().string());
  const std::string key = record(RecordType::winner, product()).key.sha;
  EXPECT_EQ(lines(here({"show", key, "--json"}).out).at(0)["winner"]["file"], file().string());
}

TEST_F(Cache, VerifyNamesTheFirstOfManyAndCountsTheRest) {
  std::vector<Record> many(250, record(RecordType::sample, product()));
  for (std::size_t i = 0; i < many.size(); ++i)
    many[i].stats.count = static_cast<std::int64_t>(i);
  write(file(other_machine()), many);
  const Result result = run({"verify"});
  EXPECT_EQ(result.code, 1);
  EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 101);
  expect_part(result.err, "150 more lines are of other machines than their folder's");
}

TEST_F(Cache, VerifyProvesWinnersAgain) {
  Record refused = record(RecordType::winner, product(6));
  refused.env.kernels = "int8 0";
  store(
      {record(RecordType::winner, product(), 1), record(RecordType::winner, product(5)), refused});
  const Result result = here({"verify", "--run"});
  EXPECT_EQ(result.code, 0) << result.err << result.out;
  expect_part(result.out, "2 right, 0 wrong, 1 not used here anyway");
  const json counts =
      only(lines(run({"verify", "--run", "--json", "--device", "cpu", "--threads", "2"}).out),
           "summary")["winners"];
  EXPECT_EQ(counts["not_of_this_context"], 3);
  EXPECT_EQ(counts["right"], 0);
}

TEST_F(Cache, VerifyNamesWinnersThatAreWrongOrDoNotFit) {
  const ConfigQuery query = product();
  Record large = record(RecordType::winner, query);
  ConfigQuery of_large = query;
  of_large.words[0] = std::int64_t{1} << 44;  // rows
  large.key = autotune::key_of(of_large, machine_);
  // A mode that cannot compute sums of this many codes exactly, which nothing but running it tells.
  Record wrong = record(RecordType::winner, query);
  linear::PassProblem pass;
  static_cast<ConfigOrigin&>(pass) = core::origin_of(context_.state());
  pass.m = 1;
  pass.n = 2;
  pass.k = max_exact_k + 1;
  ConfigChoice choice;
  choice.words = {static_cast<std::int64_t>(Mode::rowwise),
                  static_cast<std::int64_t>(Mode::standard),
                  static_cast<std::int64_t>(Mode::global)};
  wrong.key = autotune::key_of(linear::to_query(pass), machine_);
  wrong.candidate = autotune::to_text(ConfigOp::layer_mode, choice);
  store({record(RecordType::winner, query), large, wrong});
  const Result people = here({"verify", "--run"});
  EXPECT_EQ(people.code, 1) << people.out;
  expect_part(people.out, "rowwise, then standard, then global");
  expect_part(people.out, file().string() + ":3");
  expect_part(people.out, "1 right, 1 wrong, 1 could not be run");
  expect_part(people.err, "could not be run: it takes ");
  const std::vector<json> program = lines(here({"verify", "--run", "--json"}).out);
  EXPECT_EQ(only(program, "wrong")["key_sha"], wrong.key.sha);
  EXPECT_EQ(only(program, "not_run")["key_sha"], large.key.sha);
  EXPECT_EQ(only(program, "summary")["ok"], false);
}

TEST_F(Cache, AFileThatCannotBeReadIsAnErrorOfItsOwn) {
  fs::create_directories(file());  // a directory in its place
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"list"}, {"verify"}, {"prune"}, {"export", in("x.jsonl").string()}}) {
    const Result result = here(arguments);
    EXPECT_EQ(result.code, 1) << arguments[0] << result.out;
    expect_part(result.err, file().string() + ": it is a directory");
  }
  EXPECT_FALSE(fs::exists(in("x.jsonl")));
}

TEST_F(Cache, UsageErrorsNameTheOption) {
  const auto expect = [&](const std::vector<std::string>& arguments, int code,
                          const std::string& part) {
    const Result result = run(arguments);
    EXPECT_EQ(result.code, code) << part << result.err;
    expect_part(result.err, part);
    EXPECT_EQ(result.out, "");
  };
  expect({}, 2, "subcommand");
  expect({"list", "--op", "sort"}, 2, "--op 'sort' is not one of quantize, gemm_int8");
  expect({"explain"}, 2, "it needs a KEY or --shape");
  expect({"explain", "--shape", "1,2"}, 2, "--shape '1,2'");
  expect({"explain", "--shape", "1,2,3", "--dtype", "s8"}, 2, "--dtype s8");
  expect({"explain", "abcd", "--bias"}, 2, "--bias and --groups are for --shape");
  expect({"explain", "abcd", "--shape", "1,2,3"}, 2, "excludes");
  expect({"prune", "--older-than", "0"}, 2, "--older-than 0: it must be 1 to");
  expect({"prune", "--key", ""}, 2, "--key ''");
  expect({"prune", "--key", "abcd", "--stale"}, 2, "excludes");
  expect({"import"}, 2, "FILE");
  expect({"merge", "x"}, 2, "IN");
  expect({"list", "--device", "cuda:77"}, 5, "cuda");
  for (const char* command :
       {"path", "list", "show", "explain", "verify", "merge", "export", "import", "prune"}) {
    const Result help = run({command, "--help"});
    EXPECT_EQ(help.code, 0);
    expect_part(help.out, "Example");
    expect_part(help.out, "--json");
  }
}

}  // namespace
}  // namespace switchback::bench
