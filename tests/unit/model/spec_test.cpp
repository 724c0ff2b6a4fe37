#include "model/spec.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.hpp"
#include "base/file.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::model {
namespace {

using ::testing::HasSubstr;

using Settings = std::map<std::string, std::string>;

Settings opt_125m() {
  return {{"layers", "12"}, {"hidden", "768"},  {"heads", "12"},
          {"ffn", "3072"},  {"vocab", "50272"}, {"max_positions", "2048"}};
}

ModelSpec with(const std::string& key, const std::string& value) {
  auto settings = opt_125m();
  settings[key] = value;
  return spec_from_settings(settings, "test.ini");
}

/// The message of the ConfigError that `call` throws.
template <typename Call>
std::string config_error(Call call) {
  try {
    call();
  } catch (const ConfigError& error) {
    return error.what();
  }
  ADD_FAILURE() << "no ConfigError was thrown";
  return {};
}

std::string hf_config(const std::string& changed_key = "", const std::string& value = "") {
  Settings keys = {
      {"model_type", "\"opt\""},         {"vocab_size", "2048"}, {"hidden_size", "256"},
      {"num_hidden_layers", "8"},        {"ffn_dim", "1024"},    {"num_attention_heads", "4"},
      {"max_position_embeddings", "512"}};
  if (!changed_key.empty()) {
    keys[changed_key] = value;
  }
  std::string json = "{";
  for (const auto& [key, text] : keys) {
    if (!text.empty()) {
      json += (json.size() > 1 ? ", \"" : "\"") + key + "\": " + text;
    }
  }
  return json + "}";
}

std::string hf_error(const std::string& key, const std::string& value) {
  return config_error([&] { spec_from_hf_config(hf_config(key, value), "x/config.json"); });
}

TEST(Spec, ReadsTheBundledConfig) {
  const auto path = stagecoach::testing::tiny_opt_folder() + "/config.json";
  const auto spec = spec_from_hf_config(read_text_file(path), path);
  EXPECT_EQ(spec.family, "opt");
  EXPECT_EQ(spec.layers, 8);
  EXPECT_EQ(spec.hidden, 256);
  EXPECT_EQ(spec.heads, 4);
  EXPECT_EQ(spec.kv_heads, 4);
  EXPECT_EQ(spec.head_dim, 64);
  EXPECT_EQ(spec.ffn, 1024);
  EXPECT_EQ(spec.vocab, 2048);
  EXPECT_EQ(spec.max_positions, 512);
  EXPECT_EQ(spec.position_offset, 2);
  EXPECT_TRUE(spec.tied_head);
  EXPECT_EQ(spec.bos_token, 2);
  EXPECT_EQ(spec.eos_token, 2);
  EXPECT_EQ(spec.pad_token, 1);
  // Tensor bytes of the bundled safetensors file, without its header.
  EXPECT_EQ(parameter_count(spec) * 2, 13948928);
}

TEST(Spec, DefaultsOfAnOldConfigAreThoseOfTheModel) {
  const auto spec = spec_from_hf_config(hf_config(), "x/config.json");
  EXPECT_TRUE(spec.tied_head);
  EXPECT_EQ(spec.pad_token, 1);
  EXPECT_EQ(spec_from_hf_config(hf_config("pad_token_id", "null"), "c").pad_token, 1);
  EXPECT_FALSE(spec_from_hf_config(hf_config("tie_word_embeddings", "false"), "c").tied_head);
}

TEST(Spec, RefusesWhatItCannotRunByKeyAndValue) {
  EXPECT_EQ(hf_error("do_layer_norm_before", "false"),
            "x/config.json: \"do_layer_norm_before\" is false, only true is supported yet");
  EXPECT_EQ(
      hf_error("word_embed_proj_dim", "128"),
      "x/config.json: \"word_embed_proj_dim\" is 128, only hidden_size (256) is supported yet");
  EXPECT_EQ(hf_error("activation_function", "\"gelu\""),
            "x/config.json: \"activation_function\" is \"gelu\", only \"relu\" is supported yet");
  EXPECT_EQ(hf_error("model_type", "\"llama\""),
            "x/config.json: \"model_type\" is \"llama\", only \"opt\" is supported yet");
  EXPECT_THAT(hf_error("enable_bias", "false"), HasSubstr("\"enable_bias\" is false"));
  EXPECT_THAT(hf_error("layer_norm_elementwise_affine", "false"), HasSubstr("affine\" is false"));
  EXPECT_THAT(hf_error("_remove_final_layer_norm", "true"), HasSubstr("norm\" is true"));
}

TEST(Spec, MissingAndIllTypedKeysAreFormatErrors) {
  EXPECT_THROW(spec_from_hf_config(hf_config("ffn_dim", ""), "c"), FormatError);
  EXPECT_THROW(spec_from_hf_config("[1]", "c"), FormatError);
  EXPECT_THROW(spec_from_hf_config("{\"a\":", "c"), FormatError);
  EXPECT_THROW(spec_from_hf_config("", "c"), FormatError);
  EXPECT_EQ(hf_error("ffn_dim", ""), "x/config.json: key \"ffn_dim\" is missing");
  EXPECT_EQ(hf_error("hidden_size", "\"256\""),
            "x/config.json: key \"hidden_size\" must be an integer, is \"256\"");
  EXPECT_THAT(hf_error("hidden_size", "256.0"), HasSubstr("must be an integer, is 256.0"));
  EXPECT_THAT(hf_error("hidden_size", "18446744073709551615"), HasSubstr("must be an integer"));
  EXPECT_THAT(hf_error("enable_bias", "1"), HasSubstr("must be true or false, is 1"));
}

TEST(Spec, AbsurdSizesAreRefused) {
  EXPECT_THAT(hf_error("num_hidden_layers", "-1"), HasSubstr("x/config.json: model: layers is -1"));
  EXPECT_THAT(hf_error("num_hidden_layers", "9223372036854775807"), HasSubstr("layers is"));
  EXPECT_THAT(hf_error("vocab_size", "9223372036854775807"), HasSubstr("vocab is"));
  EXPECT_THAT(hf_error("ffn_dim", "9000000000000000000"), HasSubstr("ffn is"));
  EXPECT_THAT(hf_error("max_position_embeddings", "9223372036854775807"),
              HasSubstr("max_positions"));
  EXPECT_THAT(hf_error("num_attention_heads", "0"), HasSubstr("must divide hidden_size"));
  EXPECT_THAT(hf_error("num_attention_heads", "3"), HasSubstr("must divide hidden_size 256"));
  EXPECT_THAT(hf_error("eos_token_id", "2048"), HasSubstr("eos_token is 2048"));
}

TEST(Spec, LargestSizesDoNotOverflow) {
  auto spec = with("layers", "10000");
  spec.hidden = std::int64_t{1} << 20;
  spec.head_dim = std::int64_t{1} << 14;
  spec.heads = spec.kv_heads = 64;
  spec.ffn = std::int64_t{1} << 22;
  spec.vocab = std::int64_t{1} << 26;
  spec.max_positions = std::int64_t{1} << 26;
  ASSERT_NO_THROW(spec.validate());
  // 2 (4 h^2 + 2 h f) a layer alone, in floating point.
  EXPECT_GT(static_cast<double>(parameter_count(spec)), 10000.0 * 12e12);
  EXPECT_LT(static_cast<double>(parameter_count(spec)), 10000.0 * 14e12);
}

TEST(Spec, OtherFamiliesAreSaidToComeLater) {
  EXPECT_THAT(config_error([] { with("position", "rotary"); }),
              HasSubstr("rotary is not supported"));
  EXPECT_THAT(config_error([] { with("norm", "rms_norm"); }),
              HasSubstr("rms_norm is not supported"));
  EXPECT_THAT(config_error([] { with("gated_mlp", "true"); }),
              HasSubstr("gated_mlp = true is not"));
  EXPECT_THAT(config_error([] { with("kv_heads", "4"); }), HasSubstr("grouped queries"));
  EXPECT_THAT(config_error([] { with("activation", "silu"); }), HasSubstr("other than relu"));
  EXPECT_THAT(config_error([] { with("family", "llama"); }), HasSubstr("family llama"));
}

TEST(Spec, SettingsAreReadStrictly) {
  EXPECT_EQ(config_error([] { with("hiden", "3"); }), "test.ini: there is no setting called hiden");
  EXPECT_EQ(config_error([] { with("ffn", "3072x"); }), "test.ini: ffn = 3072x: must be a number");
  EXPECT_EQ(config_error([] { with("ffn", ""); }), "test.ini: ffn = : must be a number");
  EXPECT_THAT(config_error([] { with("norm", "batch"); }),
              HasSubstr("norm = batch: must be one of"));
  EXPECT_THAT(config_error([] { with("tied_head", "yes"); }), HasSubstr("must be true or false"));
  EXPECT_THAT(config_error([] {
                spec_from_settings({{"layers", "1"}}, "a.ini");
              }),
              HasSubstr("a.ini: hidden is missing"));
  EXPECT_EQ(with("norm_epsilon", "1e-6").norm_epsilon, 1e-6);
  EXPECT_EQ(with("position_offset", "0").position_offset, 0);
}

TEST(Spec, ParameterCountsAreThePublishedOnes) {
  EXPECT_EQ(parameter_count(with("layers", "12")), 125'239'296);
  auto spec = opt_125m();
  spec["layers"] = "32";
  spec["hidden"] = "4096";
  spec["heads"] = "32";
  spec["ffn"] = "16384";
  EXPECT_EQ(parameter_count(spec_from_settings(spec, "s")), 6'658'473'984);
}

TEST(Spec, TensorsHaveStoreOrderAndShapes) {
  const auto spec = with("layers", "12");
  const auto layer = layer_tensors(spec);
  ASSERT_EQ(layer.size(), 16u);
  EXPECT_EQ(layer[0].name, "attn_norm.weight");
  EXPECT_EQ(layer[2].name, "q.weight");
  EXPECT_EQ(layer[12].name, "up.weight");
  EXPECT_EQ(layer[12].shape, (std::vector<std::int64_t>{3072, 768}));
  EXPECT_EQ(layer[14].shape, (std::vector<std::int64_t>{768, 3072}));
  EXPECT_EQ(embedding_tensors(spec)[1].shape, (std::vector<std::int64_t>{2050, 768}));
  EXPECT_EQ(head_tensors(spec).size(), 2u);
  auto untied = spec;
  untied.tied_head = false;
  EXPECT_EQ(head_tensors(untied).back().shape, (std::vector<std::int64_t>{50272, 768}));
  EXPECT_EQ(layer_bytes(spec), 2 * 7'087'872);
  EXPECT_EQ(kv_bytes_per_token_and_layer(spec), 3072);
}

TEST(Spec, JsonGivesBackTheSameSpec) {
  auto spec = with("norm_epsilon", "1.0000000000000002e-05");
  spec.name = "a \"name\" with \xc3\xa9 and\nnewline";
  spec.tied_head = false;
  const auto json = spec_to_json(spec);
  EXPECT_EQ(json.find('\n'), std::string::npos);
  EXPECT_EQ(spec_from_json(json, "store"), spec);
  EXPECT_THROW(spec_from_json("{}", "store"), FormatError);
  auto wrong = json;
  wrong.replace(wrong.find("relu"), 4, "rulu");
  EXPECT_THROW(spec_from_json(wrong, "store"), FormatError);
}

}  // namespace
}  // namespace stagecoach::model
