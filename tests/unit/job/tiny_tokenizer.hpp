#pragma once

#include "model/tokenizer.hpp"

namespace stagecoach::testing {

/// The tokenizer of the bundled checkpoint (2048 tokens; </s> is 2).
const model::Tokenizer& tiny_tokenizer();

}  // namespace stagecoach::testing
