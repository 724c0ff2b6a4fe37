#include "job/model_access.hpp"

#include <utility>

#include "base/hash.hpp"
#include "model/checkpoint.hpp"

namespace stagecoach::job {
namespace {

ModelAccess open_weights(const JobConfig& config) {
  ModelAccess access;
  if (config.dummy_seed) {
    access.spec = config.dummy_spec;
    access.digest = mix_bits(*config.dummy_seed) ^ hash_string(model::spec_to_json(access.spec));
    access.weights = offload::make_dummy_source(*config.dummy_seed);
    return access;
  }
  auto index = model::read_store_index(config.model_path);
  access.spec = index.spec;
  access.tokenizer = index.tokenizer;
  access.digest = index.digest();
  access.weights = offload::open_store_source(std::move(index));
  return access;
}

}  // namespace

ModelAccess open_model(const JobConfig& config) {
  auto access = open_weights(config);
  access.spec.validate();
  if (!config.tokenizer_path.empty()) {
    access.tokenizer = model::read_tokenizer_files(config.tokenizer_path);
  }
  return access;
}

}  // namespace stagecoach::job
