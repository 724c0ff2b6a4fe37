#include "unit/job/tiny_tokenizer.hpp"

#include "base/file.hpp"
#include "support/temp_folder.hpp"

namespace stagecoach::testing {

const model::Tokenizer& tiny_tokenizer() {
  static const model::Tokenizer tokenizer(
      {read_text_file(tiny_opt_folder() + "/vocab.json"),
       read_text_file(tiny_opt_folder() + "/merges.txt"),
       read_text_file(tiny_opt_folder() + "/special_tokens_map.json")},
      2048);
  return tokenizer;
}

}  // namespace stagecoach::testing
