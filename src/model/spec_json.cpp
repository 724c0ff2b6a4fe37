#include "base/error.hpp"
#include "model/json_fields.hpp"
#include "model/spec.hpp"
#include "model/spec_names.hpp"

namespace stagecoach::model {
namespace {

template <typename Enum, std::size_t n>
Enum enum_field(const JsonFields& fields, const char* key, const EnumNames<Enum, n>& names) {
  const auto value = value_of(names, fields.text(key));
  if (!value) {
    throw FormatError(fmt::format("{}: key \"{}\" has the unknown value {}", fields.where(), key,
                                  describe_json(fields.require(key))));
  }
  return *value;
}

[[noreturn]] void fail_unsupported(const JsonFields& fields, const char* key,
                                   const std::string& wanted) {
  throw ConfigError(fmt::format("{}: \"{}\" is {}, only {} is supported yet", fields.where(), key,
                                describe_json(fields.require(key)), wanted));
}

void want_boolean(const JsonFields& fields, const char* key, bool fallback, bool wanted) {
  if (fields.boolean_or(key, fallback) != wanted) {
    if (!fields.has(key)) {
      throw ConfigError(
          fmt::format("{}: \"{}\" must be there and be {}", fields.where(), key, wanted));
    }
    fail_unsupported(fields, key, wanted ? "true" : "false");
  }
}

void check_opt_is_runnable(const JsonFields& fields) {
  if (fields.text("model_type") != "opt") {
    fail_unsupported(fields, "model_type", "\"opt\"");
  }
  want_boolean(fields, "do_layer_norm_before", true, true);
  want_boolean(fields, "enable_bias", true, true);
  want_boolean(fields, "layer_norm_elementwise_affine", true, true);
  want_boolean(fields, "_remove_final_layer_norm", false, false);
  if (fields.text_or("activation_function", "relu") != "relu") {
    fail_unsupported(fields, "activation_function", "\"relu\"");
  }
  const auto hidden = fields.integer("hidden_size");
  if (fields.integer_or("word_embed_proj_dim", hidden) != hidden) {
    fail_unsupported(fields, "word_embed_proj_dim", fmt::format("hidden_size ({})", hidden));
  }
}

void set_heads(ModelSpec& spec, const JsonFields& fields) {
  spec.heads = fields.integer("num_attention_heads");
  if (spec.heads < 1 || spec.hidden % spec.heads != 0) {
    throw ConfigError(
        fmt::format("{}: \"num_attention_heads\" is {}, it must divide hidden_size {}",
                    fields.where(), spec.heads, spec.hidden));
  }
  spec.kv_heads = spec.heads;
  spec.head_dim = spec.hidden / spec.heads;
}

}  // namespace

ModelSpec spec_from_hf_config(const std::string& json_text, const std::string& where) {
  const JsonFields fields(json_text, where);
  check_opt_is_runnable(fields);
  ModelSpec spec;
  spec.family = "opt";
  spec.name = fields.text_or("_name_or_path", "");
  spec.layers = fields.integer("num_hidden_layers");
  spec.hidden = fields.integer("hidden_size");
  set_heads(spec, fields);
  spec.ffn = fields.integer("ffn_dim");
  spec.vocab = fields.integer("vocab_size");
  spec.max_positions = fields.integer("max_position_embeddings");
  spec.position_offset = 2;
  spec.tied_head = fields.boolean_or("tie_word_embeddings", true);
  spec.bos_token = fields.integer_or("bos_token_id", 2);
  spec.eos_token = fields.integer_or("eos_token_id", 2);
  spec.pad_token = fields.integer_or("pad_token_id", 1);
  validate_spec(spec, where);
  return spec;
}

std::string spec_to_json(const ModelSpec& spec) {
  const nlohmann::ordered_json object = {{"family", spec.family},
                                         {"name", spec.name},
                                         {"layers", spec.layers},
                                         {"hidden", spec.hidden},
                                         {"heads", spec.heads},
                                         {"kv_heads", spec.kv_heads},
                                         {"head_dim", spec.head_dim},
                                         {"ffn", spec.ffn},
                                         {"vocab", spec.vocab},
                                         {"max_positions", spec.max_positions},
                                         {"position_offset", spec.position_offset},
                                         {"norm_epsilon", spec.norm_epsilon},
                                         {"activation", name_of(kActivationNames, spec.activation)},
                                         {"norm", name_of(kNormNames, spec.norm)},
                                         {"position", name_of(kPositionNames, spec.position)},
                                         {"gated_mlp", spec.gated_mlp},
                                         {"tied_head", spec.tied_head},
                                         {"bos_token", spec.bos_token},
                                         {"eos_token", spec.eos_token},
                                         {"pad_token", spec.pad_token}};
  return object.dump(-1, ' ', true, nlohmann::ordered_json::error_handler_t::replace);
}

ModelSpec spec_from_json(const std::string& text, const std::string& where) {
  const JsonFields fields(text, where);
  ModelSpec spec;
  spec.family = fields.text("family");
  spec.name = fields.text("name");
  spec.layers = fields.integer("layers");
  spec.hidden = fields.integer("hidden");
  spec.heads = fields.integer("heads");
  spec.kv_heads = fields.integer("kv_heads");
  spec.head_dim = fields.integer("head_dim");
  spec.ffn = fields.integer("ffn");
  spec.vocab = fields.integer("vocab");
  spec.max_positions = fields.integer("max_positions");
  spec.position_offset = fields.integer("position_offset");
  spec.norm_epsilon = fields.number("norm_epsilon");
  spec.activation = enum_field(fields, "activation", kActivationNames);
  spec.norm = enum_field(fields, "norm", kNormNames);
  spec.position = enum_field(fields, "position", kPositionNames);
  spec.gated_mlp = fields.boolean("gated_mlp");
  spec.tied_head = fields.boolean("tied_head");
  spec.bos_token = fields.integer("bos_token");
  spec.eos_token = fields.integer("eos_token");
  spec.pad_token = fields.integer("pad_token");
  validate_spec(spec, where);
  return spec;
}

}  // namespace stagecoach::model
