#include "base/ini_file.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach {
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

TEST(IniFile, WithoutSectionsTheFirstSectionsLineIsNamed) {
  EXPECT_EQ(error_of("a = 1\n[one]\nb = 1\n"), "a.ini line 2: must be 'key = value'");
  EXPECT_EQ(error_of("[one]\nb = 1\n[two]\n"), "a.ini line 1: must be 'key = value'");
}

std::string sections_error_of(const std::string& text) {
  try {
    parse_ini_sections(text, "a.ini");
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no ConfigError for " << text;
  return {};
}

TEST(IniSections, KeepTheirOrderNamesAndLines) {
  const auto sections =
      parse_ini_sections("# stages\n[ last one ] ; comment\na = 1\n\n[first]\n[first]\na=2", "a");
  ASSERT_EQ(sections.size(), 3u);
  EXPECT_EQ(sections[0].name, "last one");
  EXPECT_EQ(sections[0].line, 2);
  EXPECT_THAT(sections[0].settings, ElementsAre(Pair("a", "1")));
  EXPECT_EQ(sections[1].name, "first");
  EXPECT_THAT(sections[1].settings, ElementsAre());
  EXPECT_EQ(sections[2].line, 6);
  EXPECT_THAT(sections[2].settings, ElementsAre(Pair("a", "2")));
}

TEST(IniSections, AFileWithoutAnyIsOne) {
  for (const auto* text : {"", "a = 1\n"}) {
    const auto sections = parse_ini_sections(text, "a.ini");
    ASSERT_EQ(sections.size(), 1u);
    EXPECT_EQ(sections[0].name, "");
  }
}

TEST(IniSections, SettingsBelongToASection) {
  EXPECT_THAT(sections_error_of("a = 1\n[one]\n"), ::testing::HasSubstr("before the first"));
}

TEST(IniSections, MistakesNameTheLine) {
  EXPECT_EQ(sections_error_of("[one]\na = 1\na = 2\n"), "a.ini line 3: a was set before");
  EXPECT_EQ(sections_error_of("[one\n"), "a.ini line 1: must be 'key = value'");
  EXPECT_EQ(sections_error_of("[one] = 2\n"), "a.ini line 1: must be 'key = value'");
}

TEST(IniFile, MissingFilesAreNamed) {
  EXPECT_THROW(read_ini_file("/nowhere/a.ini"), ConfigError);
  EXPECT_THROW(read_ini_sections("/nowhere/a.ini"), ConfigError);
  const stagecoach::testing::TempFolder folder;
  EXPECT_THAT(read_ini_file(folder.write("a.ini", "a=1")), ElementsAre(Pair("a", "1")));
}

}  // namespace
}  // namespace stagecoach
