#include "cli/ini_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

std::string error_of(const std::string& text) {
  try {
    parse_ini(text, "a.ini");
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no ConfigError for " << text;
  return {};
}

TEST(IniFile, KeysValuesAndComments) {
  EXPECT_THAT(parse_ini("# all\n\n layers =  12 ; twelve\r\nname=opt # 125m\npath = a#b;c\n"
                        "empty =\nexpression = a = b\n;last = 1",
                        "a.ini"),
              ElementsAre(Pair("empty", ""), Pair("expression", "a = b"), Pair("layers", "12"),
                          Pair("name", "opt"), Pair("path", "a#b;c")));
  EXPECT_THAT(parse_ini("", "a.ini"), ElementsAre());
}

TEST(IniFile, ErrorsNameTheLine) {
  EXPECT_EQ(error_of("a = 1\nb\n"), "a.ini line 2: must be 'key = value'");
  EXPECT_EQ(error_of("[model]\na = 1\n"), "a.ini line 1: must be 'key = value'");
  EXPECT_EQ(error_of("= 1"), "a.ini line 1: must be 'key = value'");
  EXPECT_EQ(error_of("a = 1\n\na = 2"), "a.ini line 3: a was set before");
}

TEST(IniFile, MissingFilesAreNamed) {
  EXPECT_THROW(read_ini_file("/nowhere/a.ini"), ConfigError);
  const stagecoach::testing::TempFolder folder;
  EXPECT_THAT(read_ini_file(folder.write("a.ini", "a=1")), ElementsAre(Pair("a", "1")));
}

}  // namespace
}  // namespace stagecoach::cli
