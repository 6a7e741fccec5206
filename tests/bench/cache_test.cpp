// SPDX-License-Identifier: Apache-2.0
// `switchback-bench cache`: the output of its commands, the files they write, and how they end.
#include <cstdlib>

#include "bench/cache/files.hpp"
#include "bench/cache_fixture.hpp"
#include "linear/mode.hpp"

namespace switchback::bench {
namespace {

TEST_F(Cache, AnEmptyCacheIsNoError) {
  for (const std::vector<std::string>& arguments :
       std::vector<std::vector<std::string>>{{"list"}, {"verify", "--validate"}}) {
    const Result result = here(arguments);
    EXPECT_EQ(result.code, 0) << arguments[0] << result.err;
    expect_part(result.out, "The cache is still empty");
    EXPECT_EQ(result.err, "");
  }
  EXPECT_FALSE(fs::exists(cache()));
  EXPECT_EQ(json_here({"list"})["keys"], 0);
}

TEST_F(Cache, PathSaysWhereEverythingIsAndWhatSaysSo) {
  store({winner(product())});
  put(in("system/list.jsonl"), "");
  const Result people = here({"path"});
  EXPECT_EQ(people.code, 0) << people.err;
  expect_part(people.out, file().string());
  expect_part(people.out, in("system/list.jsonl").string());
  expect_part(people.out, "SWITCHBACK_TUNE_SYSTEM");
  expect_part(people.out, "does not exist yet");  // of the file of recorded misses
  const json program = json_here({"path", "--cache", in("other")});
  EXPECT_EQ(program["places"][0]["path"], in("other").string());
  EXPECT_EQ(program["places"][0]["set_by"], "--cache");
  EXPECT_EQ(program["places"][1]["exists"], false);
  EXPECT_EQ(program["variables"]["SWITCHBACK_TUNE_CACHE"], cache().string());
}

// The installed system list is found whatever path or link the program was started by.
TEST_F(Cache, TheSystemListIsFoundByAnyName) {
  const fs::path program = program_;
  const fs::path link = in("other-name");
  fs::create_symlink(program, link);
  const auto list_of = [&](const std::string& command) {
    const std::string shell = fmt::format(
        "unset SWITCHBACK_TUNE_SYSTEM; cd /; PATH={}:{}:$PATH; {} cache path --json > {}",
        program.parent_path().string(), in("").string(), command, in("out").string());
    EXPECT_EQ(std::system(shell.c_str()), 0) << shell;
    const json path = json_lines(content(in("out"))).at(0);
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
  environment_.emplace_back("SWITCHBACK_TUNE=bogus");
  const Result result = run({"path"});
  EXPECT_EQ(result.code, 0);
  expect_part(result.err, "mode 'bogus' is not one of off, read, record, tune, require");
  expect_part(result.out, "bogus (unknown; use off, read, record, tune or require)");
}

TEST_F(Cache, ListHasALineForEachKey) {
  const ConfigQuery first = product();
  Entry unknown = winner(product());
  unknown.key = {R"({"backend":"cpu","op":"sort"})"};
  store({winner(first, 1), wrong(product(5), 1), unknown, entry(product(7))});
  write(in("system/list.jsonl"), {winner(product(6)), foreign(winner(product(6)))});
  const Result people = here({"list"});
  EXPECT_EQ(people.code, 0) << people.err;
  expect_part(people.out, name_of(winner(first).key));
  expect_part(people.out, autotune::describe(first));
  expect_part(people.out, "2.00x");
  expect_part(people.out, "(no winner)");
  expect_part(people.out, "cannot be read here: ");
  expect_part(people.out, "system list");
  expect_part(people.out, "4 keys in " + file().string());

  const std::vector<json> program = json_lines(here({"list", "--json"}).out);
  ASSERT_EQ(program.size(), 5u);
  EXPECT_EQ(program[0]["winner"]["candidate"]["engine"], winner(first, 1).winner->candidate.engine);
  EXPECT_EQ(program[0]["winner"]["line"], 1);
  EXPECT_EQ(program[0]["winner"]["speedup"], 2.0);
  EXPECT_EQ(program[0]["winner"]["env"]["product"], winner(first).env.product);
  EXPECT_EQ(program[0]["usable"], true);
  EXPECT_FALSE(program[1].contains("winner"));
  EXPECT_TRUE(program[2].contains("unreadable"));
  EXPECT_EQ(program[3]["origin"], "system list");
  const auto summary = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"list", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return only(json_lines(here(arguments).out), "summary");
  };
  EXPECT_EQ(summary({"--all"})["keys"], 5);
  EXPECT_EQ(summary({"--filter", "quantize"})["shown"], 0);
  EXPECT_EQ(summary({"--filter", "m=4 "})["shown"], 1);
  expect_part(run({"list", "--device", "cpu", "--threads", "2"}).out, "for another Context:");
}

TEST_F(Cache, KeysThatAreNoneOrSeveralAreErrorsThatHelp) {
  std::map<std::string, autotune::Key> seen;  // keys of entries by the first digits of their names
  std::vector<Entry> two;
  for (int i = 0; two.empty(); ++i) {
    Entry e = winner(product());
    e.key = {fmt::format("{{\"number\":{}}}", i)};
    const auto [other, is_new] = seen.try_emplace(name_of(e.key).substr(0, 4), e.key);
    if (is_new) continue;
    two = {e, e};
    two[1].key = other->second;
  }
  store(two);
  const std::string name = name_of(two[0].key);
  const Result several = here({"explain", name.substr(0, 4)});
  EXPECT_EQ(several.code, 2);
  expect_part(several.err, "2 keys begin with it");
  expect_part(several.err, name);
  expect_part(several.err, name_of(two[1].key));
  EXPECT_EQ(here({"explain", name}).code, 0);

  const Result none = here({"explain", name.starts_with("ffff") ? "0000" : "ffff"});
  EXPECT_EQ(none.code, 2) << none.out;
  expect_part(none.err, "no key begins with it");
  for (const char* key : {"abc", "xyz1"})
    expect_part(here({"explain", key}).err, "4 to 16 hexadecimal digits");
}

TEST_F(Cache, ExplainShowsARefusalAndNamesTheDefault) {
  Entry refused = winner(product(), 0);  // measured with the library's own kernels
  refused.env.kernels = "int8 0";
  refused.validated = wrong(product(), 1).validated;
  store({refused});
  const std::string name = name_of(refused.key);
  const Result people = here({"explain", name.substr(0, 8)});
  EXPECT_EQ(people.code, 0) << people.err;
  expect_part(people.out, "refused: libraries and kernels: measured with kernels 'int8 0'");
  expect_part(people.out, "the default: no entry is valid here");
  expect_part(people.out, file().string() + ":1");
  expect_part(people.out, "C[0,0] is 1, not 2");

  const json program = json_here({"explain", name});
  EXPECT_EQ(program["entries"][0]["verdicts"][0]["passed"], false);
  EXPECT_EQ(program["entries"][0]["wrong"][0]["why"], "C[0,0] is 1, not 2");
  EXPECT_EQ(program["runs"]["origin"], "default");
  EXPECT_EQ(program["runs"]["candidate"]["engine"], refused.winner->candidate.engine);

  const json listed = json_here({"list"});
  EXPECT_EQ(listed["usable"], false);
  expect_part(listed["why"], "measured with kernels 'int8 0'");
}

TEST_F(Cache, AWinnerInDoubtIsMarkedAndTheDefaultRuns) {
  const Entry doubtful = test::doubtful(winner(product(), 1));
  store({doubtful});
  const json listed = json_here({"list"});
  EXPECT_EQ(listed["usable"], false);
  EXPECT_EQ(listed["winner"]["in_doubt"], true);
  expect_part(listed["why"], "in doubt: other programs disturbed the measurement");
  const Result list = here({"list"});
  expect_part(list.out, "no: in doubt");
  expect_part(list.out, "1 of these keys is in doubt: ");
  const std::string explained = here({"explain", name_of(doubtful.key)}).out;
  expect_part(explained, "measurement no");
  expect_part(explained, "refused: measurement: in doubt");
  expect_part(here({"verify", "--validate"}).out,
              "0 right, 0 wrong, 1 not used here anyway (1 of them in doubt)");
}

TEST_F(Cache, ExplainSaysWhichEntryWinsAndWhy) {
  const ConfigQuery query = product();
  Entry thorough = winner(query, 0, Effort::thorough, day);
  thorough.env.driver = "1";
  store({thorough, winner(query, 1, Effort::quick, next_day), wrong(product(5), 1)});
  write(in("system/list.jsonl"), {winner(query, 1)});
  const std::string name = name_of(thorough.key);
  const json effort = json_here({"explain", name});
  ASSERT_EQ(effort["entries"].size(), 3u);
  expect_part(effort["entries"][0]["outcome"], "wins: effort thorough takes precedence over quick");
  expect_part(effort["entries"][1]["outcome"],
              "loses: effort thorough takes precedence over quick");
  expect_part(effort["entries"][2]["outcome"], "the cache takes precedence");
  EXPECT_EQ(effort["runs"]["origin"], "cache");
  EXPECT_EQ(effort["runs"]["line"], 1);
  EXPECT_EQ(effort["entries"][0]["verdicts"].size(), 4u);

  // If the best winner fails a later check, the other winner is used. If that one fails too, the
  // winner in the system list is used.
  store({wrong(query, 0, next_day)});
  const json failed = json_here({"explain", name});
  expect_part(failed["entries"][0]["outcome"], "it failed later");
  EXPECT_EQ(failed["runs"]["line"], 2);
  store({wrong(query, 1, next_day)});
  const json system = json_here({"explain", name});
  EXPECT_EQ(system["runs"]["origin"], "system list");
  EXPECT_EQ(system["runs"]["file"], in("system/list.jsonl").string());

  const Result other = run({"explain", name, "--device", "cpu", "--threads", "2"});
  expect_part(other.out, "do not look the key up: it is for another Context");
  expect_part(other.out, "--threads 1");
}

// `explain --shape` prints the problems of a shape as tables with a line for each.
TEST_F(Cache, ExplainOfShapesHasALineForEachProblem) {
  std::vector<Entry> entries;
  for (const ConfigQuery& query : autotune::queries_of(context_, {{4, 16, 8, DType::f32, false}}))
    entries.push_back(winner(query));
  const std::size_t all = entries.size();
  entries = {entries.front(), entries.back()};
  entries[1].env.kernels = "of old";
  store(entries);
  const Result people = here({"explain", "--shape", "4,16,8"});
  EXPECT_EQ(people.code, 0) << people.err;
  expect_part(people.out, "These problems run a configuration that was found:");
  expect_part(people.out, "These problems have entries, but run the default:");
  expect_part(people.out, "refused: ");
  expect_part(people.out, "These problems have no entries and run the default:");
  expect_part(people.out,
              fmt::format("{} problems: 1 run a configuration that was found, {} the default", all,
                          all - 1));
  for (const Entry& one : entries) {
    const std::size_t first = people.out.find(name_of(one.key));
    EXPECT_NE(first, std::string::npos);
    EXPECT_EQ(people.out.find(name_of(one.key), first + 1), std::string::npos);
  }
  const std::vector<json> program =
      json_lines(here({"explain", "--shape", "4,16,8", "--json"}).out);
  ASSERT_EQ(program.size(), all);
  EXPECT_EQ(program[0]["runs"]["origin"], "cache");
  EXPECT_EQ(program.back()["runs"]["origin"], "default");
}

TEST_F(Cache, ExplainFollowsNearShapes) {
  // 33 and 40 rows are in the same bucket of row counts, which ends at 48.
  store({winner(product(40), 1)});
  const auto near = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"explain", "--shape", "33,16,8", "--json"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    for (const json& line : json_lines(here(arguments).out))
      if (line["key"] == name_of(entry(product(33)).key)) return line;
    return json();
  };
  EXPECT_EQ(near({})["runs"]["origin"], "default");
  const json found = near({"--near-shapes"});
  ASSERT_EQ(found["entries"].size(), 1u) << found;
  EXPECT_EQ(found["entries"][0]["origin"], "near shape");
  expect_part(found["entries"][0]["of"], "m=40");
  EXPECT_EQ(found["runs"]["origin"], "near shape");
  expect_part(found["entries"][0]["outcome"], "wins: ");
}

TEST_F(Cache, VerifyCountsAndNamesWhatIsWrong) {
  store({winner(product()), wrong(product(5), 1), entry(product(6))});
  put(file(), content(file()) + test::newer_line(winner(product())) + "\n");
  const Result fine = run({"verify"});
  EXPECT_EQ(fine.code, 0) << fine.err;
  expect_part(fine.err, file().string() + ":4: schema version 2");

  const std::string line = autotune::to_line(winner(product()));
  put(file(),
      content(file()) + test::replaced(line, "\"env\"", "\"nev\"") + "\n" + line.substr(0, 50));
  const Result bad = run({"verify"});
  EXPECT_EQ(bad.code, 1);
  expect_part(bad.err, file().string() + ":5: field 'env' is missing");
  expect_part(bad.err, file().string() + ":6: it is not a valid JSON object");
  expect_part(bad.out, "why lines were skipped");
  const std::vector<json> program = json_lines(run({"verify", "--json"}).out);
  const json counts = only(program, "file");
  EXPECT_EQ(counts["lines"], 6);
  EXPECT_EQ(counts["winners"], 1);
  EXPECT_EQ(counts["wrong_candidates"], 1);
  EXPECT_EQ(counts["misses"], 1);
  EXPECT_EQ(counts["skipped"], 2);
  EXPECT_EQ(counts["newer"], 1);
  EXPECT_EQ(only(program, "summary")["ok"], false);

  const Result list = here({"list"});
  EXPECT_EQ(list.code, 0);
  expect_part(list.out, "3 lines were skipped");
  expect_part(list.err, file().string() + ":6: it is not a valid JSON object");
}

TEST_F(Cache, VerifyFindsEntriesInAnotherMachinesFile) {
  store({winner(product())});
  fs::copy(file(), file(other_machine()));
  put(cache() / "recorded.jsonl", test::lines_of({entry(product())}));
  const Result result = run({"verify"});
  EXPECT_EQ(result.code, 1);
  expect_part(result.err,
              file(other_machine()).string() + ":1: it is for " + autotune::describe(machine_));
  expect_part(result.out, "recorded.jsonl");
  const json listed = json_here({"list", "--all"});
  EXPECT_EQ(listed["winner"]["file"], file().string());
  EXPECT_EQ(listed["usable"], true);
}

TEST_F(Cache, VerifyNamesWinnersThatAreWrongOrDoNotFit) {
  const ConfigQuery query = product();
  Entry large = winner(query);
  ConfigQuery of_large = query;
  of_large.words[0] = std::int64_t{1} << 44;  // rows
  large.key = autotune::key_of(of_large, machine_);
  // The entry's mode cannot compute sums of this many products exactly. Only running it shows that.
  Entry not_exact = winner(query);
  linear::PassProblem pass;
  static_cast<ConfigOrigin&>(pass) = core::origin_of(context_.state());
  pass.m = 1;
  pass.n = 2;
  pass.k = max_exact_k + 1;
  ConfigChoice choice;
  choice.words = {static_cast<std::int64_t>(Mode::rowwise),
                  static_cast<std::int64_t>(Mode::standard),
                  static_cast<std::int64_t>(Mode::global)};
  not_exact.key = autotune::key_of(linear::to_query(pass), machine_);
  not_exact.winner->candidate = autotune::to_text(ConfigOp::layer_mode, choice);
  Entry refused = winner(product(6));
  refused.env.kernels = "int8 0";
  store({winner(query), large, not_exact, refused});
  const Result people = here({"verify", "--validate"});
  EXPECT_EQ(people.code, 1) << people.out;
  expect_part(people.out, "rowwise, then standard, then global");
  expect_part(people.out, file().string() + ":3");
  expect_part(people.out, "1 right, 1 wrong, 1 not used here anyway, 1 could not be run");
  expect_part(people.err, "could not be run: it needs ");
  const std::vector<json> program = json_lines(here({"verify", "--validate", "--json"}).out);
  EXPECT_EQ(only(program, "wrong")["key"], name_of(not_exact.key));
  EXPECT_EQ(only(program, "not_run")["key"], name_of(large.key));
  EXPECT_EQ(only(program, "summary")["ok"], false);

  const json elsewhere =
      json_lines(run({"verify", "--validate", "--json", "--device", "cpu", "--threads", "2"}).out)
          .back();
  EXPECT_EQ(elsewhere["winners"]["not_of_this_context"], 4);
  EXPECT_EQ(elsewhere["winners"]["right"], 0);
}

TEST_F(Cache, AFileThatCannotBeReadIsAnError) {
  fs::create_directories(file());  // a directory in place of the cache file
  for (const char* command : {"list", "verify"}) {
    const Result result = here({command});
    EXPECT_EQ(result.code, 1) << command << result.out;
    expect_part(result.err, file().string() + ": it is a directory");
  }
}

TEST_F(Cache, ImportPutsEntriesIntoTheFilesOfTheirMachinesAndSaysWhichAreUsed) {
  Entry kernels = winner(product(6)), unknown = winner(product());
  kernels.env.kernels = "int8 0";
  unknown.key = {R"({"backend":"cpu","op":"sort"})"};
  store({winner(product(7), 0, Effort::thorough)});
  const Entry good = winner(product()), strange = foreign(winner(product()));
  const Entry doubtful = test::doubtful(winner(product(8)));
  write(in("in.jsonl"),
        {good, kernels, strange, winner(product(7), 1), doubtful, entry(product(9)), unknown});
  const Result people = here({"import", in("in.jsonl"), "--cache", in("other")});
  EXPECT_EQ(people.code, 0) << people.err;
  expect_part(people.out, "2 of the 5 winners are used here.");
  // The argument may be the directory of a cache.
  const json again = json_here({"import", in("other"), "--cache", in("third")});
  EXPECT_EQ(again["added"], 5);
  EXPECT_EQ(again["used_here"], 2);
  const Result result = here({"import", in("in.jsonl")});
  expect_part(result.out, "1 of the 5 winners is used here.");
  expect_part(result.out, "measured with kernels 'int8 0'");
  expect_part(result.out, "for another machine: " + autotune::describe(other_machine()));
  expect_part(result.out, "in doubt");
  expect_part(result.out, "another winner takes precedence");
  EXPECT_EQ(read(file(other_machine())), std::vector{strange});
  EXPECT_EQ(read(file()),
            (std::vector{winner(product(7), 0, Effort::thorough), good, kernels, doubtful}));
  EXPECT_EQ(run({"verify"}).code, 0);
  expect_part(here({"list", "--all"}).out, "999 cores");

  const json counts =
      json_lines(run({"import", in("in.jsonl"), "--json", "--device", "cpu", "--threads", "2"}).out)
          .back();
  EXPECT_EQ(counts["added"], 0);
  EXPECT_EQ(counts["known"], 4);
  EXPECT_EQ(counts["other_wins"], 1);
  EXPECT_EQ(counts["unreadable"], 1);
  EXPECT_EQ(counts["misses"], 1);
  EXPECT_EQ(counts["used_here"], 0);
  EXPECT_EQ(counts["not_used"]["for another machine: " + autotune::describe(other_machine())], 1);
}

TEST_F(Cache, ImportWritesNothingIfAFileCannotBeRead) {
  write(in("good.jsonl"), {winner(product())});
  fs::create_directories(in("folder.jsonl"));
  put(in("garbage.jsonl"), "not an entry\nnor this\n");
  for (const std::string bad : {"folder.jsonl", "none.jsonl"}) {
    const Result result = run({"import", in("good.jsonl"), in(bad)});
    EXPECT_NE(result.code, 0);
    expect_part(result.err, bad);
    EXPECT_FALSE(fs::exists(cache()));
  }
  // The exit status tells a script that it imported a wrong file.
  const Result garbage = run({"import", in("garbage.jsonl")});
  EXPECT_EQ(garbage.code, 1);
  expect_part(garbage.err, in("garbage.jsonl").string() + ": it has no entries");
  EXPECT_FALSE(fs::exists(cache()));
  // The readable entries of a file are imported all the same. An empty file is not an error.
  put(in("half.jsonl"), content(in("good.jsonl")) + "noise\n");
  const Result half = run({"import", in("half.jsonl"), "--json"});
  EXPECT_EQ(half.code, 1);
  EXPECT_EQ(json_lines(half.out).back()["added"], 1);
  EXPECT_EQ(json_lines(half.out).back()["unreadable"], 1);
  put(in("empty.jsonl"), "");
  EXPECT_EQ(run({"import", in("empty.jsonl")}).code, 0);
  // A cache that cannot be written: its directory is a file.
  const Result result = run({"import", in("good.jsonl"), "--cache", in("empty.jsonl")});
  EXPECT_EQ(result.code, 1);
  expect_part(result.err, in("empty.jsonl"));
  EXPECT_EQ(content(in("empty.jsonl")), "");
}

}  // namespace
}  // namespace switchback::bench
