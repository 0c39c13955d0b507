// tests/FIELD_CASES.md names tests as proofs: each of them must exist, in the program that is named.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace {

namespace fs = std::filesystem;

std::string ReadText(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

// "launcher_test:Core.StartsTheLongestFirst" of every test of every program under tests/.
std::set<std::string> TestsOfPrograms() {
  static const std::regex program(R"((headsweep_test|add_executable)\((\w+)([^)]*)\))"), file(R"(\w+_test\.cc)"),
      test(R"((?:^|\n)TEST(?:_F|_P)?\((\w+),\s*(\w+)\))");
  std::set<std::string> tests;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(HEADSWEEP_SOURCE_DIR) / "tests")) {
    if (entry.path().filename() != "CMakeLists.txt") continue;
    const std::string cmake = ReadText(entry.path());
    for (std::sregex_iterator p(cmake.begin(), cmake.end(), program), end; p != end; ++p) {
      const std::string name = (*p)[2].str() + ((*p)[1] == "headsweep_test" ? "_test" : ""), sources = (*p)[3];
      for (std::sregex_iterator f(sources.begin(), sources.end(), file); f != end; ++f) {
        const std::string text = ReadText(entry.path().parent_path() / f->str());
        for (std::sregex_iterator t(text.begin(), text.end(), test); t != end; ++t)
          tests.insert(name + ":" + (*t)[1].str() + "." + (*t)[2].str());
      }
    }
  }
  return tests;
}

TEST(FieldCases, EveryTestThatProvesACaseExistsAndEveryRowCitesAThread) {
  static const std::regex name(R"(`(\w+_test:\w+\.\w+)`)"), thread(R"(^\| [\w.-]+/[\w.-]+#\d+)");
  const std::set<std::string> tests = TestsOfPrograms();
  ASSERT_GT(tests.size(), 300u) << "the tests are not found";
  std::ifstream document(fs::path(HEADSWEEP_SOURCE_DIR) / "tests/FIELD_CASES.md");
  ASSERT_TRUE(document.good());
  int rows = 0, number = 0;
  for (std::string line; std::getline(document, line);) {
    ++number;
    for (std::sregex_iterator it(line.begin(), line.end(), name), end; it != end; ++it)
      EXPECT_TRUE(tests.contains((*it)[1])) << "FIELD_CASES.md:" << number << ": there is no test " << (*it)[1];
    if (!line.starts_with("| ") || line.starts_with("| thread")) continue;
    ++rows;
    EXPECT_TRUE(std::regex_search(line, thread)) << "FIELD_CASES.md:" << number << ": a row names its thread first";
    EXPECT_EQ(std::count(line.begin(), line.end(), '|'), 4) << "FIELD_CASES.md:" << number << ": thread, symptom, proof";
  }
  EXPECT_GE(rows, 25);
}

}  // namespace
