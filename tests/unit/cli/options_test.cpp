#include "cli/options.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::cli {
namespace {

using stagecoach::testing::TempFolder;
using ::testing::HasSubstr;

std::optional<Options> parse(const std::vector<std::string>& arguments) {
  po::options_description described("options");
  described.add_options()                                                                     //
      ("config", po::value<std::string>(), "ini file")                                        //
      ("model", po::value<std::string>(), "a file")                                           //
      ("batch", po::value<std::int64_t>()->default_value(4), "a number")                      //
      ("stop", po::value<std::vector<std::string>>()->composing(), "may come several times")  //
      ("overwrite", po::bool_switch(), "a switch");
  return parse_options("try", "usage: stagecoach try", described, arguments);
}

std::string error_of(const std::vector<std::string>& arguments) {
  try {
    parse(arguments);
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), ::testing::Not(HasSubstr("\n")));
    return error.what();
  }
  ADD_FAILURE() << "no ConfigError";
  return {};
}

TEST(Options, ValuesAndDefaults) {
  const auto options = parse({"--model", "m.h5", "--stop", "a", "--stop=b", "--overwrite"});
  ASSERT_TRUE(options);
  EXPECT_EQ(options->text("model"), "m.h5");
  EXPECT_EQ(options->get<std::vector<std::string>>("stop"), (std::vector<std::string>{"a", "b"}));
  EXPECT_TRUE(options->flag("overwrite"));
  EXPECT_EQ(options->integer("batch", 1, 10), 4);
  EXPECT_TRUE(options->has("batch"));
  EXPECT_FALSE(options->given("batch"));
  EXPECT_FALSE(parse({})->flag("overwrite"));
  EXPECT_FALSE(parse({})->has("model"));
}

TEST(Options, MistakesAreOneLine) {
  EXPECT_EQ(error_of({"--nothing"}),
            "try: unrecognised option '--nothing'; see 'stagecoach try --help'");
  EXPECT_THAT(error_of({"--mod", "x"}), HasSubstr("unrecognised option '--mod'"));
  EXPECT_THAT(error_of({"word"}), HasSubstr("positional"));
  EXPECT_THAT(error_of({"--batch", "many"}), HasSubstr("'many'"));
  EXPECT_THAT(error_of({"--batch", "99999999999999999999"}), HasSubstr("--batch"));
  EXPECT_THAT(error_of({"--batch"}), HasSubstr("--batch"));
  EXPECT_THAT(error_of({"--batch", "1", "--batch", "2"}), HasSubstr("more than once"));
  EXPECT_THAT(error_of({"--overwrite=1"}), HasSubstr("--overwrite"));
}

TEST(Options, ReadingChecksRanges) {
  const auto options = parse({"--batch", "-3", "--model", "x"});
  EXPECT_THROW(static_cast<void>(options->integer("batch", 1, 10)), ConfigError);
  EXPECT_EQ(options->integer("batch", -3, 10), -3);
  EXPECT_THROW(static_cast<void>(parse({})->text("model")), ConfigError);
  EXPECT_THROW(options->exclude("batch", "model"), ConfigError);
  EXPECT_NO_THROW(options->exclude("batch", "config"));
  EXPECT_NO_THROW(parse({"--model", "x"})->exclude("batch", "model")) << "a default is not given";
}

TEST(Options, TheCommandLineWinsOverTheFile) {
  const TempFolder folder;
  const auto ini = folder.write("job.ini", "batch = 7\nmodel = file.h5\noverwrite = true\n");
  const auto options = parse({"--config", ini, "--model", "line.h5"});
  EXPECT_EQ(options->text("model"), "line.h5");
  EXPECT_EQ(options->integer("batch", 1, 10), 7);
  EXPECT_TRUE(options->given("batch"));
  EXPECT_TRUE(options->flag("overwrite"));
}

TEST(Options, MistakesInTheFileNameIt) {
  const TempFolder folder;
  const auto unknown = folder.write("a.ini", "bach = 7\n");
  EXPECT_EQ(error_of({"--config", unknown}), unknown + ": there is no option called bach");
  const auto nested = folder.write("b.ini", "config = a.ini\n");
  EXPECT_THAT(error_of({"--config", nested}), HasSubstr("no option called config"));
  const auto value = folder.write("c.ini", "batch = many\n");
  EXPECT_THAT(error_of({"--config", value}), ::testing::AllOf(HasSubstr(value), HasSubstr("many")));
  EXPECT_THAT(error_of({"--config", "/nowhere.ini"}), HasSubstr("/nowhere.ini"));
}

// Only policies have settings a stage.
TEST(Options, SectionsAreForThoseWhoHavePolicies) {
  const TempFolder folder;
  const auto ini = folder.write("d.ini", "batch = 7\n[stage 0]\nbatch = 8\n");
  EXPECT_THAT(error_of({"--config", ini}), HasSubstr("d.ini line 2: must be 'key = value'"));
}

TEST(Options, HelpPrintsAndReturnsNothing) {
  ::testing::internal::CaptureStdout();
  EXPECT_FALSE(parse({"--help", "--config", "/nowhere.ini"}));
  const auto text = ::testing::internal::GetCapturedStdout();
  EXPECT_THAT(text, ::testing::StartsWith("usage: stagecoach try\n"));
  EXPECT_THAT(text, HasSubstr("may come several times"));
}

TEST(Options, UnsignedNumbersAreWhole) {
  EXPECT_EQ(parse_unsigned("18446744073709551615", "--seed"), ~std::uint64_t{0});
  for (const auto* text : {"", "-1", "1.5", "18446744073709551616", "0x10", " 1", "1 "}) {
    EXPECT_THROW(parse_unsigned(text, "--seed"), ConfigError) << text;
  }
}

}  // namespace
}  // namespace stagecoach::cli
