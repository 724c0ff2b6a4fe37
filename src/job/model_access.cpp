#include "job/model_access.hpp"

#include <utility>

#include "base/hash.hpp"
#include "model/checkpoint.hpp"

namespace stagecoach::job {
namespace {

std::unique_ptr<offload::WeightSource> packed_if_wanted(
    std::unique_ptr<offload::WeightSource> source, const ModelAccess& access) {
  return access.format.packed()
             ? offload::make_packing_source(std::move(source), access.spec, access.format)
             : std::move(source);
}

ModelAccess open_weights(const JobConfig& config) {
  ModelAccess access;
  if (config.dummy_seed) {
    access.spec = config.dummy_spec;
    access.digest = mix_bits(*config.dummy_seed) ^ hash_string(model::spec_to_json(access.spec));
    access.format = choose_format(config.compression, {});
    access.weights = packed_if_wanted(offload::make_dummy_source(*config.dummy_seed), access);
    return access;
  }
  auto index = model::read_store_index(config.model_path);
  const auto stored = index.weights;
  access.spec = index.spec;
  access.format = choose_format(config.compression, stored);
  access.tokenizer = index.tokenizer;
  access.digest = index.digest();
  auto source = offload::open_store_source(std::move(index));
  access.weights =
      stored.packed() ? std::move(source) : packed_if_wanted(std::move(source), access);
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
